"""Finds memory that was written again while somebody still had to read it.

A dump says where in the device's memory every tensor lay. An op that writes into a tensor between
the op that made it and one that reads it is a fault of the memory plan, and shows as a wrong
result far from its cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.errors import SyncpointError
from syncpoint.run.model import Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_KEEPS_VALUES = frozenset(
    {
        *("Reshape", "Identity", "Squeeze", "SqueezeV2", "SqueezeV3", "Unsqueeze", "UnsqueezeV2"),
        *("UnsqueezeV3", "ExpandDims", "Flatten", "FlattenV2", "PhonyConcat", "PhonySplit"),
    }
)
"""Ops whose output may lie where their input does, since it holds the same."""


@dataclass(frozen=True)
class _Write:
    order: int
    start: int
    end: int
    op: Op


def overwritten(target: Run, stored: Run) -> dict[TensorKey, str]:
    """The tensors that were written over too early, with what happened in words. `target` knows
    what its ops read, `stored` where the tensors lay."""
    order = {op.key: at for at, op in enumerate(target.ops)}
    outputs, inputs = _placed(stored)
    writes = sorted(
        (
            _Write(
                order[key.op],
                t.address or 0,
                (t.address or 0) + t.nbytes,
                target.ops[order[key.op]],
            )
            for key, t in outputs.items()
        ),
        key=lambda write: write.order,
    )
    if not writes:
        return {}
    places = np.array([[w.order, w.start, w.end] for w in writes], np.uint64)
    found: dict[TensorKey, str] = {}
    for op in target.ops:
        for place, edge in enumerate(op.inputs):
            made = outputs.get(TensorKey(edge.op, Role.OUTPUT, edge.index))
            if made is None or order[edge.op] >= order[op.key]:
                continue
            start, end = made.address or 0, (made.address or 0) + made.nbytes
            later = (places[:, 0] > order[edge.op]) & (places[:, 0] < order[op.key])
            inside = later & (places[:, 1] < end) & (places[:, 2] > start)
            for at in np.flatnonzero(inside):
                writer = writes[int(at)].op
                if _same_value(writer, edge.op):
                    continue
                read = inputs.get(TensorKey(op.key, Role.INPUT, place))
                said = (
                    f"{writer.key} writes into {edge.op} at {start:#x} before {op.key} reads it"
                    f"{_evidence(stored, made, read)}"
                )
                found.setdefault(made.key, said)
                if read is not None:
                    found.setdefault(read.key, said)
                break
    return found


def _placed(run: Run) -> tuple[dict[TensorKey, Tensor], dict[TensorKey, Tensor]]:
    """Outputs and inputs whose place in memory is known."""
    placed = [t for t in run.tensors if t.address and t.nbytes]
    return (
        {t.key: t for t in placed if t.key.role is Role.OUTPUT},
        {t.key: t for t in run.tensors if t.key.role is Role.INPUT},
    )


def _same_value(writer: Op, maker: OpKey) -> bool:
    """Whether the writer only passes on, in place, what the maker made."""
    return writer.type in _KEEPS_VALUES and any(edge.op == maker for edge in writer.inputs)


def _evidence(run: Run, made: Tensor, read: Tensor | None) -> str:
    if read is None or (read.dtype, read.shape) != (made.dtype, made.shape):
        return ""
    try:
        same = run.values(made).tobytes() == run.values(read).tobytes()
    except SyncpointError:
        return ""
    if same:
        return "; what was read is still what was written"
    return "; what was read is not what was written"
