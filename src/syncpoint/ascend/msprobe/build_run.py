"""Build a run from the entries of msProbe dumps (one, or several steps and ranks): ops, tensors,
edges, where values lie, figures that are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syncpoint.ascend.msprobe.dump_files import Dump, parse_frames
from syncpoint.ascend.msprobe.edges import Entry, trace_edges
from syncpoint.ascend.msprobe.entry_values import FIGURES, EntryValue, list_values, read_statistics
from syncpoint.ascend.msprobe.names import HookedName, parse_name
from syncpoint.ascend.msprobe.pt_file import PtStore, TensorLocation, locate_tensor
from syncpoint.errors import FormatError, SyncpointError, describe_error
from syncpoint.files.untrusted_files import path_inside
from syncpoint.run.model import (
    Kept,
    Op,
    OpKey,
    Part,
    Role,
    RunInfo,
    Tensor,
    TensorKey,
    replace_fields,
)
from syncpoint.run.reader import Run
from syncpoint.run.storage.tensor_checksums import Checksum

CRC32 = "crc32"
_RAW_BF16 = "crc32 of bf16"
"""Some versions of msProbe compute the digest of bf16 as float32, others of the stored bytes."""


@dataclass(kw_only=True)
class MsprobeRunBuilder:
    """Collects the ops and tensors of a run, dump by dump."""

    root: Path
    ops: dict[OpKey, Op] = field(default_factory=dict)
    order: list[OpKey] = field(default_factory=list)
    tensors: dict[TensorKey, Tensor] = field(default_factory=dict)
    odd: dict[TensorKey, TensorLocation] = field(default_factory=dict)
    broken: dict[TensorKey, SyncpointError] = field(default_factory=dict)
    checksums: dict[TensorKey, Checksum] = field(default_factory=dict)
    digests: dict[TensorKey, str] = field(default_factory=dict)
    """Digests from dump.json of tensors whose files have no checksum."""
    unknown: set[str] = field(default_factory=set)
    unsaved: int = 0

    def add(self, dump: Dump) -> None:
        """Add a dump. Ops that an earlier dump had keep their place and their facts."""
        part = Part(step=dump.place.step, rank=dump.place.rank)
        parents = {name: parse_name(parent) for name, parent in dump.parents.items()}
        entries: list[Entry] = []
        dump_ops: list[Op] = []
        for name, body in dump.data.items():
            hooked = parse_name(name)
            entry = Entry(OpKey(name), hooked, dump.parents.get(name, ""))
            values = list(list_values(body, hooked, f"{name[:120]!r} of {dump.place.path}"))
            for value in values:
                if value.is_tensor:
                    entry.tensors.append(self._tensor(dump, hooked, value, part))
                elif isinstance(value.body, dict) and "dtype" in value.body:
                    self.unknown.add(str(value.body["dtype"])[:40])
            entries.append(entry)
            dump_ops.append(_build_op(hooked, parents.get(name), values, dump.stacks.get(name, [])))
        last = -1
        position_by_op = {key: i for i, key in enumerate(self.order)}
        between: dict[int, list[OpKey]] = {}
        for op, reads in zip(dump_ops, trace_edges(entries), strict=True):
            if op.key in self.ops:
                last = position_by_op[op.key]
            else:
                self.ops[op.key] = replace(op, inputs=reads)
                between.setdefault(last, []).append(op.key)
        merged = between.get(-1, [])
        for i, key in enumerate(self.order):
            merged += [key, *between.get(i, [])]
        self.order = merged

    def run(self, info: RunInfo, path: Path) -> Run:
        """Return the run."""
        store = PtStore(self.root, self.odd, self.broken, self.checksums, self.digests)
        ops = [self.ops[key] for key in self.order]
        return Run(info, ops, list(self.tensors.values()), store, path=path)

    def notes(self) -> list[str]:
        """Return notes on what was not read."""
        notes = []
        if self.unsaved:
            notes.append(
                f"{self.unsaved} tensors have no values, because their folder is not beside"
                " dump.json: they are compared by the statistics in dump.json"
            )
        if self.unknown:
            types = ", ".join(sorted(self.unknown))
            notes.append(f"left out tensors of unknown types: {types}")
        return notes

    def _tensor(self, dump: Dump, name: HookedName, value: EntryValue, part: Part) -> Tensor:
        assert value.dtype is not None
        key = TensorKey(_owner(name, value), value.role, _index(value), part)
        if key in self.tensors:
            raise FormatError(
                f"{dump.place.path} lists {str(key)[:120]} twice", cure="dump it again"
            )
        grad = value.body.get("requires_grad")
        tensor = Tensor(
            key,
            value.dtype.name,
            value.shape,
            kept=Kept.STATISTICS,
            requires_grad=grad if isinstance(grad, bool) else None,
            statistics=read_statistics(value),
            name=f"{name.name}.{value.name}" if value.role is Role.INPUT else "",
        )
        digest = value.body.get("md5")
        if isinstance(digest, str) and digest:
            tensor = replace_fields(tensor, kept=Kept.DIGEST, digest=digest[:64], digest_kind=CRC32)
        file = value.body.get("data_name")
        if isinstance(file, str):
            if dump.values is None:
                self.unsaved += 1
            else:
                tensor = self._with_location(dump.values, file, tensor)
        self.tensors[key] = tensor
        return tensor

    def _with_location(self, folder: Path, file: str, tensor: Tensor) -> Tensor:
        """Add the location of its values to a tensor. An unreadable file is an error only when the
        values are read."""
        try:
            path = folder / file
            # A plain name that is not a link needs no check, which would be slow.
            plain = file not in ("", ".", "..") and not {"/", "\\", "\0"} & set(file)
            if not plain or path.is_symlink():
                path_inside(folder, file)
        except (ValueError, OSError, RuntimeError) as error:  # names that no file can have
            raise FormatError(
                f"the file name of {tensor.key} cannot be used: {describe_error(error)}",
                cure="dump it again",
            ) from error
        shard = path.relative_to(self.root).as_posix()
        tensor = replace_fields(tensor, kept=Kept.VALUES, shard=shard)
        try:
            location = locate_tensor(path)
            if (location.dtype.name, location.shape) != (tensor.dtype, tensor.shape):
                raise FormatError(
                    f"{path} holds {location.dtype} of shape {list(location.shape)}, but dump.json"
                    f" says {tensor.dtype} of shape {list(tensor.shape)}",
                    cure="dump it again",
                )
        except SyncpointError as error:
            self.broken[tensor.key] = error
            return tensor
        if not location.dense:
            self.odd[tensor.key] = location
        if location.checksum is not None:
            self.checksums[tensor.key] = location.checksum
        elif tensor.digest:
            self.digests[tensor.key] = tensor.digest.lower()
        kind = _RAW_BF16 if tensor.dtype == "bf16" else CRC32
        # The digest in dump.json may be of the same numbers in another type.
        tensor = replace_fields(
            tensor, digest=location.crc32, digest_kind=kind if location.crc32 else ""
        )
        nbytes = location.dtype.nbytes(tensor.count)
        return replace_fields(tensor, offset=location.offset, nbytes=nbytes)


def _owner(name: HookedName, value: EntryValue) -> OpKey:
    """Return the op of a tensor; parameters have their path in the model, as in other runs."""
    if value.role is not Role.PARAMETER:
        return OpKey(name.name)
    parameter = value.name.removeprefix("parameters.")
    return OpKey(f"{name.path}.{parameter}" if name.path else parameter, name.call)


def _index(value: EntryValue) -> int:
    return 0 if value.role is Role.PARAMETER else value.index


def _build_op(
    name: HookedName, parent: HookedName | None, values: Sequence[EntryValue], stack: list[str]
) -> Op:
    attributes: dict[str, Any] = {"values": [value.name for value in values]}
    if name.kind:
        attributes |= {"kind": name.kind, "call": name.call, "way": name.way}
    arguments = {value.name: value.body for value in values if not value.is_tensor}
    if arguments:
        attributes["arguments"] = arguments
    figures = {
        value.name: other
        for value in values
        if value.is_tensor and (other := _other_figures(value))
    }
    if figures:
        attributes["figures"] = figures
    if stack:
        attributes["stack"] = stack
    is_module = name.is_module
    return Op(
        OpKey(name.name),
        name.type,
        attributes=attributes,
        module=name.path if is_module else (parent.path if parent else ""),
        module_type=name.api if is_module else (parent.api if parent else ""),
        source=parse_frames(stack),
    )


def _other_figures(value: EntryValue) -> dict[str, Any]:
    """Return the figures of a tensor unless all are finite floats, which statistics hold."""
    figures = {name: value.body[name] for name in FIGURES if name in value.body}
    are_finite = all(isinstance(v, float) and abs(v) < float("inf") for v in figures.values())
    if are_finite and len(figures) == len(FIGURES):
        return {}
    return {
        name: number if number is None or isinstance(number, bool | int) else str(number)
        for name, number in figures.items()
    }
