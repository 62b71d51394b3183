"""Ops that move numbers and change none."""

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
from syncpoint.diagnosis.numpy_ops.products import padded

_END = 1 << 62


def reshaped(x: Array, *, shape: Sequence[int]) -> Array:
    """The same numbers in another shape."""
    return x.reshape([int(n) for n in shape])


def sliced(x: Array, *, starts: Sequence[int], ends: Sequence[int], over: Sequence[int],
           steps: Sequence[int]) -> Array:  # fmt: skip
    """A piece along some axes."""
    cut = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, over, steps, strict=True):
        stop: int | None = None if end >= _END or (step < 0 and end <= -_END) else int(end)
        cut[int(axis)] = slice(int(start), stop, int(step))
    return x[tuple(cut)]


def joined(*parts: Array, axis: int) -> Array:
    """One behind the other."""
    return np.concatenate([p for p in parts if p.shape != (0,)], axis)


def looked_up(table: Array, index: Array, *, axis: int = 0) -> Array:
    """Rows of a table by their number; negative ones count from the end."""
    found = index.astype(np.int64)
    n = table.shape[axis]
    if found.size and (found.min() < -n or found.max() >= n):
        raise ValueError("an index beyond the table")
    return np.take(table, found, axis)


def _reshape(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    name = said.name.lower()
    if name == "flatten":
        if said.torch:
            start, end = int(said.get("start_dim", default=0)), int(said.get("end_dim", default=-1))
            start, end = start % max(x.ndim, 1), end % max(x.ndim, 1)
            shape = [*x.shape[:start], -1, *x.shape[end + 1 :]]
        else:
            axis = int(said.get("axis", default=1))
            shape = [int(np.prod(x.shape[:axis])), -1]
    elif name == "squeeze":
        over = said.get("dim", "axes")
        if len(said.arguments) > 1:
            over = said.need(1)
        named = axes(over, x.ndim)
        shape = [n for a, n in enumerate(x.shape) if not (a in named and n == 1)]
    elif name == "unsqueeze":
        over = said.get("dim", "axes") if len(said.arguments) < 2 else said.need(1)
        count = np.size(over)
        shape = list(np.expand_dims(x, axes(over, x.ndim + count)).shape)
    else:
        shape = said.get("shape", "size") if len(said.arguments) < 2 else said.need(1).tolist()
        if shape is None or any(not isinstance(n, int) for n in shape):
            raise Unread("a shape that was not recorded")
        if not said.torch and not said.get("allowzero"):
            shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    yield Bound(reshaped, (x,), {"shape": shape})


def _permute(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    if said.name in ("transpose", "swapaxes"):
        order = list(range(x.ndim))
        a, b = int(said.get("dim0", "axis0")), int(said.get("dim1", "axis1"))
        order[a], order[b] = order[b], order[a]
    elif said.name == "mT":
        order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
    elif said.name in ("t", "numpy_T"):
        order = list(range(x.ndim))[::-1]
    else:
        order = said.get("dims", "perm", default=list(range(x.ndim))[::-1])
    yield Bound(np.transpose, (x,), {"axes": [int(a) for a in order]})


def _slice(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    name = said.name
    if name == "select":
        yield Bound(np.take, (x,), {"indices": int(said.get("index")), "axis": said.get("dim")})
        return
    if name == "narrow":
        start = int(said.get("start"))
        starts, ends, over, steps = (
            [start],
            [start + int(said.get("length"))],
            [said.get("dim")],
            [1],
        )
    elif said.torch:
        starts, ends = [said.get("start", default=0)], [said.get("end", default=_END)]
        over, steps = [said.get("dim", default=0)], [said.get("step", default=1)]
    elif said.get("starts") is not None:
        starts, ends = said.get("starts"), said.get("ends")
        over, steps = said.get("axes", default=list(range(len(starts)))), [1] * len(starts)
    else:
        lists = [v.reshape(-1).tolist() for v in said.all()[1:]]
        starts, ends = lists[0], lists[1]
        over = lists[2] if len(lists) > 2 else list(range(len(starts)))
        steps = lists[3] if len(lists) > 3 else [1] * len(starts)
    yield Bound(sliced, (x,), {"starts": starts, "ends": ends, "over": over, "steps": steps})


def _concat(said: Said) -> Iterable[Bound]:
    yield Bound(joined, tuple(said.all()), {"axis": int(said.get("dim", "axis", default=0))})


def _stack(said: Said) -> Iterable[Bound]:
    def stacked(*parts: Array, axis: int) -> Array:
        return np.stack(parts, axis)

    yield Bound(stacked, tuple(said.all()), {"axis": int(said.get("dim", default=0))})


def _split(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    axis = int(said.get("dim", "axis", default=0))
    n = x.shape[axis]
    sizes: Any = said.get("split_size", "split_sizes", "split")
    if len(said.arguments) > 1:
        sizes = said.need(1).tolist()
    if said.name == "unbind":
        yield Bound(lambda v: tuple(np.take(v, i, axis) for i in range(n)), (x,), {})
        return
    if sizes is None:
        count = int(said.get("chunks", "num_outputs", default=2))
        sizes = -(-n // count)
    if isinstance(sizes, int | float):
        sizes = [int(sizes)] * (n // int(sizes)) + ([n % int(sizes)] if n % int(sizes) else [])
    ends = np.cumsum(sizes)[:-1].tolist()
    yield Bound(lambda v: tuple(np.split(v, ends, axis)), (x,), {})


def _expand(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    shape = said.get("size", "shape") if len(said.arguments) < 2 else said.need(1).tolist()
    if said.name == "expand_as":
        shape = said.need(1).shape
    if shape is None:
        raise Unread("a shape that was not recorded")
    own = [1] * (len(shape) - x.ndim) + list(x.shape)
    full = [o if n in (-1, 1) else n for n, o in zip(shape, own, strict=True)]
    yield Bound(lambda v: np.broadcast_to(v, full), (x,), {})


def _tile(said: Said) -> Iterable[Bound]:
    times = said.get("repeats", "dims") if len(said.arguments) < 2 else said.need(1).tolist()
    if times is None:
        raise Unread("a number of copies that was not recorded")
    yield Bound(np.tile, (said.need(0),), {"reps": times})


def _pad(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    mode = {"constant": "zeros", "edge": "replicate", "wrap": "circular"}
    kind = str(said.get("mode", default="constant"))
    if said.torch:
        flat = said.get("pad")
        value = said.get("value", default=0.0)
        count = len(flat) // 2
        pads = [(flat[2 * i], flat[2 * i + 1]) for i in range(count)][::-1]
    else:
        flat = said.get("pads") or said.need(1).tolist()
        value = said.get("value", default=0.0)
        if len(said.arguments) > 2:
            value = float(said.need(2).reshape(-1)[0])
        if len(said.arguments) > 3:
            raise Unread("a pad of some axes")
        half = len(flat) // 2
        pads = list(zip(flat[:half], flat[half:], strict=True))
    yield Bound(padded, (x,), {"pads": pads, "mode": mode.get(kind, kind), "value": value})


def _gather(said: Said) -> Iterable[Bound]:
    if said.name == "gather" and said.torch:
        x, index = said.need(0), said.need(1).astype(np.int64)
        along = int(said.get("dim", default=0)) % x.ndim
        # Where the index is shorter the rest of the table is not read.
        cut = tuple(slice(None if a == along else n) for a, n in enumerate(index.shape))
        yield Bound(np.take_along_axis, (x[cut], index), {"axis": along})
        return
    axis = int(said.get("dim", "axis", default=0))
    yield Bound(looked_up, (said.need(0), said.need(1)), {"axis": axis})


def _index(said: Said) -> Iterable[Bound]:
    x, *given = said.all()
    names = said.get("indices", default=["tensor"] * len(given))
    left = iter(given)
    where = tuple(slice(None) if name is None else next(left) for name in names)
    places = [a for a, name in enumerate(names) if name is not None]
    if places != list(range(places[0], places[0] + len(places))):
        raise Unread("indices that are apart")
    yield Bound(lambda v: v[where], (x,), {})


def _flip(said: Said) -> Iterable[Bound]:
    yield Bound(np.flip, (said.need(0),), {"axis": tuple(said.get("dims"))})


def _roll(said: Said) -> Iterable[Bound]:
    settings = {"shift": said.get("shifts"), "axis": said.get("dims") or None}
    yield Bound(np.roll, (said.need(0),), settings)


def _triangle(said: Said) -> Iterable[Bound]:
    function = np.triu if said.name == "triu" else np.tril
    yield Bound(function, (said.need(0),), {"k": int(said.get("diagonal", default=0))})


READERS: dict[str, Reader] = {
    **named("view reshape _unsafe_view flatten squeeze unsqueeze", _reshape),
    **named("permute transpose swapaxes t mt numpy_t", _permute),
    **dict.fromkeys(("slice", "select", "narrow"), _slice),
    **dict.fromkeys(("cat", "concat"), _concat),
    "stack": _stack,
    **named("split chunk split_with_sizes unbind", _split),
    **dict.fromkeys(("expand", "expand_as"), _expand),
    **dict.fromkeys(("repeat", "tile"), _tile),
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad),
    **dict.fromkeys(("embedding", "index_select", "gather"), _gather),
    "index": _index,
    "flip": _flip,
    "roll": _roll,
    **dict.fromkeys(("triu", "tril"), _triangle),
}
