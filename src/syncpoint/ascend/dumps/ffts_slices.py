"""Put together the tensors of ops that FFTS+ executed in slices, each with a file of its own: count
slices, order pieces, refuse gaps.

The first attribute of such a file is JSON. Where threads shared the work, `input_tensor_slice` and
`output_tensor_slice` say for each thread, tensor and axis from where to where its piece goes. Where
the graph itself was cut (names that end in `_lxsliceN`), `outputCutList` says into how many pieces
each axis was. What does not fit together to the last element is left in pieces, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncpoint.ascend.dumps.device_file import Block, DeviceFile
from syncpoint.ascend.dumps.device_types import UNDEFINED
from syncpoint.errors import FormatError
from syncpoint.files.untrusted_json import parse_json
from syncpoint.run.model import Role

_MAX_SLICES = 1024
_MAX_SIZE = 1 << 40

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """One file's part of a tensor."""

    part: int
    """Which of the files."""
    block: Block
    start: Shape
    """Where its first element is in the whole."""


@dataclass(frozen=True)
class Whole:
    """A tensor made of pieces."""

    role: Role
    index: int
    shape: Shape
    pieces: tuple[Piece, ...]


class Apart(Exception):
    """Why slices are not put together."""


def slice_count(header: DeviceFile) -> int:
    """Into how many slices the op of a file was cut; 1 where nothing says so."""
    try:
        count = _plan(header).get("slice_instance_num")
    except Apart:
        return 1
    return max(count, 1) if isinstance(count, int) and _is_int(count) else 1


def put_together(headers: Sequence[DeviceFile], cut: bool) -> list[Whole]:
    """The tensors that the slices make up, in the order of the slices; raises Apart where they do
    not. `cut` is for slices of a graph that was cut, whose inputs cannot be placed."""
    plan = _plan(headers[0])
    count = plan.get("slice_instance_num")
    if count != len(headers):
        raise Apart(f"{len(headers)} files for {count if _is_int(count) else 'no'} slices")
    if count > _MAX_SLICES:
        raise Apart(f"more than {_MAX_SLICES} slices")
    wholes = []
    for role in (Role.OUTPUT,) if cut else (Role.INPUT, Role.OUTPUT):
        columns = [[b for b in h.blocks if b.role is role] for h in headers]
        if len({len(column) for column in columns}) != 1:
            raise Apart(f"slices with different numbers of {role}s")
        for index in range(len(columns[0])):
            blocks = [column[index] for column in columns]
            if len({(b.data_type, b.format, len(b.shape)) for b in blocks}) != 1:
                raise Apart(f"slices of {role} {index} with different types or layouts")
            if blocks[0].data_type == UNDEFINED:
                raise Apart(f"{role} {index} is of no known type")
            starts = (
                _cut_starts(plan, index, blocks)
                if cut
                else _thread_starts(plan, role, index, blocks, len(columns[0]))
            )
            wholes.append(_whole(role, index, blocks, starts))
    return wholes


def _plan(header: DeviceFile) -> dict[str, Any]:
    text = next(iter(header.attr.values()), "")
    if not text:
        raise Apart("nothing says how they fit together")
    try:
        plan = parse_json(text, "the attribute")
    except FormatError as error:
        raise Apart("what says how they fit together is no JSON") from error
    if not isinstance(plan, dict):
        raise Apart("what says how they fit together is no object")
    return plan


def _thread_starts(
    plan: dict[str, Any], role: Role, index: int, blocks: Sequence[Block], tensors: int
) -> list[Shape]:
    table: Any = plan.get(f"{role}_tensor_slice")
    starts = []
    for thread, block in enumerate(blocks):
        try:
            ranges = table[thread]
            if len(ranges) != tensors:
                raise Apart(f"ranges for {len(ranges)} of {tensors} {role}s")
            bounds = [(r["lower"], r["higher"]) for r in ranges[index]]
        except (TypeError, KeyError, IndexError) as error:
            raise Apart(f"no ranges for {role} {index} of thread {thread}") from error
        if not all(_is_int(low) and _is_int(high) for low, high in bounds):
            raise Apart(f"ranges of {role} {index} that are no numbers")
        if tuple(high - low for low, high in bounds) != block.shape:
            raise Apart(f"ranges that are not the shape of {role} {index} of thread {thread}")
        starts.append(tuple(low for low, _ in bounds))
    return starts


def _cut_starts(plan: dict[str, Any], index: int, blocks: Sequence[Block]) -> list[Shape]:
    try:
        cuts = list(plan["outputCutList"][index])
    except (TypeError, KeyError, IndexError) as error:
        raise Apart(f"no list of cuts for output {index}") from error
    if len(cuts) != len(blocks[0].shape) or not all(_is_int(c) for c in cuts):
        raise Apart(f"a list of cuts that is not of output {index}")
    axes = [axis for axis, count in enumerate(cuts) if count != 1]
    if not axes:
        return [(0,) * len(cuts) for _ in blocks]
    if len(axes) > 1 or cuts[axes[0]] != len(blocks):
        raise Apart(f"output {index} cut along several axes")
    starts, position = [], 0
    for block in blocks:
        starts.append(tuple(position if axis == axes[0] else 0 for axis in range(len(cuts))))
        position += block.shape[axes[0]]
    return starts


def _whole(role: Role, index: int, blocks: Sequence[Block], starts: Sequence[Shape]) -> Whole:
    """The tensor that pieces make up which differ along one axis at most, without a gap."""
    ends = [
        tuple(s + n for s, n in zip(a, b.shape, strict=True))
        for a, b in zip(starts, blocks, strict=True)
    ]
    shape = tuple(map(max, *ends)) if len(ends) > 1 else ends[0]
    ranges = list(zip(starts, ends, strict=True))
    cut = [k for k in range(len(shape)) if any((s[k], e[k]) != (0, shape[k]) for s, e in ranges)]
    if len(cut) > 1:
        raise Apart(f"{role} {index} cut along several axes")
    pieces = [
        Piece(k, block, start) for k, (block, start) in enumerate(zip(blocks, starts, strict=True))
    ]
    if not cut:
        return Whole(role, index, shape, (pieces[0],))  # each has all of it
    axis = cut[0]
    pieces.sort(key=lambda p: p.start[axis])
    position = 0
    for piece in pieces:
        start = piece.start[axis]
        # What threads read may overlap at its borders, what they write may not.
        if start > position or (start < position and role is Role.OUTPUT):
            raise Apart(f"pieces of {role} {index} that leave a gap or overlap")
        position = max(position, start + piece.block.shape[axis])
    return Whole(role, index, shape, tuple(pieces))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_SIZE
