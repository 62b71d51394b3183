"""One dump, or several of one job, put together as a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syncpoint.ascend.msprobe.dump_files import Dump, frames
from syncpoint.ascend.msprobe.edges import Entry, edges
from syncpoint.ascend.msprobe.entry_values import FIGURES, Leaf, leaves, statistics
from syncpoint.ascend.msprobe.names import Named, named
from syncpoint.ascend.msprobe.pt_file import Placed, place
from syncpoint.ascend.msprobe.store import PtStore
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
"""msProbe has summed bf16 as float32 in some versions and as it is in others."""


@dataclass(kw_only=True)
class Reading:
    """A run as it is put together, dump by dump."""

    root: Path
    ops: dict[OpKey, Op] = field(default_factory=dict)
    order: list[OpKey] = field(default_factory=list)
    tensors: dict[TensorKey, Tensor] = field(default_factory=dict)
    odd: dict[TensorKey, Placed] = field(default_factory=dict)
    broken: dict[TensorKey, SyncpointError] = field(default_factory=dict)
    checksums: dict[TensorKey, Checksum] = field(default_factory=dict)
    digests: dict[TensorKey, str] = field(default_factory=dict)
    """What dump.json says of tensors whose files have no checksum."""
    unknown: set[str] = field(default_factory=set)
    unsaved: int = 0

    def add(self, dump: Dump) -> None:
        """One dump. Ops that an earlier one had too keep the place and the facts they had."""
        part = Part(step=dump.place.step, rank=dump.place.rank)
        parents = {name: named(parent) for name, parent in dump.parents.items()}
        entries: list[Entry] = []
        made: list[Op] = []
        for name, body in dump.data.items():
            said = named(name)
            entry = Entry(OpKey(name), said, dump.parents.get(name, ""))
            found = list(leaves(body, said, f"{name[:120]!r} of {dump.place.path}"))
            for leaf in found:
                if leaf.is_tensor:
                    entry.tensors.append(self._tensor(dump, said, leaf, part))
                elif isinstance(leaf.body, dict) and "dtype" in leaf.body:
                    self.unknown.add(str(leaf.body["dtype"])[:40])
            entries.append(entry)
            made.append(_op(said, parents.get(name), found, dump.stacks.get(name, [])))
        last = -1
        at = {key: i for i, key in enumerate(self.order)}
        between: dict[int, list[OpKey]] = {}
        for op, reads in zip(made, edges(entries), strict=True):
            if op.key in self.ops:
                last = at[op.key]
            else:
                self.ops[op.key] = replace(op, inputs=reads)
                between.setdefault(last, []).append(op.key)
        merged = between.get(-1, [])
        for i, key in enumerate(self.order):
            merged += [key, *between.get(i, [])]
        self.order = merged

    def run(self, info: RunInfo, path: Path) -> Run:
        """What was put together."""
        store = PtStore(self.root, self.odd, self.broken, self.checksums, self.digests)
        ops = [self.ops[key] for key in self.order]
        return Run(info, ops, list(self.tensors.values()), store, path=path)

    def notes(self) -> list[str]:
        """What a reader of the results must know."""
        said = []
        if self.unsaved:
            said.append(
                f"{self.unsaved} tensors should have values, but their folder is not beside"
                " dump.json: compared by what dump.json says of them"
            )
        if self.unknown:
            types = ", ".join(sorted(self.unknown))
            said.append(f"tensors of types that are not known here are left out: {types}")
        return said

    def _tensor(self, dump: Dump, name: Named, leaf: Leaf, part: Part) -> Tensor:
        assert leaf.dtype is not None
        key = TensorKey(_owner(name, leaf), leaf.role, _index(leaf), part)
        if key in self.tensors:
            raise FormatError(f"each tensor once in {dump.place.path}", f"{str(key)[:120]} twice")
        grad = leaf.body.get("requires_grad")
        tensor = Tensor(
            key,
            leaf.dtype.name,
            leaf.shape,
            kept=Kept.STATISTICS,
            requires_grad=grad if isinstance(grad, bool) else None,
            statistics=statistics(leaf),
            name=f"{name.name}.{leaf.name}" if leaf.role is Role.INPUT else "",
        )
        digest = leaf.body.get("md5")
        if isinstance(digest, str) and digest:
            tensor = replace_fields(tensor, kept=Kept.DIGEST, digest=digest[:64], digest_kind=CRC32)
        file = leaf.body.get("data_name")
        if isinstance(file, str):
            if dump.values is None:
                self.unsaved += 1
            else:
                tensor = self._placed(dump.values, file, tensor)
        self.tensors[key] = tensor
        return tensor

    def _placed(self, folder: Path, file: str, tensor: Tensor) -> Tensor:
        """The tensor with its values; those that cannot be read are said to be so later."""
        try:
            path = folder / file
            # A plain name that is no link needs no closer look, which takes its time.
            plain = file not in ("", ".", "..") and not {"/", "\\", "\0"} & set(file)
            if not plain or path.is_symlink():
                path_inside(folder, file)
        except (ValueError, OSError, RuntimeError) as error:  # names that no file can have
            raise FormatError(
                f"the name of a file for {tensor.key}", describe_error(error)
            ) from error
        shard = path.relative_to(self.root).as_posix()
        tensor = replace_fields(tensor, kept=Kept.VALUES, shard=shard)
        try:
            found = place(path)
            if (found.dtype.name, found.shape) != (tensor.dtype, tensor.shape):
                raise FormatError(
                    f"{tensor.dtype} of shape {list(tensor.shape)} in {path}, as dump.json says",
                    f"{found.dtype} of shape {list(found.shape)}",
                )
        except SyncpointError as error:
            self.broken[tensor.key] = error
            return tensor
        if not found.dense:
            self.odd[tensor.key] = found
        if found.checksum is not None:
            self.checksums[tensor.key] = found.checksum
        elif tensor.digest:
            self.digests[tensor.key] = tensor.digest.lower()
        kind = _RAW_BF16 if tensor.dtype == "bf16" else CRC32
        # What dump.json says beside the values may be of the same numbers in another type.
        tensor = replace_fields(tensor, digest=found.crc32, digest_kind=kind if found.crc32 else "")
        nbytes = found.dtype.nbytes(tensor.count)
        return replace_fields(tensor, offset=found.offset, nbytes=nbytes)


def _owner(name: Named, leaf: Leaf) -> OpKey:
    """The op of a tensor; parameters are known by their path in the model, as in other runs."""
    if leaf.role is not Role.PARAMETER:
        return OpKey(name.name)
    parameter = leaf.name.removeprefix("parameters.")
    return OpKey(f"{name.path}.{parameter}" if name.path else parameter, name.call)


def _index(leaf: Leaf) -> int:
    return 0 if leaf.role is Role.PARAMETER else leaf.index


def _op(name: Named, parent: Named | None, found: Sequence[Leaf], stack: list[str]) -> Op:
    attributes: dict[str, Any] = {"values": [leaf.name for leaf in found]}
    if name.kind:
        attributes |= {"kind": name.kind, "call": name.call, "way": name.way}
    arguments = {leaf.name: leaf.body for leaf in found if not leaf.is_tensor}
    if arguments:
        attributes["arguments"] = arguments
    figures = {leaf.name: said for leaf in found if leaf.is_tensor and (said := _unsaid(leaf))}
    if figures:
        attributes["figures"] = figures
    if stack:
        attributes["stack"] = stack
    own = name.is_module
    return Op(
        OpKey(name.name),
        name.type,
        attributes=attributes,
        module=name.path if own else (parent.path if parent else ""),
        module_type=name.api if own else (parent.api if parent else ""),
        source=frames(stack),
    )


def _unsaid(leaf: Leaf) -> dict[str, Any]:
    """The figures of a tensor that are not plain finite numbers, which statistics cannot say."""
    said = {name: leaf.body[name] for name in FIGURES if name in leaf.body}
    plain = all(isinstance(v, float) and abs(v) < float("inf") for v in said.values())
    if plain and len(said) == len(FIGURES):
        return {}
    return {
        name: value if value is None or isinstance(value, bool | int) else str(value)
        for name, value in said.items()
    }
