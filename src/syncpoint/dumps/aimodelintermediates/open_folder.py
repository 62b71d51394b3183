"""Build a run from an `.aimodelintermediates` folder: entries become ops, tensors and model outputs
(the last one computed, if only one can be)."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from pathlib import Path

from syncpoint.dumps.aimodelintermediates.metadata_json import (
    MetadataEntry,
    list_entries,
    parse_coreai_outputs,
    read_metadata,
)
from syncpoint.dumps.aimodelintermediates.save_folder import METADATA
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import (
    EntryFacts,
    parse_entry_facts,
    parse_run_facts,
)
from syncpoint.dumps.aimodelintermediates.widened_values import (
    NarrowingStore,
    check_fits_storage,
    parse_torch_dtype,
)
from syncpoint.dumps.array_store import StoredLayout
from syncpoint.dumps.named_arrays import ArrayEntry
from syncpoint.dumps.npy_header import read_npy_entry
from syncpoint.errors import FormatError, describe_error
from syncpoint.run.dtypes import DTYPES, DType
from syncpoint.run.model import Kept, Op, OpKey, Role, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.reader import Run
from syncpoint.run.storage.record_json import parse_record

_BUILT_IN = re.compile(r"<built-in function (\w+)>")
_UNNUMBERED_OUTPUTS = (
    "the file does not say which model output is which;"
    " they are compared as outputs of the ops that computed them"
)
_CURE = "create the .aimodelintermediates folder again"
NAME = "aimodelintermediates"


def open_folder(path: Path) -> Run:
    """Open the folder at `path`, or that of the metadata.json at `path`, as a run."""
    metadata = path / METADATA if path.is_dir() else path
    body = read_metadata(metadata)
    builder = RunBuilder(metadata)
    info = RunInfo(model=metadata.parent.name, runtime="torch", options={"format": NAME})
    if "syncpoint" in body:
        info = parse_record(parse_run_facts, body["syncpoint"], str(metadata))
    coreai_outputs = parse_coreai_outputs(body, metadata)
    entries, is_ordered = list_entries(body, metadata)
    for entry in entries:
        builder.add_entry(entry, coreai_outputs.get(entry.name, []))
    builder.check_second_names(entries)
    if not builder.add_model_output(entries, is_ordered):
        info = replace(info, notes=(*info.notes, _UNNUMBERED_OUTPUTS))
    return builder.build(info, metadata.parent)


class RunBuilder:
    """Builds a run from the entries of a folder."""

    def __init__(self, metadata: Path) -> None:
        self._metadata = metadata
        self._root = metadata.parent
        self._ops: dict[OpKey, Op] = {}
        self._tensors: dict[TensorKey, Tensor] = {}
        self._layouts: dict[TensorKey, StoredLayout] = {}
        self._stored_dtypes: dict[TensorKey, DType] = {}
        """Element types of files that are not those of their tensors."""
        self._entries_with_facts = 0
        self._second_names: list[tuple[MetadataEntry, str]] = []
        """Entries that are another name of an entry, with its name."""

    def add_entry(self, entry: MetadataEntry, coreai_outputs: list[list[int]]) -> None:
        """Add the op and the tensors of one entry; `coreai_outputs` are those of its node."""
        where = f"{entry.name[:80]!r} of {self._metadata}"
        array, layout = self._read_array(entry, where)
        dtype = parse_torch_dtype(entry.torch_dtype, array.dtype, where)
        if entry.facts is None:
            self._add_apple_entry(entry, array, layout, dtype, coreai_outputs)
            return

        def parse(body: object) -> EntryFacts:
            return parse_entry_facts(body, dtype, array.shape)

        facts = parse_record(parse, entry.facts, where)
        self._entries_with_facts += 1
        if facts.tensor is None:
            self._second_names.append((entry, facts.same_as))
            return
        if facts.op is not None:
            self._add_op(facts.op)
        check_fits_storage(DTYPES[facts.tensor.dtype], array.dtype, where)
        for tensor in (facts.tensor, *facts.also):
            self._add_tensor(tensor, array, layout)

    def check_second_names(self, entries: list[MetadataEntry]) -> None:
        """Refuse an entry that claims to be another name of an entry with another file: its
        values would be hidden."""
        files = {entry.name: entry.file for entry in entries}
        for entry, other in self._second_names:
            if files.get(other) != entry.file or other == entry.name:
                raise FormatError(
                    f"{entry.name[:80]!r} of {self._metadata} is declared as another name of"
                    f" {other[:80]!r}, but the two have different files",
                    cure=_CURE,
                )

    def add_model_output(self, entries: list[MetadataEntry], is_ordered: bool) -> bool:
        """Add the role of a model output to the tensor that certainly is one.

        Returns False where the model outputs are not certain. They are listed in the order of
        execution, together with new values of buffers, and without those that a filter dropped.
        So only a single output that was also computed last is certain.
        """
        outputs = [entry for entry in entries if entry.category == "outputs"]
        if self._entries_with_facts or not outputs:
            return True
        if len(outputs) > 1 or outputs[0] is not entries[-1] or not is_ordered:
            return False
        tensor = self._tensors[TensorKey(OpKey(outputs[0].name))]
        key = TensorKey(tensor.key.op, Role.MODEL_OUTPUT)
        self._tensors[key] = replace_fields(tensor, key=key, alias_of=str(tensor.key))
        if tensor.key in self._layouts:
            self._layouts[key] = self._layouts[tensor.key]
        if tensor.key in self._stored_dtypes:
            self._stored_dtypes[key] = self._stored_dtypes[tensor.key]
        return True

    def build(self, info: RunInfo, path: Path) -> Run:
        """Build the run of all entries that were added."""
        store = NarrowingStore(self._root, self._layouts, self._stored_dtypes)
        return Run(info, list(self._ops.values()), list(self._tensors.values()), store, path=path)

    def _read_array(
        self, entry: MetadataEntry, where: str
    ) -> tuple[ArrayEntry, StoredLayout | None]:
        try:
            array, layout = read_npy_entry(self._root, entry.file)
        except (ValueError, RuntimeError, OSError) as error:  # names that no file can have
            raise FormatError(
                f"cannot read the file of {where}: {describe_error(error)}", cure=_CURE
            ) from error
        if entry.shape is not None and entry.shape != list(array.shape):
            raise FormatError(
                f"the shape of {where} is {str(entry.shape)[:80]} in the metadata and"
                f" {list(array.shape)} in {entry.file}",
                cure=_CURE,
            )
        if entry.numel is not None and entry.numel != prod(array.shape):
            raise FormatError(
                f"{where} has {prod(array.shape)} elements in its file, but numel is"
                f" {str(entry.numel)[:40]}",
                cure=_CURE,
            )
        return array, layout

    def _add_apple_entry(
        self,
        entry: MetadataEntry,
        array: ArrayEntry,
        layout: StoredLayout | None,
        dtype: DType,
        coreai_outputs: list[list[int]],
    ) -> None:
        """Add an entry as Apple's tools write it."""
        role, key, name = Role.OUTPUT, OpKey(entry.name), ""
        if entry.category == "inputs":
            role, name = Role.MODEL_INPUT, entry.name
        elif entry.node_op == "get_attr":
            # Runs name parameters by their dotted path; two nodes may fetch one of them.
            role = Role.PARAMETER
            dotted = OpKey(entry.node_target or entry.name)
            if TensorKey(dotted, role) not in self._tensors:
                key = dotted
        else:
            kind = _BUILT_IN.fullmatch(entry.node_target)
            self._add_op(
                Op(
                    key,
                    kind[1] if kind else entry.node_target,
                    attributes={"coreai_outputs": coreai_outputs} if coreai_outputs else {},
                    origins=(entry.name,),
                )
            )
        tensor = Tensor(TensorKey(key, role), dtype.name, array.shape, name=name)
        self._add_tensor(tensor, array, layout)

    def _add_op(self, op: Op) -> None:
        if op.key in self._ops:
            raise FormatError(f"{self._metadata} has the op {str(op.key)[:80]} twice", cure=_CURE)
        self._ops[op.key] = op

    def _add_tensor(self, tensor: Tensor, array: ArrayEntry, layout: StoredLayout | None) -> None:
        if tensor.key in self._tensors:
            raise FormatError(
                f"{self._metadata} has the tensor {str(tensor.key)[:80]} twice", cure=_CURE
            )
        dtype = DTYPES[tensor.dtype]
        self._tensors[tensor.key] = replace_fields(
            tensor,
            kept=Kept.VALUES,
            shard=array.file,
            offset=array.offset,
            nbytes=dtype.nbytes(tensor.count),
        )
        if layout is not None:
            self._layouts[tensor.key] = layout
        if dtype is not array.dtype:
            self._stored_dtypes[tensor.key] = array.dtype
