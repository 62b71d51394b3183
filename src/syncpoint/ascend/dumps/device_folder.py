"""A folder of dump files of an Ascend device: one op a file, its inputs and outputs as tensors."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.batch_tree import Leaf, is_tree, leaves
from syncpoint.ascend.dumps.device_facts import block_facts
from syncpoint.ascend.dumps.device_file import read_device_file
from syncpoint.ascend.dumps.device_header import MAX_DIMS, Block, DeviceFile
from syncpoint.ascend.dumps.device_store import DeviceStore, Pieces
from syncpoint.ascend.dumps.device_types import (
    UNDEFINED,
    Stored,
    layout,
    stored_type,
)
from syncpoint.ascend.dumps.ffts_slices import Apart, Whole, put_together, slice_count
from syncpoint.ascend.dumps.file_names import DeviceName, device_name, escaped, is_hashed
from syncpoint.ascend.dumps.folder_files import SHOWN, UNREADABLE, Listing, damage_note, listing
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.untrusted_files import path_inside, require_folder
from syncpoint.run.model import Op, OpKey, Role, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.reader import Run

_TRIED = 32
"""Files whose headers are looked at to recognise a folder."""
_MAX_COUNT = 1 << 60


class DeviceFolder:
    """Dump files of a device, in the order of their timestamps."""

    API = API
    name = "ascend"
    priority = 500

    def sniff(self, path: Path) -> bool:
        """A folder with a file that is named and begins as a device's dump, or one such file."""
        try:
            if path.is_file():
                return device_name(path.name) is not None and _plausible(path.parent, path.name)
            if not path.is_dir():
                return False
            if is_tree(path):
                return True
            listed = listing(path)
            names = (n for n, full in listed.files.items() if device_name(full) is not None)
            return any(_plausible(path, name) for name in islice(names, _TRIED))
        except (OSError, FormatError):
            return False

    def open(self, path: Path) -> Run:
        """Reads the headers only. A file that cannot be used is an op with its damage named."""
        return open_device_folder(path)


def open_device_folder(
    path: Path, *, read_elsewhere: Container[str] = (), note_repeats: bool = True
) -> Run:
    """The ops of a folder, or of one file. Files in `read_elsewhere` are the caller's, and no note
    says that they are not read; `note_repeats`: whether one names ops that were executed again."""
    model = path.name
    if path.is_file():
        root, listed = path.parent, Listing({path.name: path.name})
    else:
        leaf = _leaf(path)
        if leaf is not None:
            path, model = leaf.path, leaf.model
        root = require_folder(path, "a folder of device dumps")
        listed = listing(root)
    found = [_read(root, file, name) for file, name in _devices(listed, read_elsewhere)]
    if not found:
        raise InputError(
            f"files named TYPE.OP.TASK.STREAM.TIME in {path}",
            listed.summary() or "an empty folder",
            "check the path",
        )
    found = _adopted(found)
    found.sort(key=_order)
    united, apart = _united(found)
    united.sort(key=_order)
    ops: list[Op] = []
    made = _Made()
    for call, one in _numbered(united):
        key = OpKey(one.op, call, path=one.path)
        damage = made.add(key, one)
        ops.append(Op(key, one.name.type, attributes=_attributes(one, damage)))
    repeats = _repeats(ops) if note_repeats else []
    info = RunInfo(
        model=model,
        runtime="ascend",
        options={"format": DeviceFolder.name},
        notes=(*listed.notes, *apart, *damage_note(ops), *repeats),
    )
    store = DeviceStore(root, made.decoded, made.pieces)
    return Run(info, ops, made.tensors, store, path=path)


def file_run(path: Path, name: DeviceName) -> Run:
    """The tensors of one file under the name that it is known to have; damage is a FormatError."""
    made, key = _Made(), OpKey(name.op)
    damage = made.add(
        key, Found(file=path.name, name=name, op=name.op, header=read_device_file(path))
    )
    if damage.words:
        raise FormatError(f"tensors that can be read in {path.name}", damage.words)
    op = Op(key, name.type)
    return Run(RunInfo(), [op], made.tensors, DeviceStore(path.parent, made.decoded, {}), path=path)


def _leaf(path: Path) -> Leaf | None:
    """The folder with the files of a tree that has one; of several the user must choose."""
    if not is_tree(path):
        return None
    found = leaves(path)
    if len(found) > 1:
        names = ", ".join(leaf.name for leaf in found[:SHOWN])
        raise InputError(
            f"the dump of one step at {path}",
            f"{len(found)} folders ({names}{', ...' if len(found) > SHOWN else ''})",
            "name one of them",
        )
    return found[0]


def _order(one: Found) -> tuple[int, str, str]:
    return (one.timestamp, one.op, one.file)


def _devices(listed: Listing, read_elsewhere: Container[str]) -> Iterable[tuple[str, DeviceName]]:
    found, unnamed, other = [], [], []
    for file, full in listed.files.items():
        name = device_name(full)
        if name is not None:
            found.append((file, name))
        elif is_hashed(file) and full == file:
            unnamed.append(file)
        elif file not in read_elsewhere:
            other.append(file)
    listed.skip(other, "the name is not TYPE.OP.TASK.STREAM.TIME")
    listed.skip(unnamed, "mapping.csv has no name for it")
    return found


def _plausible(root: Path, name: str) -> bool:
    try:
        return bool(read_device_file(path_inside(root, name)).blocks)
    except FormatError:
        return False


@dataclass(frozen=True, kw_only=True)
class Found:
    """One op as it was found: a file, or several that are slices of it."""

    file: str
    name: DeviceName
    op: str
    header: DeviceFile
    damage: str = ""
    path: str = ""
    """Which thread it is of, where the threads of an op are not put together."""
    parts: tuple[Found, ...] = ()
    """The files of the slices."""
    wholes: tuple[Whole, ...] = ()
    """The tensors that the slices make up."""

    @property
    def timestamp(self) -> int:
        """When it was done."""
        return max((part.name.timestamp for part in self.parts), default=self.name.timestamp)


def _read(root: Path, file: str, name: DeviceName) -> Found:
    path = root / file
    try:
        # Names come from the folder itself, so only a link can lead out of it.
        header = read_device_file(path_inside(root, file) if path.is_symlink() else path)
    except FormatError as error:
        return Found(file=file, name=name, op=name.op, header=DeviceFile(size=0), damage=str(error))
    return Found(file=file, name=name, op=_op_name(header.op_name, name), header=header)


def _op_name(said: str, name: DeviceName) -> str:
    """The name in the header where it is the one that the file's name was made from."""
    whole = name.op if name.slice is None else f"{name.op}_lxslice{name.slice}"
    if said and said.isprintable() and escaped(said) in (name.op, whole):
        return said if escaped(said) == name.op else said.removesuffix(f"_lxslice{name.slice}")
    return name.op


def _adopted(found: Sequence[Found]) -> list[Found]:
    """Files whose headers cannot be read, under the name that other files of their op give it, so
    that an earlier execution does not pass for the latest."""
    said: dict[tuple[str, str], set[str]] = {}
    for one in found:
        if not one.damage:
            said.setdefault((one.name.type, one.name.op), set()).add(one.op)
    names = {key: next(iter(ops)) for key, ops in said.items() if len(ops) == 1}
    return [
        replace(one, op=names.get((one.name.type, one.name.op), one.op)) if one.damage else one
        for one in found
    ]


def _united(found: Sequence[Found]) -> tuple[list[Found], list[str]]:
    """The ops with their slices put together, and notes on those that stay apart."""
    ops: list[Found] = []
    notes: list[str] = []
    for slices in _executions(found):
        first = slices[0]
        cut = first.name.slice is not None
        try:
            if len(slices) == 1 and not cut and _is_all(first):
                ops.append(first)
                continue
            if any(one.damage for one in slices):
                raise Apart("a file is damaged")
            ordered = sorted(slices, key=_slice_number)
            if [_slice_number(one) for one in ordered] != list(range(len(ordered))):
                raise Apart("some are missing")
            wholes = put_together([one.header for one in ordered], cut)
            ops.append(replace(ordered[0], parts=tuple(ordered), wholes=tuple(wholes)))
        except Apart as error:
            ops += [_named_apart(one) for one in slices]
            notes.append(f"{len(slices)} slices of {first.op} are listed separately: {error}")
    return ops, notes


def _is_all(one: Found) -> bool:
    """Whether a file is all there is of its op."""
    return not _slice_number(one) and slice_count(one.header) == 1


def _executions(found: Sequence[Found]) -> Iterable[list[Found]]:
    """The files of each execution, in the order of time: one, or one a slice."""
    latest: dict[object, list[Found]] = {}
    executions = []
    for one in found:
        name = one.name
        key: object = (one.op, name.type, name.device)
        if name.slice is None:
            if name.thread is None:
                executions.append([one])
                continue
            key = (key, name.task, name.stream, name.context)
        slices = latest.get(key)
        if slices is None or _slice_number(one) in map(_slice_number, slices):
            slices = latest[key] = []
            executions.append(slices)
        slices.append(one)
    return executions


def _slice_number(one: Found) -> int:
    name = one.name
    return (name.thread or 0) if name.slice is None else name.slice


def _named_apart(one: Found) -> Found:
    """A slice under a name of its own, so that none passes for the whole op."""
    if one.name.slice is not None:
        return replace(one, op=f"{one.op}_lxslice{one.name.slice}")
    return replace(one, path=f"thread {one.name.thread}") if one.name.thread is not None else one


def _numbered(found: Sequence[Found]) -> Iterable[tuple[int, Found]]:
    """Each op with the number of those of its name that came before it."""
    calls: dict[tuple[str, str], int] = {}
    for one in found:
        call = calls.get((one.op, one.path), 0)
        calls[one.op, one.path] = call + 1
        yield call, one


@dataclass(frozen=True)
class _OpDamage:
    """What cannot be read of an op."""

    words: str = ""
    tensor: tuple[Role, int] | None = None
    """Role and number of the first tensor; None where the whole file is damaged."""


@dataclass
class _Made:
    """The tensors of a run in the making."""

    tensors: list[Tensor] = field(default_factory=list)
    decoded: dict[TensorKey, Stored] = field(default_factory=dict)
    pieces: dict[TensorKey, Pieces] = field(default_factory=dict)

    def add(self, key: OpKey, one: Found) -> _OpDamage:
        """Add the tensors of an op that are whole; what is wrong with the others."""
        damage = [one.damage] if one.damage else []
        first: tuple[Role, int] | None = None
        if one.parts:
            made: Iterable[tuple[Block, Tensor | str]] = (
                (whole.pieces[0].block, self._whole(key, one, whole)) for whole in one.wholes
            )
        else:
            made = ((block, _tensor(key, one, block)) for block in one.header.blocks)
        for block, tensor in made:
            if isinstance(tensor, str):
                damage.append(f"{block.role} {block.index}: {tensor}")
                first = first or (block.role, block.index)
                continue
            self.tensors.append(tensor)
            stored = stored_type(block.data_type)
            if stored.decode is not None:
                self.decoded[tensor.key] = stored
        more = f"; and {len(damage) - SHOWN} more" if len(damage) > SHOWN else ""
        return _OpDamage("; ".join(damage[:SHOWN]) + more, first)

    def _whole(self, key: OpKey, one: Found, whole: Whole) -> Tensor | str:
        placed = []
        for piece in whole.pieces:
            tensor = _tensor(key, one.parts[piece.part], piece.block)
            if isinstance(tensor, str):
                return f"of slice {piece.part}: {tensor}"
            placed.append((tensor, piece.start))
        first = placed[0][0]
        if len(placed) == 1:
            return first
        nbytes = stored_type(whole.pieces[0].block.data_type).nbytes(prod(whole.shape))
        self.pieces[first.key] = tuple(placed)
        return replace_fields(first, shape=whole.shape, nbytes=nbytes)


def _tensor(key: OpKey, one: Found, block: Block) -> Tensor | str:
    """The tensor of a block, or why there is none."""
    if block.offset + block.size > one.header.size:
        return f"{block.size} bytes at {block.offset} of a file of {one.header.size}"
    shape, stored = block.shape, stored_type(block.data_type)
    if block.data_type == UNDEFINED:
        shape = (block.size,)  # nobody said how many bytes make an element
    if len(shape) > MAX_DIMS or prod(d for d in shape if d) > _MAX_COUNT:
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


def _attributes(one: Found, damage: _OpDamage) -> dict[str, Any]:
    name, header = one.name, one.header
    said: dict[str, Any] = {
        "file": one.file,
        "timestamp": one.timestamp,
        "task": name.task,
        "stream": name.stream,
        "escaped": name.op,
    }
    optional: dict[str, Any] = {
        "op_name": header.op_name or None,
        "task_type": name.task_type,
        "context": name.context,
        "thread": name.thread,
        "device": name.device,
        "slice": name.slice,
        "unused_bytes": header.unused or None,
        "damage": damage.words or None,
        UNREADABLE: list(damage.tensor) if damage.tensor is not None else None,
    }
    if one.parts:
        optional |= {"thread": None, "context": None, "slice": None}
        optional |= {"slices": len(one.parts), "files": [part.file for part in one.parts]}
    said |= {n: v for n, v in optional.items() if v is not None}
    for title, role in (("inputs", Role.INPUT), ("outputs", Role.OUTPUT)):
        said[title] = [block_facts(b) for b in _blocks(one) if b.role is role]
    if header.attr:
        said["attr"] = header.attr
    return said | header.facts


def _blocks(one: Found) -> Iterable[Block]:
    """What is said of the tensors; of slices no original shape, as it is not that of the whole."""
    if not one.parts:
        return one.header.blocks
    first = ((whole, whole.pieces[0].block) for whole in one.wholes)
    return [replace(b, shape=w.shape, size=0, original_shape=()) for w, b in first]


def _repeats(ops: Sequence[Op]) -> list[str]:
    again = {op.key.op: op.key.call + 1 for op in ops if op.key.call}
    if not again:
        return []
    shown = ", ".join(f"{name} {count} times" for name, count in islice(again.items(), SHOWN))
    more = ", ..." if len(again) > SHOWN else ""
    return [f"executed more than once, the last being the latest: {shown}{more}"]
