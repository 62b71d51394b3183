"""Write an `.aimodelintermediates` folder: arrays, entries, unique names, values shared by outputs;
saves a run, appears when complete."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.aimodelintermediates.syncpoint_keys import (
    KEY,
    make_entry_facts,
    make_run_facts,
)
from syncpoint.dumps.aimodelintermediates.widened_values import (
    storage_dtype,
    torch_dtype_name,
    widen,
)
from syncpoint.dumps.npy_header import make_header
from syncpoint.errors import InputError
from syncpoint.files.outputs import partial_folder
from syncpoint.files.write_errors import write_errors
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Op, OpKey, Role, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.storage.record_json import to_plain_json

SUFFIX = ".aimodelintermediates"
METADATA = "metadata.json"
CATEGORIES = ("inputs", "outputs", "intermediates")
_DATA = "data"
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+")
_MAX_NAME_CHARACTERS = 150

_WINDOW_ELEMENTS = 1 << 22
_NODE_OPS = {Role.MODEL_INPUT: "placeholder", Role.PARAMETER: "get_attr"}
_CATEGORIES = {Role.MODEL_INPUT: "inputs", Role.MODEL_OUTPUT: "outputs", Role.STATE: "outputs"}


class IntermediatesWriter:
    """Writes one folder, which has a temporary name until `finish`."""

    def __init__(self, path: Path) -> None:
        """Create the temporary folder; a `path` that exists is an InputError."""
        self.path = path
        self._entries: dict[str, dict[str, Any]] = {category: {} for category in CATEGORIES}
        self._number = 0
        _check_new(path)
        with write_errors(path):
            self._folder = partial_folder(path)
            self._partial = self._folder.path
            try:
                (self._partial / _DATA).mkdir()
            except OSError:
                self._folder.discard()
                raise

    def __enter__(self) -> IntermediatesWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.discard()  # does nothing after `finish`

    def __contains__(self, name: str) -> bool:
        return any(name in entries for entries in self._entries.values())

    def reserve_file(self, name: str) -> str:
        """Return the next file for a value of `name`; it counts even if it is not written."""
        stem = _NOT_IN_FILE_NAMES.sub("_", name)[:_MAX_NAME_CHARACTERS]
        self._number += 1
        return f"{_DATA}/{stem}_{self._number - 1:04d}.npy"

    def write_array(self, file: str, array: NDArray[Any]) -> None:
        """Write an array in its own memory order."""
        with write_errors(self.path), (self._partial / file).open("xb") as opened:
            np.save(opened, array, allow_pickle=False)

    def write_pieces(self, file: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a header and values that come in pieces."""
        with write_errors(self.path), (self._partial / file).open("xb") as opened:
            for piece in pieces:
                opened.write(piece)

    def add_entry(
        self,
        category: str,
        name: str,
        op: str,
        target: str,
        file: str,
        shape: tuple[int, ...],
        dtype: str,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a file in the metadata, with the keys in the order of Apple's tools."""
        body: dict[str, Any] = {
            "node_name": name,
            "node_op": op,
            "node_target": target,
            "data_file": file,
            "shape": list(shape),
            "torch_dtype": dtype,
            "numel": int(np.prod(shape, dtype=object)),
        }
        if facts:
            body[KEY] = facts
        self._entries[category][name] = body

    def finish(
        self, mappings: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the metadata and give the folder its name; returns the path of the metadata."""
        body: dict[str, Any] = dict(self._entries)
        if mappings is not None:
            body["mappings"] = mappings
        if facts is not None:
            body[KEY] = facts
        text = json.dumps(body, indent=2, default=to_plain_json)
        with write_errors(self.path):
            (self._partial / METADATA).write_text(text, encoding="ascii")
            self._folder.publish(new=True)
        return self.path / METADATA


def _check_new(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(f"{path} already exists", cure="choose another name")


def save_run(run: Run, path: Path) -> None:
    """Write every tensor that has values, in the order of the run."""
    tensors = [tensor for tensor in run.tensors if tensor.kept is Kept.VALUES]
    if not tensors:
        raise InputError("the run has no recorded values", cure="record it with --record values")
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
