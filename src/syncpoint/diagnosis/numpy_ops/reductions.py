"""Sums, means, extremes and running sums along axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.op_arguments import (
    Array,
    Bound,
    Reader,
    Said,
    Unread,
    axes,
    named,
)


def reduced(
    x: Array, *, kind: str, over: Sequence[int], keep: bool = False, correction: float = 0.0
) -> Array:
    """One number an index of the axes that are left."""
    along = tuple(over)
    if kind in ("var", "std"):
        n = np.prod([x.shape[a] for a in along])
        variance = np.square(x - x.mean(along, keepdims=True)).sum(along, keepdims=keep)
        variance = variance / max(n - correction, 0)
        return np.asarray(np.sqrt(variance) if kind == "std" else variance)
    if kind == "l2":
        return np.asarray(np.sqrt(np.square(x).sum(along, keepdims=keep)))
    if kind == "logsumexp":
        most = x.max(along, keepdims=True)
        found = np.log(np.exp(x - most).sum(along, keepdims=True)) + most
        return np.asarray(found if keep else found.squeeze(along))
    functions: dict[str, Any] = {
        "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
        "any": np.any, "all": np.all,
    }  # fmt: skip
    return np.asarray(functions[kind](x, along, keepdims=keep))


def place_of(x: Array, *, axis: int | None, most: bool = True, keep: bool = False,
             last: bool = False) -> Array:  # fmt: skip
    """Where the greatest or least element is; of equal ones the first or the last."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    seen = np.flip(x, axis) if last else x
    found = np.argmax(seen, axis) if most else np.argmin(seen, axis)
    found = x.shape[axis] - 1 - found if last else found
    return np.asarray(np.expand_dims(found, axis) if keep else found)


def running(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """The sum of all elements up to each."""
    seen = np.flip(x, axis) if reverse else x
    found = np.cumsum(seen, axis)
    if exclusive:
        found = found - seen
    return np.flip(found, axis) if reverse else found


def _kind(name: str) -> str:
    name = name.lower().removeprefix("reduce")
    return {"amax": "max", "amin": "min"}.get(name, name)


def _reduce(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    kind = _kind(said.name)
    over: Any = said.get("dim", "axes")
    if not said.torch and len(said.arguments) > 1:
        over = said.need(1)
    elif said.torch and len(said.arguments) > 1:
        raise Unread("an elementwise maximum")
    keep = bool(said.get("keepdim", "keepdims", default=not said.torch))
    correction = said.get("correction", default=1.0 if said.get("unbiased", default=True) else 0.0)
    along = axes(over, x.ndim)
    settings = {"kind": kind, "over": along, "keep": keep}
    if kind in ("var", "std"):
        settings["correction"] = float(correction)
    if said.torch and said.overload == "dim" and kind in ("max", "min"):
        place: dict[str, Any] = {"axis": along[0], "most": kind == "max", "keep": keep}
        yield Bound(lambda v, **s: (reduced(v, **s), place_of(v, **place)), (x,), settings)
        return
    yield Bound(reduced, (x,), settings)


def _elementwise(said: Said) -> Iterable[Bound]:
    """`Max` and `Min` of ONNX take any number of tensors."""
    if said.torch or len(said.arguments) < 2:
        yield from _reduce(said)
        return
    function = np.maximum if said.name == "Max" else np.minimum
    yield Bound(lambda *given: function.reduce(np.broadcast_arrays(*given)), (*said.all(),), {})


def _argmax(said: Said) -> Iterable[Bound]:
    default = None if said.torch else 0
    axis = said.get("dim", "axis", default=default)
    keep = bool(said.get("keepdim", "keepdims", default=not said.torch))
    yield Bound(
        place_of,
        (said.need(0),),
        {
            "axis": axis,
            "most": "max" in said.name.lower(),
            "keep": keep,
            "last": bool(said.get("select_last_index", default=False)),
        },
    )


def _cumsum(said: Said) -> Iterable[Bound]:
    axis = said.get("dim") if said.torch else int(said.need(1).reshape(-1)[0])
    flags = {name: bool(said.get(name, default=False)) for name in ("exclusive", "reverse")}
    yield Bound(running, (said.need(0),), {"axis": axis, **flags})


READERS: dict[str, Reader] = {
    **named(
        "sum mean amax amin prod var std any all reducesum reducemean reducemax reducemin"
        " reduceprod logsumexp reducel2",
        _reduce,
    ),
    **dict.fromkeys(("max", "min"), _elementwise),
    **dict.fromkeys(("argmax", "argmin"), _argmax),
    "cumsum": _cumsum,
}
