"""A folder of dump files of an Ascend device: one op a file, its inputs and outputs as tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from syncpoint.dumps.ascend.device_file import Block, DeviceFile, read_device_file
from syncpoint.dumps.ascend.device_store import DeviceStore
from syncpoint.dumps.ascend.device_types import (
    UNDEFINED,
    Stored,
    format_name,
    layout,
    stored_type,
)
from syncpoint.dumps.ascend.file_names import (
    NOT_DUMPS,
    DeviceName,
    device_name,
    escaped,
    full_name,
    is_hashed,
    read_mapping,
)
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.run.files import folder, inside
from syncpoint.run.model import Op, OpKey, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run

_TRIED = 32
"""Files whose headers are looked at to recognise a folder."""
_SHOWN = 3
"""Names that a note gives as examples."""
_MAX_COUNT = 1 << 60


class DeviceFolder:
    """Dump files of a device, in the order of their timestamps."""

    API = API
    name = "ascend"

    def sniff(self, path: Path) -> bool:
        """A folder with a file that is named and begins as a device's dump, or one such file."""
        try:
            if path.is_file():
                return device_name(path.name) is not None and _plausible(path.parent, path.name)
            if not path.is_dir():
                return False
            listed = listing(path)
            names = (n for n, full in listed.files.items() if device_name(full) is not None)
            return any(_plausible(path, name) for name in islice(names, _TRIED))
        except (OSError, FormatError):
            return False

    def open(self, path: Path) -> Run:
        """Reads the headers only. A file that cannot be used is an op with its damage named."""
        if path.is_file():
            root, listed = path.parent, Listing({path.name: path.name})
        else:
            root = folder(path, "a folder of device dumps")
            listed = listing(root)
        found = [_read(root, file, name) for file, name in _devices(listed)]
        if not found:
            raise InputError(
                f"files named TYPE.OP.TASK.STREAM.TIME in {path}",
                listed.summary() or "an empty folder",
                "check the path",
            )
        found.sort(key=lambda f: (f.name.timestamp, f.op, f.file))
        ops: list[Op] = []
        tensors: list[Tensor] = []
        decoded: dict[TensorKey, Stored] = {}
        for call, one in numbered(found):
            key = OpKey(one.op, call)
            whole, damage = _tensors(key, one)
            ops.append(Op(key, one.name.type, attributes=_attributes(one, damage)))
            tensors += whole
            decoded |= _decoded(key, one, whole)
        notes = listed.notes + _repeats(ops)
        info = RunInfo(
            model=path.name, runtime="ascend", options={"format": self.name}, notes=tuple(notes)
        )
        return Run(info, ops, tensors, DeviceStore(root, decoded), path=path)


@dataclass
class Listing:
    """The files of a folder, each with the name it would have if that were not too long."""

    files: dict[str, str]
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def skip(self, names: Sequence[str], why: str) -> None:
        """Say in a note that these files are not read."""
        if names:
            self.skipped += names
            self.notes.append(f"{_files(names)} not read: {why}")

    def summary(self) -> str:
        """What there is instead, in a few words."""
        return f"others, such as {self.skipped[0]}" if self.skipped else ""


def listing(root: Path) -> Listing:
    """The files of a folder in the order of their names; links that lead out are among them."""
    names, odd, folders = [], [], 0
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name in NOT_DUMPS:
                continue
            if _is_folder(entry):
                folders += 1
            elif entry.name.isprintable():
                names.append(entry.name)
            else:
                odd.append(ascii(entry.name))
    notes = []
    mapping: Mapping[str, str] = {}
    try:
        mapping = read_mapping(root)
    except FormatError as error:
        notes.append(f"mapping.csv is not used: {error}")
    if folders:
        notes.append(f"{folders} folder{'s' * (folders > 1)} inside not searched")
    found = Listing({n: full_name(n, mapping) for n in sorted(names)}, notes)
    found.skip(odd, "their names are no text")
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere or in circles
        return False


def _devices(listed: Listing) -> Iterable[tuple[str, DeviceName]]:
    found, unnamed, other = [], [], []
    for file, full in listed.files.items():
        name = device_name(full)
        if name is not None:
            found.append((file, name))
        elif is_hashed(file) and full == file:
            unnamed.append(file)
        else:
            other.append(file)
    listed.skip(other, "the name is not TYPE.OP.TASK.STREAM.TIME")
    listed.skip(unnamed, "mapping.csv has no name for it")
    return found


def _files(names: Sequence[str]) -> str:
    shown = ", ".join(n if len(n) <= 80 else n[:77] + "..." for n in names[:_SHOWN])
    if len(names) > _SHOWN:
        shown += ", ..."
    return f"{len(names)} file{'s' * (len(names) > 1)} ({shown})"


def _plausible(root: Path, name: str) -> bool:
    try:
        return bool(read_device_file(inside(root, name)).blocks)
    except FormatError:
        return False


@dataclass(frozen=True)
class Found:
    """One file of the folder."""

    file: str
    name: DeviceName
    op: str
    header: DeviceFile
    damage: str = ""


def _read(root: Path, file: str, name: DeviceName) -> Found:
    try:
        header = read_device_file(inside(root, file))
    except FormatError as error:
        return Found(file, name, name.op, DeviceFile(0), str(error))
    return Found(file, name, _op_name(header.op_name, name), header)


def _op_name(said: str, name: DeviceName) -> str:
    """The name in the header where it is the one that the file's name was made from."""
    whole = name.op if name.slice is None else f"{name.op}_lxslice{name.slice}"
    if said and said.isprintable() and escaped(said) in (name.op, whole):
        return said if escaped(said) == name.op else said.removesuffix(f"_lxslice{name.slice}")
    return name.op


def numbered(found: Sequence[Found]) -> Iterable[tuple[int, Found]]:
    """Each file with the number of files of its op that came before it."""
    calls: dict[str, int] = {}
    for one in found:
        call = calls.get(one.op, 0)
        calls[one.op] = call + 1
        yield call, one


def _tensors(key: OpKey, one: Found) -> tuple[list[Tensor], str]:
    """The tensors of a file that are whole, and what is wrong with the others."""
    whole: list[Tensor] = []
    damage = [one.damage] if one.damage else []
    for block in one.header.blocks:
        made = _tensor(key, one, block)
        if isinstance(made, Tensor):
            whole.append(made)
        else:
            damage.append(f"{block.role} {block.index}: {made}")
    more = f"; and {len(damage) - _SHOWN} more" if len(damage) > _SHOWN else ""
    return whole, "; ".join(damage[:_SHOWN]) + more


def _tensor(key: OpKey, one: Found, block: Block) -> Tensor | str:
    """The tensor of a block, or why there is none."""
    if block.offset + block.size > one.header.size:
        return f"{block.size} bytes at {block.offset} of a file of {one.header.size}"
    shape, stored = block.shape, stored_type(block.data_type)
    if block.data_type == UNDEFINED:
        shape = (block.size,)  # nobody said how many bytes make an element
    if len(shape) > 64 or prod(d for d in shape if d) > _MAX_COUNT:
        return "a shape that no machine can hold"
    if not stored.dtype:
        return f"elements of type {stored.name} cannot be read"
    nbytes = stored.nbytes(prod(shape))
    if nbytes > block.size:
        wanted = f"{'x'.join(map(str, shape)) or 'a scalar'} of {stored.name}"
        return f"{block.size} bytes for {wanted}, which takes {nbytes}"
    return Tensor(
        TensorKey(key, block.role, block.index),
        stored.dtype,
        shape,
        layout=layout(block.format) if block.data_type != UNDEFINED else "",
        address=block.address or None,
        shard=one.file,
        offset=block.offset,
        nbytes=nbytes,
    )


def _decoded(key: OpKey, one: Found, whole: Sequence[Tensor]) -> dict[TensorKey, Stored]:
    """The tensors whose elements are not used as they lie."""
    keys = {tensor.key for tensor in whole}
    types = ((TensorKey(key, b.role, b.index), stored_type(b.data_type)) for b in one.header.blocks)
    return {k: stored for k, stored in types if k in keys and stored.decode is not None}


def _attributes(one: Found, damage: str) -> dict[str, Any]:
    name, header = one.name, one.header
    said: dict[str, Any] = {
        "file": one.file,
        "timestamp": name.timestamp,
        "task": name.task,
        "stream": name.stream,
        "escaped": name.op,
    }
    optional = {
        "task_type": name.task_type,
        "context": name.context,
        "thread": name.thread,
        "device": name.device,
        "slice": name.slice,
        "unused_bytes": header.unused or None,
        "damage": damage or None,
    }
    said |= {n: v for n, v in optional.items() if v is not None}
    for title, role in (("inputs", Role.INPUT), ("outputs", Role.OUTPUT)):
        said[title] = [_block_facts(b) for b in header.blocks if b.role is role]
    if header.attr:
        said["attr"] = header.attr
    return said | header.facts


def _block_facts(block: Block) -> dict[str, Any]:
    return {
        "format": format_name(block.format),
        "shape": list(block.shape),
        "original_shape": list(block.original_shape),
        "sub_format": block.sub_format,
        "address": block.address,
        "data_type": block.data_type,
        "stored_type": stored_type(block.data_type).name,
        "size": block.size,
    } | block.facts


def _repeats(ops: Sequence[Op]) -> list[str]:
    again = {op.key.op: op.key.call + 1 for op in ops if op.key.call}
    if not again:
        return []
    shown = ", ".join(f"{name} {count} times" for name, count in islice(again.items(), _SHOWN))
    more = ", ..." if len(again) > _SHOWN else ""
    return [f"executed more than once, the last being the latest: {shown}{more}"]
