"""Find tensors of a dump whose memory another op overwrote before they were read, by address;
evidence: the stored bytes written and read are equal or differ.

A dump has the memory address of every tensor. If an op writes into a tensor after the op that
computes it and before an op that reads it, the memory plan is wrong. The effect is a wrong result
far from its cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.errors import SyncpointError
from syncpoint.run.model import Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_VALUE_PRESERVING_TYPES = frozenset(
    {
        *("Reshape", "Identity", "Squeeze", "SqueezeV2", "SqueezeV3", "Unsqueeze", "UnsqueezeV2"),
        *("UnsqueezeV3", "ExpandDims", "Flatten", "FlattenV2", "PhonyConcat", "PhonySplit"),
    }
)
"""Types of ops whose output may share the memory of their input, as it has the same values."""


@dataclass(frozen=True)
class _Write:
    order: int
    start: int
    end: int
    op: Op


def find_overwritten(target: Run, stored: Run) -> dict[TensorKey, str]:
    """The tensors that were overwritten too early, with a description. `target` has the inputs of
    its ops, `stored` the addresses of the tensors."""
    order = {op.key: index for index, op in enumerate(target.ops)}
    outputs, inputs = _outputs_and_inputs(stored)
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
    ranges = np.array([[w.order, w.start, w.end] for w in writes], np.uint64)
    descriptions: dict[TensorKey, str] = {}
    for op in target.ops:
        for index, edge in enumerate(op.inputs):
            output = outputs.get(TensorKey(edge.op, Role.OUTPUT, edge.index))
            if output is None or order[edge.op] >= order[op.key]:
                continue
            start, end = output.address or 0, (output.address or 0) + output.nbytes
            is_between = (ranges[:, 0] > order[edge.op]) & (ranges[:, 0] < order[op.key])
            is_overlapping = is_between & (ranges[:, 1] < end) & (ranges[:, 2] > start)
            for write_index in np.flatnonzero(is_overlapping):
                writer = writes[int(write_index)].op
                if _passes_value_on(writer, edge.op):
                    continue
                read = inputs.get(TensorKey(op.key, Role.INPUT, index))
                description = (
                    f"{writer.key} writes into {edge.op} at {start:#x} before {op.key} reads it"
                    f"{_evidence(stored, output, read)}"
                )
                descriptions.setdefault(output.key, description)
                if read is not None:
                    descriptions.setdefault(read.key, description)
                break
    return descriptions


def _outputs_and_inputs(
    run: Run,
) -> tuple[dict[TensorKey, Tensor], dict[TensorKey, Tensor]]:
    """The outputs with a known address, and all inputs."""
    with_address = [t for t in run.tensors if t.address and t.nbytes]
    return (
        {t.key: t for t in with_address if t.key.role is Role.OUTPUT},
        {t.key: t for t in run.tensors if t.key.role is Role.INPUT},
    )


def _passes_value_on(writer: Op, producer: OpKey) -> bool:
    """Whether the writer only passes on, in place, the output of the producer."""
    return writer.type in _VALUE_PRESERVING_TYPES and any(
        edge.op == producer for edge in writer.inputs
    )


def _evidence(run: Run, written: Tensor, read: Tensor | None) -> str:
    """Whether the value that was read is the one that was written."""
    if read is None or (read.dtype, read.shape) != (written.dtype, written.shape):
        return ""
    try:
        is_same = run.values(written).tobytes() == run.values(read).tobytes()
    except SyncpointError:
        return ""
    if is_same:
        return "; what was read is still what was written"
    return "; what was read is not what was written"
