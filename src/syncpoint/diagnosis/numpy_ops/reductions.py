"""NumPy functions of recorded sums, means, variances, extrema, argmax and cumulative sums in
float64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.recorded_op import (
    Array,
    Bound,
    Reader,
    RecordedOp,
    UnknownForm,
    axes,
    named,
)


def reduced(
    x: Array, *, kind: str, over: Sequence[int], keep: bool = False, correction: float = 0.0
) -> Array:
    """Reduce some axes to one number."""
    along = tuple(over)
    if kind in ("var", "std"):
        n = np.prod([x.shape[a] for a in along])
        variance = np.square(x - x.mean(along, keepdims=True)).sum(along, keepdims=keep)
        variance = variance / max(n - correction, 0)
        return np.asarray(np.sqrt(variance) if kind == "std" else variance)
    if kind == "l2":
        return np.asarray(np.sqrt(np.square(x).sum(along, keepdims=keep)))
    if kind == "logsumexp":
        greatest = x.max(along, keepdims=True)
        output = np.log(np.exp(x - greatest).sum(along, keepdims=True)) + greatest
        return np.asarray(output if keep else output.squeeze(along))
    functions: dict[str, Any] = {
        "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
        "any": np.any, "all": np.all,
    }  # fmt: skip
    return np.asarray(functions[kind](x, along, keepdims=keep))


def place_of(x: Array, *, axis: int | None, greatest: bool = True, keep: bool = False,
             last: bool = False) -> Array:  # fmt: skip
    """Return the index of the greatest or least element; of equal ones the first or the last."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    ordered = np.flip(x, axis) if last else x
    output = np.argmax(ordered, axis) if greatest else np.argmin(ordered, axis)
    output = x.shape[axis] - 1 - output if last else output
    return np.asarray(np.expand_dims(output, axis) if keep else output)


def running(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Compute the cumulative sum."""
    ordered = np.flip(x, axis) if reverse else x
    output = np.cumsum(ordered, axis)
    if exclusive:
        output = output - ordered
    return np.flip(output, axis) if reverse else output


def _kind(name: str) -> str:
    name = name.lower().removeprefix("reduce")
    return {"amax": "max", "amin": "min"}.get(name, name)


def _reduce(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    kind = _kind(recorded.name)
    over: Any = recorded.get("dim", "axes")
    if not recorded.torch and len(recorded.arguments) > 1:
        over = recorded.need(1)
    elif recorded.torch and len(recorded.arguments) > 1:
        raise UnknownForm("an elementwise maximum")
    keep = bool(recorded.get("keepdim", "keepdims", default=not recorded.torch))
    correction = recorded.get(
        "correction", default=1.0 if recorded.get("unbiased", default=True) else 0.0
    )
    along = axes(over, x.ndim)
    settings = {"kind": kind, "over": along, "keep": keep}
    if kind in ("var", "std"):
        settings["correction"] = float(correction)
    if recorded.torch and recorded.overload == "dim" and kind in ("max", "min"):
        place: dict[str, Any] = {"axis": along[0], "greatest": kind == "max", "keep": keep}
        yield Bound(lambda v, **s: (reduced(v, **s), place_of(v, **place)), (x,), settings)
        return
    yield Bound(reduced, (x,), settings)


def _elementwise(recorded: RecordedOp) -> Iterable[Bound]:
    """`Max` and `Min` of ONNX take any number of tensors."""
    if recorded.torch or len(recorded.arguments) < 2:
        yield from _reduce(recorded)
        return
    function = np.maximum if recorded.name == "Max" else np.minimum
    yield Bound(
        lambda *arrays: function.reduce(np.broadcast_arrays(*arrays)), (*recorded.all(),), {}
    )


def _argmax(recorded: RecordedOp) -> Iterable[Bound]:
    default = None if recorded.torch else 0
    axis = recorded.get("dim", "axis", default=default)
    keep = bool(recorded.get("keepdim", "keepdims", default=not recorded.torch))
    yield Bound(
        place_of,
        (recorded.need(0),),
        {
            "axis": axis,
            "greatest": "max" in recorded.name.lower(),
            "keep": keep,
            "last": bool(recorded.get("select_last_index", default=False)),
        },
    )


def _cumsum(recorded: RecordedOp) -> Iterable[Bound]:
    axis = recorded.get("dim") if recorded.torch else int(recorded.need(1).reshape(-1)[0])
    flags = {name: bool(recorded.get(name, default=False)) for name in ("exclusive", "reverse")}
    yield Bound(running, (recorded.need(0),), {"axis": axis, **flags})


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
