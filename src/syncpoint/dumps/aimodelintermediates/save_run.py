"""Writes a run as an `.aimodelintermediates` folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from syncpoint.dumps.aimodelintermediates.folder_writer import IntermediatesWriter
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import make_entry_facts, make_run_facts
from syncpoint.dumps.aimodelintermediates.widened_values import (
    storage_dtype,
    torch_dtype_name,
    widen,
)
from syncpoint.dumps.npy_header import make_header
from syncpoint.errors import InputError
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, OpKey, Role, Tensor
from syncpoint.run.reader import Run

_WINDOW_ELEMENTS = 1 << 22
_NODE_OPS = {Role.MODEL_INPUT: "placeholder", Role.PARAMETER: "get_attr"}
_CATEGORIES = {Role.MODEL_INPUT: "inputs", Role.MODEL_OUTPUT: "outputs", Role.STATE: "outputs"}


def save_run(run: Run, path: Path) -> None:
    """Write every tensor that has values, in the order of the run."""
    tensors = [tensor for tensor in run.tensors if tensor.kept is Kept.VALUES]
    if not tensors:
        raise InputError("the run has no recorded values", cure="record it with values")
    outputs_by_key = _shared_outputs(tensors)
    shared = {output.key for outputs in outputs_by_key.values() for output in outputs}
    written_ops: set[OpKey] = set()
    with IntermediatesWriter(path) as writer:
        for tensor in tensors:
            if tensor.key in shared:
                continue
            op = run.op(tensor.key.op)
            outputs = outputs_by_key.get(str(tensor.key), [])
            writes_op = op is not None and op.key not in written_ops
            _save_tensor(run, writer, tensor, op, outputs, writes_op)
            written_ops.add(tensor.key.op)
        writer.finish(facts=make_run_facts(run.info))


def _save_tensor(
    run: Run,
    writer: IntermediatesWriter,
    tensor: Tensor,
    op: Op | None,
    outputs: list[Tensor],
    writes_op: bool,
) -> None:
    """Write a tensor, with the model outputs that share its values and, if asked, its op."""
    role, dtype = tensor.key.role, DTYPES[tensor.dtype]
    name = _unique_name(writer, tensor)
    file = writer.reserve_file(name)
    writer.write_pieces(file, _iter_pieces(run, tensor))
    target = op.type if op is not None and role not in _NODE_OPS else tensor.key.op.op
    category = _CATEGORIES.get(role, "outputs" if outputs else "intermediates")
    writer.add_entry(
        category,
        name,
        _NODE_OPS.get(role, "call_function"),
        target,
        file,
        tensor.shape,
        torch_dtype_name(dtype),
        make_entry_facts(tensor, op if writes_op else None, outputs),
    )


def _shared_outputs(tensors: list[Tensor]) -> dict[str, list[Tensor]]:
    """Model outputs that have the values of another tensor, by the text of its key."""
    tensor_by_key = {str(t.key): t for t in tensors if t.key.role is not Role.MODEL_OUTPUT}
    outputs: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        origin = tensor_by_key.get(tensor.alias_of)
        is_output = tensor.key.role is Role.MODEL_OUTPUT
        if is_output and origin is not None and _has_same_bits(tensor, origin):
            outputs.setdefault(tensor.alias_of, []).append(tensor)
    return outputs


def _has_same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors certainly hold the same bits."""
    if (a.dtype, a.shape, a.quantization) != (b.dtype, b.shape, b.quantization):
        return False
    if a.digest and a.digest_kind == b.digest_kind:
        return a.digest == b.digest
    return bool(a.shard) and (a.shard, a.offset) == (b.shard, b.offset)


def _unique_name(writer: IntermediatesWriter, tensor: Tensor) -> str:
    """Name a tensor as torch would name its node, or by its key; the name is made unique."""
    is_node = tensor.key.role in _NODE_OPS and not str(tensor.key.part)
    name = re.sub(r"\W+", "_", tensor.key.op.op) if is_node else str(tensor.key)
    while name in writer:
        name += "~"
    return name


def _iter_pieces(run: Run, tensor: Tensor) -> Iterator[bytes | memoryview]:
    dtype = DTYPES[tensor.dtype]
    stored = storage_dtype(dtype)
    yield make_header(stored, tensor.shape)
    for start in range(0, tensor.count, _WINDOW_ELEMENTS):
        values = run.window(tensor, start, min(start + _WINDOW_ELEMENTS, tensor.count))
        yield to_bytes(widen(values, dtype), stored).data
