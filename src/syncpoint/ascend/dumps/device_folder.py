"""Recognise and read a folder of device dump files as a run: one op a file, executions in order of
time, slices put together, damaged files noted."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.device_file import (
    MAX_DIMS,
    Block,
    DeviceFile,
    block_facts,
    read_device_file,
)
from syncpoint.ascend.dumps.device_store import DeviceStore, Pieces
from syncpoint.ascend.dumps.device_types import (
    UNDEFINED,
    StoredType,
    layout,
    stored_type,
)
from syncpoint.ascend.dumps.ffts_slices import Apart, Whole, put_together, slice_count
from syncpoint.ascend.dumps.file_names import DeviceName, escape_name, is_hashed, parse_device_name
from syncpoint.ascend.dumps.folder_listing import (
    MAX_SHOWN_NAMES,
    UNREADABLE,
    Listing,
    describe_damage,
    list_folder,
)
from syncpoint.ascend.dumps.training_tree import StepFolder, find_step_folders, is_tree
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.untrusted_files import path_inside, require_folder
from syncpoint.run.model import Op, OpKey, Role, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.reader import Run

_MAX_SNIFFED_FILES = 32
"""Headers that are read to recognise a folder."""
_MAX_ELEMENTS = 1 << 60


class DeviceFolder:
    """Dump files of a device, in the order of their timestamps."""

    API = API
    name = "ascend"
    priority = 500

    def sniff(self, path: Path) -> bool:
        """Whether the path is a device's dump file, or a folder that holds one."""
        try:
            if path.is_file():
                return parse_device_name(path.name) is not None and _is_dump_file(
                    path.parent, path.name
                )
            if not path.is_dir():
                return False
            if is_tree(path):
                return True
            listed = list_folder(path)
            names = (n for n, full in listed.files.items() if parse_device_name(full) is not None)
            return any(_is_dump_file(path, name) for name in islice(names, _MAX_SNIFFED_FILES))
        except (OSError, FormatError):
            return False

    def open(self, path: Path) -> Run:
        """Read the headers only. An unreadable file is an op with its damage recorded."""
        return open_device_folder(path)


def open_device_folder(
    path: Path, *, read_elsewhere: Container[str] = (), note_repeats: bool = True
) -> Run:
    """Open the ops of a folder, or of one file.

    Files in `read_elsewhere` are read by the caller and get no note. With `note_repeats`, a note
    names ops that were executed more than once.
    """
    model = path.name
    if path.is_file():
        root, listed = path.parent, Listing({path.name: path.name})
    else:
        step_folder = _find_step_folder(path)
        if step_folder is not None:
            path, model = step_folder.path, step_folder.model
        root = require_folder(path, "a folder of device dumps")
        listed = list_folder(root)
    dumped_ops = [_read(root, file, name) for file, name in _devices(listed, read_elsewhere)]
    if not dumped_ops:
        raise InputError(
            f"{path} has no files named TYPE.OP.TASK.STREAM.TIME:"
            f" {listed.summary() or 'it is empty'}",
            cure="give the path of the folder that holds such files",
        )
    dumped_ops = _with_names_of_siblings(dumped_ops)
    dumped_ops.sort(key=_sort_key)
    united, apart = _assemble_slices(dumped_ops)
    united.sort(key=_sort_key)
    ops: list[Op] = []
    built = _TensorBuilder()
    for call, dumped in _numbered(united):
        key = OpKey(dumped.op, call, path=dumped.path)
        damage = built.add(key, dumped)
        ops.append(Op(key, dumped.name.type, attributes=_attributes(dumped, damage)))
    repeats = _repeats(ops) if note_repeats else []
    info = RunInfo(
        model=model,
        runtime="ascend",
        options={"format": DeviceFolder.name},
        notes=(*listed.notes, *apart, *describe_damage(ops), *repeats),
    )
    store = DeviceStore(root, built.decoded, built.pieces)
    return Run(info, ops, built.tensors, store, path=path)


def file_run(path: Path, name: DeviceName) -> Run:
    """Open the tensors of one file under a given name; damage is a FormatError."""
    built, key = _TensorBuilder(), OpKey(name.op)
    damage = built.add(
        key, DumpFileOp(file=path.name, name=name, op=name.op, header=read_device_file(path))
    )
    if damage.words:
        raise FormatError(
            f"the tensors of {path.name} cannot be read: {damage.words}",
            cure="copy it again, or dump it again",
        )
    op = Op(key, name.type)
    return Run(
        RunInfo(), [op], built.tensors, DeviceStore(path.parent, built.decoded, {}), path=path
    )


def _find_step_folder(path: Path) -> StepFolder | None:
    """Return the only step folder of a tree; several are an InputError."""
    if not is_tree(path):
        return None
    dumped_ops = find_step_folders(path)
    if len(dumped_ops) > 1:
        names = ", ".join(step_folder.name for step_folder in dumped_ops[:MAX_SHOWN_NAMES])
        more = ", ..." if len(dumped_ops) > MAX_SHOWN_NAMES else ""
        raise InputError(
            f"{path} holds the dumps of {len(dumped_ops)} steps ({names}{more})",
            cure="give the path of one of them",
        )
    return dumped_ops[0]


def _sort_key(dumped: DumpFileOp) -> tuple[int, str, str]:
    return (dumped.timestamp, dumped.op, dumped.file)


def _devices(listed: Listing, read_elsewhere: Container[str]) -> Iterable[tuple[str, DeviceName]]:
    dumped_ops, unnamed, other = [], [], []
    for file, full in listed.files.items():
        name = parse_device_name(full)
        if name is not None:
            dumped_ops.append((file, name))
        elif is_hashed(file) and full == file:
            unnamed.append(file)
        elif file not in read_elsewhere:
            other.append(file)
    listed.skip(other, "their names are not TYPE.OP.TASK.STREAM.TIME")
    listed.skip(unnamed, "mapping.csv has no names for them")
    return dumped_ops


def _is_dump_file(root: Path, name: str) -> bool:
    try:
        return bool(read_device_file(path_inside(root, name)).blocks)
    except FormatError:
        return False


@dataclass(frozen=True, kw_only=True)
class DumpFileOp:
    """A dumped op: one file, or several that hold its slices."""

    file: str
    name: DeviceName
    op: str
    header: DeviceFile
    damage: str = ""
    path: str = ""
    """Thread of the op, if its slices are not assembled."""
    parts: tuple[DumpFileOp, ...] = ()
    """The files of the slices."""
    wholes: tuple[Whole, ...] = ()
    """The tensors assembled from the slices."""

    @property
    def timestamp(self) -> int:
        """Time of the last file."""
        return max((part.name.timestamp for part in self.parts), default=self.name.timestamp)


def _read(root: Path, file: str, name: DeviceName) -> DumpFileOp:
    path = root / file
    try:
        # Names come from the folder itself: only a link can lead out of it.
        header = read_device_file(path_inside(root, file) if path.is_symlink() else path)
    except FormatError as error:
        return DumpFileOp(
            file=file, name=name, op=name.op, header=DeviceFile(size=0), damage=str(error)
        )
    return DumpFileOp(file=file, name=name, op=_op_name(header.op_name, name), header=header)


def _op_name(attributes: str, name: DeviceName) -> str:
    """Return the name in the header if the file's name was made from it."""
    whole = name.op if name.slice is None else f"{name.op}_lxslice{name.slice}"
    if attributes and attributes.isprintable() and escape_name(attributes) in (name.op, whole):
        return (
            attributes
            if escape_name(attributes) == name.op
            else attributes.removesuffix(f"_lxslice{name.slice}")
        )
    return name.op


def _with_names_of_siblings(dumped_ops: Sequence[DumpFileOp]) -> list[DumpFileOp]:
    """Name ops with unreadable headers like other files of the same op.

    Otherwise an earlier execution would count as the latest.
    """
    attributes: dict[tuple[str, str], set[str]] = {}
    for dumped in dumped_ops:
        if not dumped.damage:
            attributes.setdefault((dumped.name.type, dumped.name.op), set()).add(dumped.op)
    names = {key: next(iter(ops)) for key, ops in attributes.items() if len(ops) == 1}
    return [
        replace(dumped, op=names.get((dumped.name.type, dumped.name.op), dumped.op))
        if dumped.damage
        else dumped
        for dumped in dumped_ops
    ]


def _assemble_slices(dumped_ops: Sequence[DumpFileOp]) -> tuple[list[DumpFileOp], list[str]]:
    """Assemble the slices of each op; return notes on those that stay separate."""
    ops: list[DumpFileOp] = []
    notes: list[str] = []
    for slices in _executions(dumped_ops):
        first = slices[0]
        cut = first.name.slice is not None
        try:
            if len(slices) == 1 and not cut and _is_all(first):
                ops.append(first)
                continue
            if any(dumped.damage for dumped in slices):
                raise Apart("a file is damaged")
            ordered = sorted(slices, key=_slice_number)
            if [_slice_number(dumped) for dumped in ordered] != list(range(len(ordered))):
                raise Apart("some are missing")
            wholes = put_together([dumped.header for dumped in ordered], cut)
            ops.append(replace(ordered[0], parts=tuple(ordered), wholes=tuple(wholes)))
        except Apart as error:
            ops += [_named_apart(dumped) for dumped in slices]
            notes.append(f"{len(slices)} slices of {first.op} are listed separately: {error}")
    return ops, notes


def _is_all(dumped: DumpFileOp) -> bool:
    """Whether a file holds its op completely."""
    return not _slice_number(dumped) and slice_count(dumped.header) == 1


def _executions(dumped_ops: Sequence[DumpFileOp]) -> Iterable[list[DumpFileOp]]:
    """Group the files by execution, in the order of time: one file, or one for each slice."""
    latest: dict[object, list[DumpFileOp]] = {}
    executions = []
    for dumped in dumped_ops:
        name = dumped.name
        key: object = (dumped.op, name.type, name.device)
        if name.slice is None:
            if name.thread is None:
                executions.append([dumped])
                continue
            key = (key, name.task, name.stream, name.context)
        slices = latest.get(key)
        if slices is None or _slice_number(dumped) in map(_slice_number, slices):
            slices = latest[key] = []
            executions.append(slices)
        slices.append(dumped)
    return executions


def _slice_number(dumped: DumpFileOp) -> int:
    name = dumped.name
    return (name.thread or 0) if name.slice is None else name.slice


def _named_apart(dumped: DumpFileOp) -> DumpFileOp:
    """Give a slice a name of its own, so that it does not count as the whole op."""
    if dumped.name.slice is not None:
        return replace(dumped, op=f"{dumped.op}_lxslice{dumped.name.slice}")
    return (
        replace(dumped, path=f"thread {dumped.name.thread}")
        if dumped.name.thread is not None
        else dumped
    )


def _numbered(dumped_ops: Sequence[DumpFileOp]) -> Iterable[tuple[int, DumpFileOp]]:
    """Number the executions of each op."""
    calls: dict[tuple[str, str], int] = {}
    for dumped in dumped_ops:
        call = calls.get((dumped.op, dumped.path), 0)
        calls[dumped.op, dumped.path] = call + 1
        yield call, dumped


@dataclass(frozen=True)
class _OpDamage:
    """Unreadable parts of an op."""

    words: str = ""
    tensor: tuple[Role, int] | None = None
    """Role and number of the first unreadable tensor; None if the whole file is damaged."""


@dataclass
class _TensorBuilder:
    """Collects the tensors of a run."""

    tensors: list[Tensor] = field(default_factory=list)
    decoded: dict[TensorKey, StoredType] = field(default_factory=dict)
    pieces: dict[TensorKey, Pieces] = field(default_factory=dict)

    def add(self, key: OpKey, dumped: DumpFileOp) -> _OpDamage:
        """Add the readable tensors of an op; return the damage of the others."""
        damage = [dumped.damage] if dumped.damage else []
        first: tuple[Role, int] | None = None
        if dumped.parts:
            built: Iterable[tuple[Block, Tensor | str]] = (
                (whole.pieces[0].block, self._whole(key, dumped, whole)) for whole in dumped.wholes
            )
        else:
            built = ((block, _tensor(key, dumped, block)) for block in dumped.header.blocks)
        for block, tensor in built:
            if isinstance(tensor, str):
                damage.append(f"{block.role} {block.index}: {tensor}")
                first = first or (block.role, block.index)
                continue
            self.tensors.append(tensor)
            stored = stored_type(block.data_type)
            if stored.decode is not None:
                self.decoded[tensor.key] = stored
        more = (
            f"; and {len(damage) - MAX_SHOWN_NAMES} more" if len(damage) > MAX_SHOWN_NAMES else ""
        )
        return _OpDamage("; ".join(damage[:MAX_SHOWN_NAMES]) + more, first)

    def _whole(self, key: OpKey, dumped: DumpFileOp, whole: Whole) -> Tensor | str:
        placed = []
        for piece in whole.pieces:
            tensor = _tensor(key, dumped.parts[piece.part], piece.block)
            if isinstance(tensor, str):
                return f"of slice {piece.part}: {tensor}"
            placed.append((tensor, piece.start))
        first = placed[0][0]
        if len(placed) == 1:
            return first
        nbytes = stored_type(whole.pieces[0].block.data_type).nbytes(prod(whole.shape))
        self.pieces[first.key] = tuple(placed)
        return replace_fields(first, shape=whole.shape, nbytes=nbytes)


def _tensor(key: OpKey, dumped: DumpFileOp, block: Block) -> Tensor | str:
    """Return the tensor of a block, or why it cannot be read."""
    if block.offset + block.size > dumped.header.size:
        return f"{block.size} bytes at {block.offset} of a file of {dumped.header.size}"
    shape, stored = block.shape, stored_type(block.data_type)
    if block.data_type == UNDEFINED:
        shape = (block.size,)  # the size of an element is unknown
    if len(shape) > MAX_DIMS or prod(d for d in shape if d) > _MAX_ELEMENTS:
        return "the shape is too large"
    if not stored.dtype:
        return f"elements of type {stored.name} cannot be read"
    nbytes = stored.nbytes(prod(shape))
    if nbytes > block.size:
        expected_size = f"{'x'.join(map(str, shape)) or 'a scalar'} of {stored.name}"
        return f"{block.size} bytes for {expected_size}, which takes {nbytes}"
    return Tensor(
        TensorKey(key, block.role, block.index),
        stored.dtype,
        shape,
        layout=layout(block.format) if block.data_type != UNDEFINED else "",
        address=block.address or None,
        shard=dumped.file,
        offset=block.offset,
        nbytes=nbytes,
    )


def _attributes(dumped: DumpFileOp, damage: _OpDamage) -> dict[str, Any]:
    name, header = dumped.name, dumped.header
    attributes: dict[str, Any] = {
        "file": dumped.file,
        "timestamp": dumped.timestamp,
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
    if dumped.parts:
        optional |= {"thread": None, "context": None, "slice": None}
        optional |= {"slices": len(dumped.parts), "files": [part.file for part in dumped.parts]}
    attributes |= {n: v for n, v in optional.items() if v is not None}
    for title, role in (("inputs", Role.INPUT), ("outputs", Role.OUTPUT)):
        attributes[title] = [block_facts(b) for b in _blocks(dumped) if b.role is role]
    if header.attr:
        attributes["attr"] = header.attr
    return attributes | header.facts


def _blocks(dumped: DumpFileOp) -> Iterable[Block]:
    """Return the blocks of the tensors; assembled ones have no original shape."""
    if not dumped.parts:
        return dumped.header.blocks
    first = ((whole, whole.pieces[0].block) for whole in dumped.wholes)
    return [replace(b, shape=w.shape, size=0, original_shape=()) for w, b in first]


def _repeats(ops: Sequence[Op]) -> list[str]:
    repeat_counts = {op.key.op: op.key.call + 1 for op in ops if op.key.call}
    if not repeat_counts:
        return []
    shown = ", ".join(
        f"{name} {count} times" for name, count in islice(repeat_counts.items(), MAX_SHOWN_NAMES)
    )
    more = ", ..." if len(repeat_counts) > MAX_SHOWN_NAMES else ""
    return [f"executed more than once (the last execution is the latest): {shown}{more}"]
