"""A run written as an `.aimodelintermediates` folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from syncpoint.dumps.aimodelintermediates.folder_writer import IntermediatesWriter
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import entry_facts, run_facts
from syncpoint.dumps.aimodelintermediates.widened_values import stored_as, torch_name, widened
from syncpoint.dumps.npy_header import make_header
from syncpoint.errors import InputError
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, OpKey, Role, Tensor
from syncpoint.run.reader import Run

_WINDOW = 1 << 22
_KINDS = {Role.MODEL_INPUT: "placeholder", Role.PARAMETER: "get_attr"}
_CATEGORIES = {Role.MODEL_INPUT: "inputs", Role.MODEL_OUTPUT: "outputs", Role.STATE: "outputs"}


def save_run(run: Run, path: Path) -> None:
    """Every tensor that has values, in the order of the run."""
    tensors = [tensor for tensor in run.tensors if tensor.kept is Kept.VALUES]
    if not tensors:
        raise InputError("a run with recorded values", "none in it", "record it with values")
    also = _shared(tensors)
    placed = {other.key for others in also.values() for other in others}
    told: set[OpKey] = set()
    with IntermediatesWriter(path) as writer:
        for tensor in tensors:
            if tensor.key in placed:
                continue
            op = run.op(tensor.key.op)
            others = also.get(str(tensor.key), [])
            _save(run, writer, tensor, op, others, op is not None and op.key not in told)
            told.add(tensor.key.op)
        writer.finish(facts=run_facts(run.info))


def _save(
    run: Run,
    writer: IntermediatesWriter,
    tensor: Tensor,
    op: Op | None,
    others: list[Tensor],
    tells: bool,
) -> None:
    role, dtype = tensor.key.role, DTYPES[tensor.dtype]
    name = _name(writer, tensor)
    file = writer.reserve(name)
    writer.pieces(file, _pieces(run, tensor))
    target = op.type if op is not None and role not in _KINDS else tensor.key.op.op
    category = _CATEGORIES.get(role, "outputs" if others else "intermediates")
    writer.entry(
        category,
        name,
        _KINDS.get(role, "call_function"),
        target,
        file,
        tensor.shape,
        torch_name(dtype),
        entry_facts(tensor, op if tells else None, others),
    )


def _shared(tensors: list[Tensor]) -> dict[str, list[Tensor]]:
    """Model outputs by the text of the key of the tensor that they are."""
    made = {str(t.key): t for t in tensors if t.key.role is not Role.MODEL_OUTPUT}
    found: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        origin = made.get(tensor.alias_of)
        if tensor.key.role is Role.MODEL_OUTPUT and origin is not None and _same(tensor, origin):
            found.setdefault(tensor.alias_of, []).append(tensor)
    return found


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are known to hold the same bits."""
    if (one.dtype, one.shape, one.quantization) != (other.dtype, other.shape, other.quantization):
        return False
    if one.digest and one.digest_kind == other.digest_kind:
        return one.digest == other.digest
    return bool(one.shard) and (one.shard, one.offset) == (other.shard, other.offset)


def _name(writer: IntermediatesWriter, tensor: Tensor) -> str:
    """What torch would call the node, or the text of the key; made unique."""
    plain = tensor.key.role in _KINDS and not str(tensor.key.part)
    name = re.sub(r"\W+", "_", tensor.key.op.op) if plain else str(tensor.key)
    while name in writer:
        name += "~"
    return name


def _pieces(run: Run, tensor: Tensor) -> Iterator[bytes | memoryview]:
    dtype = DTYPES[tensor.dtype]
    stored = stored_as(dtype)
    yield make_header(stored, tensor.shape)
    for start in range(0, tensor.count, _WINDOW):
        values = run.window(tensor, start, min(start + _WINDOW, tensor.count))
        yield to_bytes(widened(values, dtype), stored).data
