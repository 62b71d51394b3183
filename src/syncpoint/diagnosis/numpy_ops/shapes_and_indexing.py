"""NumPy functions of recorded ops that move elements: reshape, permute, slice, concatenate, split,
expand, pad, gather and embedding lookup, flip, roll."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.products_and_convolutions import padded
from syncpoint.diagnosis.numpy_ops.recorded_op import (
    Array,
    Bound,
    Reader,
    RecordedOp,
    UnknownForm,
    axes,
    named,
)

_END = 1 << 62


def reshaped(x: Array, *, shape: Sequence[int]) -> Array:
    """Reshape."""
    return x.reshape([int(n) for n in shape])


def sliced(x: Array, *, starts: Sequence[int], ends: Sequence[int], over: Sequence[int],
           steps: Sequence[int]) -> Array:  # fmt: skip
    """Slice some axes."""
    cut = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, over, steps, strict=True):
        stop: int | None = None if end >= _END or (step < 0 and end <= -_END) else int(end)
        cut[int(axis)] = slice(int(start), stop, int(step))
    return x[tuple(cut)]


def joined(*parts: Array, axis: int) -> Array:
    """Concatenate along an axis; empty parts are left out."""
    return np.concatenate([p for p in parts if p.shape != (0,)], axis)


def looked_up(table: Array, index: Array, *, axis: int = 0) -> Array:
    """Take rows of a table by index; negative indices count from the end."""
    indices = index.astype(np.int64)
    n = table.shape[axis]
    if indices.size and (indices.min() < -n or indices.max() >= n):
        raise ValueError("an index is outside the table")
    return np.take(table, indices, axis)


def _reshape(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    name = recorded.name.lower()
    if name == "flatten":
        if recorded.torch:
            start, end = (
                int(recorded.get("start_dim", default=0)),
                int(recorded.get("end_dim", default=-1)),
            )
            start, end = start % max(x.ndim, 1), end % max(x.ndim, 1)
            shape = [*x.shape[:start], -1, *x.shape[end + 1 :]]
        else:
            axis = int(recorded.get("axis", default=1))
            shape = [int(np.prod(x.shape[:axis])), -1]
    elif name == "squeeze":
        over = recorded.get("dim", "axes")
        if len(recorded.arguments) > 1:
            over = recorded.need(1)
        named = axes(over, x.ndim)
        shape = [n for a, n in enumerate(x.shape) if not (a in named and n == 1)]
    elif name == "unsqueeze":
        over = recorded.get("dim", "axes") if len(recorded.arguments) < 2 else recorded.need(1)
        count = np.size(over)
        shape = list(np.expand_dims(x, axes(over, x.ndim + count)).shape)
    else:
        shape = (
            recorded.get("shape", "size")
            if len(recorded.arguments) < 2
            else recorded.need(1).tolist()
        )
        if shape is None or any(not isinstance(n, int) for n in shape):
            raise UnknownForm("a shape that was not recorded")
        if not recorded.torch and not recorded.get("allowzero"):
            shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    yield Bound(reshaped, (x,), {"shape": shape})


def _permute(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    if recorded.name in ("transpose", "swapaxes"):
        order = list(range(x.ndim))
        a, b = int(recorded.get("dim0", "axis0")), int(recorded.get("dim1", "axis1"))
        order[a], order[b] = order[b], order[a]
    elif recorded.name == "mT":
        order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
    elif recorded.name in ("t", "numpy_T"):
        order = list(range(x.ndim))[::-1]
    else:
        order = recorded.get("dims", "perm", default=list(range(x.ndim))[::-1])
    yield Bound(np.transpose, (x,), {"axes": [int(a) for a in order]})


def _slice(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    name = recorded.name
    if name == "select":
        yield Bound(
            np.take, (x,), {"indices": int(recorded.get("index")), "axis": recorded.get("dim")}
        )
        return
    if name == "narrow":
        start = int(recorded.get("start"))
        starts, ends, over, steps = (
            [start],
            [start + int(recorded.get("length"))],
            [recorded.get("dim")],
            [1],
        )
    elif recorded.torch:
        starts, ends = [recorded.get("start", default=0)], [recorded.get("end", default=_END)]
        over, steps = [recorded.get("dim", default=0)], [recorded.get("step", default=1)]
    elif recorded.get("starts") is not None:
        starts, ends = recorded.get("starts"), recorded.get("ends")
        over, steps = recorded.get("axes", default=list(range(len(starts)))), [1] * len(starts)
    else:
        lists = [v.reshape(-1).tolist() for v in recorded.all()[1:]]
        starts, ends = lists[0], lists[1]
        over = lists[2] if len(lists) > 2 else list(range(len(starts)))
        steps = lists[3] if len(lists) > 3 else [1] * len(starts)
    yield Bound(sliced, (x,), {"starts": starts, "ends": ends, "over": over, "steps": steps})


def _concat(recorded: RecordedOp) -> Iterable[Bound]:
    yield Bound(
        joined, tuple(recorded.all()), {"axis": int(recorded.get("dim", "axis", default=0))}
    )


def _stack(recorded: RecordedOp) -> Iterable[Bound]:
    def stacked(*parts: Array, axis: int) -> Array:
        return np.stack(parts, axis)

    yield Bound(stacked, tuple(recorded.all()), {"axis": int(recorded.get("dim", default=0))})


def _split(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    axis = int(recorded.get("dim", "axis", default=0))
    n = x.shape[axis]
    sizes: Any = recorded.get("split_size", "split_sizes", "split")
    if len(recorded.arguments) > 1:
        sizes = recorded.need(1).tolist()
    if recorded.name == "unbind":
        yield Bound(lambda v: tuple(np.take(v, i, axis) for i in range(n)), (x,), {})
        return
    if sizes is None:
        count = int(recorded.get("chunks", "num_outputs", default=2))
        sizes = -(-n // count)
    if isinstance(sizes, int | float):
        sizes = [int(sizes)] * (n // int(sizes)) + ([n % int(sizes)] if n % int(sizes) else [])
    ends = np.cumsum(sizes)[:-1].tolist()
    yield Bound(lambda v: tuple(np.split(v, ends, axis)), (x,), {})


def _expand(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    shape = (
        recorded.get("size", "shape") if len(recorded.arguments) < 2 else recorded.need(1).tolist()
    )
    if recorded.name == "expand_as":
        shape = recorded.need(1).shape
    if shape is None:
        raise UnknownForm("a shape that was not recorded")
    own = [1] * (len(shape) - x.ndim) + list(x.shape)
    full = [o if n in (-1, 1) else n for n, o in zip(shape, own, strict=True)]
    yield Bound(lambda v: np.broadcast_to(v, full), (x,), {})


def _tile(recorded: RecordedOp) -> Iterable[Bound]:
    times = (
        recorded.get("repeats", "dims")
        if len(recorded.arguments) < 2
        else recorded.need(1).tolist()
    )
    if times is None:
        raise UnknownForm("a number of copies that was not recorded")
    yield Bound(np.tile, (recorded.need(0),), {"reps": times})


def _pad(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    mode = {"constant": "zeros", "edge": "replicate", "wrap": "circular"}
    kind = str(recorded.get("mode", default="constant"))
    if recorded.torch:
        flat = recorded.get("pad")
        value = recorded.get("value", default=0.0)
        count = len(flat) // 2
        pads = [(flat[2 * i], flat[2 * i + 1]) for i in range(count)][::-1]
    else:
        flat = recorded.get("pads") or recorded.need(1).tolist()
        value = recorded.get("value", default=0.0)
        if len(recorded.arguments) > 2:
            value = float(recorded.need(2).reshape(-1)[0])
        if len(recorded.arguments) > 3:
            raise UnknownForm("a pad of some axes")
        half = len(flat) // 2
        pads = list(zip(flat[:half], flat[half:], strict=True))
    yield Bound(padded, (x,), {"pads": pads, "mode": mode.get(kind, kind), "value": value})


def _gather(recorded: RecordedOp) -> Iterable[Bound]:
    if recorded.name == "gather" and recorded.torch:
        x, index = recorded.need(0), recorded.need(1).astype(np.int64)
        along = int(recorded.get("dim", default=0)) % x.ndim
        # If the index is shorter, the rest of the table is not read.
        cut = tuple(slice(None if a == along else n) for a, n in enumerate(index.shape))
        yield Bound(np.take_along_axis, (x[cut], index), {"axis": along})
        return
    axis = int(recorded.get("dim", "axis", default=0))
    yield Bound(looked_up, (recorded.need(0), recorded.need(1)), {"axis": axis})


def _index(recorded: RecordedOp) -> Iterable[Bound]:
    x, *index_arrays = recorded.all()
    names = recorded.get("indices", default=["tensor"] * len(index_arrays))
    remaining = iter(index_arrays)
    where = tuple(slice(None) if name is None else next(remaining) for name in names)
    places = [a for a, name in enumerate(names) if name is not None]
    if places != list(range(places[0], places[0] + len(places))):
        raise UnknownForm("indices that are apart")
    yield Bound(lambda v: v[where], (x,), {})


def _flip(recorded: RecordedOp) -> Iterable[Bound]:
    yield Bound(np.flip, (recorded.need(0),), {"axis": tuple(recorded.get("dims"))})


def _roll(recorded: RecordedOp) -> Iterable[Bound]:
    settings = {"shift": recorded.get("shifts"), "axis": recorded.get("dims") or None}
    yield Bound(np.roll, (recorded.need(0),), settings)


def _triangle(recorded: RecordedOp) -> Iterable[Bound]:
    function = np.triu if recorded.name == "triu" else np.tril
    yield Bound(function, (recorded.need(0),), {"k": int(recorded.get("diagonal", default=0))})


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
