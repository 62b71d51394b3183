"""Opens an .aimodelintermediates folder: its entries become the ops and tensors of a run."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from pathlib import Path

from syncpoint.dumps.aimodelintermediates.folder_writer import METADATA
from syncpoint.dumps.aimodelintermediates.metadata_json import (
    Listed,
    coreai_outputs,
    listed,
    read_metadata,
)
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import Facts, parse_facts, parse_run_facts
from syncpoint.dumps.aimodelintermediates.widened_values import (
    NarrowingStore,
    check_fits,
    labelled_dtype,
)
from syncpoint.dumps.array_store import Lay
from syncpoint.dumps.named_arrays import Entry
from syncpoint.dumps.npy_header import npy_entry
from syncpoint.errors import FormatError, describe_error
from syncpoint.run.dtypes import DTYPES, DType
from syncpoint.run.model import Kept, Op, OpKey, Role, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.reader import Run
from syncpoint.run.storage.record_json import parse_record

_BUILT_IN = re.compile(r"<built-in function (\w+)>")


_UNPLACED = (
    "the file does not say which model output is which; they are compared as the ops that made them"
)
NAME = "aimodelintermediates"


def open_folder(path: Path) -> Run:
    """Open the folder at `path`, or the one of the metadata.json at `path`."""
    metadata = path / METADATA if path.is_dir() else path
    body = read_metadata(metadata)
    reading = RunBuilder(metadata)
    info = RunInfo(model=metadata.parent.name, runtime="torch", options={"format": NAME})
    if "syncpoint" in body:
        info = parse_record(parse_run_facts, body["syncpoint"], str(metadata))
    mapped = coreai_outputs(body, metadata)
    entries, ordered = listed(body, metadata)
    for entry in entries:
        reading.add(entry, mapped.get(entry.name, []))
    reading.check_names(entries)
    if reading.unplaced(entries, ordered):
        info = replace(info, notes=(*info.notes, _UNPLACED))
    return reading.run(info, metadata.parent)


class RunBuilder:
    """A run as it is put together, entry by entry."""

    def __init__(self, metadata: Path) -> None:
        self._where = metadata
        self._root = metadata.parent
        self._ops: dict[OpKey, Op] = {}
        self._tensors: dict[TensorKey, Tensor] = {}
        self._odd: dict[TensorKey, Lay] = {}
        self._stored: dict[TensorKey, DType] = {}
        self._facts = 0
        self._same: list[tuple[Listed, str]] = []

    def add(self, entry: Listed, mapped: list[list[int]]) -> None:
        """One entry: what it is, and where its values lie."""
        where = f"{entry.name[:80]!r} of {self._where}"
        array, lay = self._array(entry, where)
        dtype = labelled_dtype(entry.torch_dtype, array.dtype, where)
        if entry.facts is None:
            self._plain(entry, array, lay, dtype, mapped)
            return

        def parse(body: object) -> Facts:
            return parse_facts(body, dtype, array.shape)

        facts = parse_record(parse, entry.facts, where)
        self._facts += 1
        if facts.tensor is None:
            self._same.append((entry, facts.same_as))
            return
        if facts.op is not None:
            self._op(facts.op)
        true = DTYPES[facts.tensor.dtype]
        check_fits(true, array.dtype, where)
        for tensor in (facts.tensor, *facts.also):
            self._tensor(tensor, array, lay)

    def check_names(self, entries: list[Listed]) -> None:
        """What is said to be only another name must be of the same file, or a value is hidden."""
        files = {entry.name: entry.file for entry in entries}
        for entry, other in self._same:
            if files.get(other) != entry.file or other == entry.name:
                raise FormatError(
                    f"{entry.name[:80]!r} of {self._where} to be another name of an entry",
                    f"{other[:80]!r}, which is not in the same file",
                )

    def unplaced(self, entries: list[Listed], ordered: bool) -> bool:
        """Give the role of a model output where it is certain; whether it is not.

        Outputs stand in the order of execution, new values of buffers are among them, and what
        the filter dropped is not. Only one output that was also computed last is certain.
        """
        outputs = [entry for entry in entries if entry.category == "outputs"]
        if self._facts or not outputs:
            return False
        if len(outputs) > 1 or outputs[0] is not entries[-1] or not ordered:
            return True
        made = self._tensors[TensorKey(OpKey(outputs[0].name))]
        key = TensorKey(made.key.op, Role.MODEL_OUTPUT)
        self._tensors[key] = replace_fields(made, key=key, alias_of=str(made.key))
        if made.key in self._odd:
            self._odd[key] = self._odd[made.key]
        if made.key in self._stored:
            self._stored[key] = self._stored[made.key]
        return False

    def run(self, info: RunInfo, path: Path) -> Run:
        """What was put together."""
        store = NarrowingStore(self._root, self._odd, self._stored)
        return Run(info, list(self._ops.values()), list(self._tensors.values()), store, path=path)

    def _array(self, entry: Listed, where: str) -> tuple[Entry, Lay | None]:
        try:
            array, lay = npy_entry(self._root, entry.file)
        except (ValueError, RuntimeError, OSError) as error:  # names that no file can have
            raise FormatError(
                f"a file that can be read for {where}", describe_error(error)
            ) from error
        if entry.shape is not None and entry.shape != list(array.shape):
            raise FormatError(
                f"shape {str(entry.shape)[:80]} for {where}, as its metadata says",
                f"{list(array.shape)} in {entry.file}",
            )
        if entry.numel is not None and entry.numel != prod(array.shape):
            raise FormatError(
                f"{str(entry.numel)[:40]} elements for {where}", f"{prod(array.shape)} in the file"
            )
        return array, lay

    def _plain(
        self,
        entry: Listed,
        array: Entry,
        lay: Lay | None,
        dtype: DType,
        mapped: list[list[int]],
    ) -> None:
        """An entry of Apple's own."""
        role, key, name = Role.OUTPUT, OpKey(entry.name), ""
        if entry.category == "inputs":
            role, name = Role.MODEL_INPUT, entry.name
        elif entry.node_op == "get_attr":
            # Runs know parameters by the path a user knows; two nodes may fetch one of them.
            role = Role.PARAMETER
            dotted = OpKey(entry.node_target or entry.name)
            if TensorKey(dotted, role) not in self._tensors:
                key = dotted
        else:
            kind = _BUILT_IN.fullmatch(entry.node_target)
            self._op(
                Op(
                    key,
                    kind[1] if kind else entry.node_target,
                    attributes={"coreai_outputs": mapped} if mapped else {},
                    origins=(entry.name,),
                )
            )
        self._tensor(Tensor(TensorKey(key, role), dtype.name, array.shape, name=name), array, lay)

    def _op(self, op: Op) -> None:
        if op.key in self._ops:
            raise FormatError(f"each op once in {self._where}", f"{str(op.key)[:80]} twice")
        self._ops[op.key] = op

    def _tensor(self, tensor: Tensor, array: Entry, lay: Lay | None) -> None:
        if tensor.key in self._tensors:
            raise FormatError(f"each tensor once in {self._where}", f"{str(tensor.key)[:80]} twice")
        dtype = DTYPES[tensor.dtype]
        self._tensors[tensor.key] = replace_fields(
            tensor,
            kept=Kept.VALUES,
            shard=array.file,
            offset=array.offset,
            nbytes=dtype.nbytes(tensor.count),
        )
        if lay is not None:
            self._odd[tensor.key] = lay
        if dtype is not array.dtype:
            self._stored[tensor.key] = array.dtype
