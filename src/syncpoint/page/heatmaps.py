"""A plane of both tensors and of their difference, pooled so that one bad element stays visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import InputError
from syncpoint.page.encoding import pack_array
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import HeatMap
from syncpoint.page.tensor_values import BLOCK, Floats, Index, Values, each, values_of
from syncpoint.page.worst_elements import first_mismatch

_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What part of the tensors to show, and how finely; None leaves the choice to us."""

    row_axis: int | None = None
    column_axis: int | None = None
    at: Sequence[int] | None = None
    window: Sequence[int] | None = None
    rows: int = 128
    columns: int = 128


@dataclass(frozen=True)
class _Plane:
    """Two axes of the tensors, and where all others stand."""

    row_axis: int
    column_axis: int
    at: list[int]
    height: int
    width: int

    def index(self, rows: slice, columns: slice) -> Index:
        index = [slice(at, at + 1) for at in self.at]
        if self.row_axis >= 0:
            index[self.row_axis] = rows
        if self.column_axis >= 0:
            index[self.column_axis] = columns
        return tuple(index)

    def turned(self, array: NDArray[Any]) -> NDArray[Any]:
        """A piece of the tensor as rows and columns."""
        if self.row_axis > self.column_axis:
            array = np.swapaxes(array, self.row_axis, self.column_axis)
        sizes = [array.shape[x] for x in sorted((self.row_axis, self.column_axis)) if x >= 0]
        return array.reshape([1, 1, *sizes][-2:])


def heatmap(opened: Opened, row: int, wish: Wish) -> HeatMap:
    """The plane that is asked for; by default the one that holds the greatest difference."""
    values = values_of(opened, row)
    plane = _plane(opened, row, values, wish)
    top, bottom, left, right = window = _window(plane, wish.window)
    patch_rows, rows = _patches(bottom - top, wish.rows)
    patch_columns, columns = _patches(right - left, wish.columns)
    cells = _Cells(rows, columns)
    # Pieces of whole patches, in the order in which the elements lie in memory.
    many = max(BLOCK // max(patch_columns * patch_rows, 1), 1)
    if plane.row_axis > plane.column_axis:
        high, wide = max(min(many, rows), 1), max(many // max(rows, 1), 1)
    else:
        high, wide = max(many // max(columns, 1), 1), max(min(many, columns), 1)
    corners = [(y, x) for y in range(0, rows, high) for x in range(0, columns, wide)]

    def fill(corner: tuple[int, int]) -> None:
        first, begin = corner
        y = slice(top + first * patch_rows, min(top + (first + high) * patch_rows, bottom))
        x = slice(left + begin * patch_columns, min(left + (begin + wide) * patch_columns, right))
        cells.fill(values, plane, y, x, corner, (patch_rows, patch_columns))

    each(fill, corners)
    kind = "<f4" if values.narrow else "<f8"
    shown = [
        np.abs(side[np.isfinite(side) & cells.counted]) for side in (cells.reference, cells.target)
    ]
    difference = np.abs(cells.difference[np.isfinite(cells.difference)])
    return HeatMap(
        shape=list(values.shape),
        row_axis=plane.row_axis,
        column_axis=plane.column_axis,
        at=plane.at,
        window=list(window),
        rows=rows,
        columns=columns,
        patch=[patch_rows, patch_columns],
        wide=kind == "<f8",
        reference=pack_array(cells.reference, kind),
        target=pack_array(cells.target, kind),
        difference=pack_array(_narrowed(cells.difference), "<f4"),
        places=pack_array(cells.places, "<u4"),
        scale=max((float(side.max(initial=0.0)) for side in shown), default=0.0),
        difference_scale=float(difference.max(initial=0.0)),
        names=values.names,
    )


class _Cells:
    """What is shown of each patch."""

    def __init__(self, rows: int, columns: int) -> None:
        self.reference = np.zeros((rows, columns))
        self.target = np.zeros((rows, columns))
        self.difference = np.zeros((rows, columns))
        self.places = np.zeros((rows, columns), np.int64)
        self.counted = np.ones((rows, columns), np.bool_)
        """Whether the element shown counts: the map does not mask it."""

    def fill(
        self,
        values: Values,
        plane: _Plane,
        y: slice,
        x: slice,
        cell: tuple[int, int],
        patch: tuple[int, int],
    ) -> None:
        """The cells of one piece."""
        piece = values.piece(plane.index(y, x))
        at_y, at_x = _worst(plane.turned(piece.off), patch)
        here = np.s_[cell[0] : cell[0] + at_y.shape[0], cell[1] : cell[1] + at_y.shape[1]]
        for name in ("reference", "target", "difference"):
            getattr(self, name)[here] = plane.turned(getattr(piece, name))[at_y, at_x]
        if piece.counted is not None:
            self.counted[here] = plane.turned(piece.counted)[at_y, at_x]
        self.places[here] = (at_y + y.start) * plane.width + at_x + x.start


def _worst(off: Floats, patch: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of the greatest element of every patch; the first of several."""
    height, width = off.shape
    high, wide = patch
    rows, columns = -(-height // high), -(-width // wide)
    if (height, width) != (rows * high, columns * wide):
        room = np.full((rows * high, columns * wide), -1.0)
        room[:height, :width] = off
        off = room
    if high == wide == 1:
        y, x = np.indices((rows, columns))
        return y, x
    lines = off.reshape(rows * high, columns, wide)
    in_line = lines.argmax(2)
    greatest = np.take_along_axis(lines, in_line[..., None], 2)[..., 0]
    line = greatest.reshape(rows, high, columns).argmax(1)
    y = line + np.arange(rows)[:, None] * high
    x = np.take_along_axis(in_line, y, 0) + np.arange(columns) * wide
    return y, x


def _plane(opened: Opened, row: int, values: Values, wish: Wish) -> _Plane:
    shape = values.shape
    row_axis, column_axis = _axes(shape, wish)
    at = _worst_place(opened, row, values) if wish.at is None else _checked_index(shape, wish.at)
    lengths = [shape[axis] if axis >= 0 else 1 for axis in (row_axis, column_axis)]
    if 0 in shape:
        lengths = [0, 0]
    return _Plane(row_axis, column_axis, at, lengths[0], lengths[1])


def _axes(shape: tuple[int, ...], wish: Wish) -> tuple[int, int]:
    """The axes of rows and columns; by default the last two that are longer than one."""
    if len(shape) <= 1:
        # A tensor of one axis is a single row of cells, whatever is wished for.
        return -1, len(shape) - 1
    longer = [axis for axis, n in enumerate(shape) if n > 1]
    rest = [axis for axis, n in enumerate(shape) if n <= 1]
    default = sorted((rest + longer)[-2:])
    row_axis = default[0] if wish.row_axis is None else wish.row_axis
    column_axis = default[1] if wish.column_axis is None else wish.column_axis
    if wish.row_axis is None and row_axis == column_axis:
        row_axis = next(axis for axis in (*default, 0, 1) if axis != column_axis)
    if wish.column_axis is None and row_axis == column_axis:
        column_axis = next(axis for axis in (*default[::-1], 0, 1) if axis != row_axis)
    for axis in (row_axis, column_axis):
        if axis >= len(shape):
            raise InputError(f"one of the {len(shape)} axes of {list(shape)}", str(axis))
    if row_axis == column_axis:
        raise InputError("two different axes", f"{row_axis} twice")
    return row_axis, column_axis


def _checked_index(shape: tuple[int, ...], at: Sequence[int]) -> list[int]:
    """The index that is wished for, if it lies in the tensor."""
    if len(at) != len(shape) or any(not 0 <= i < max(n, 1) for i, n in zip(at, shape, strict=True)):
        raise InputError(f"an index into {list(shape)}", str(list(at)))
    return list(at)


def _worst_place(opened: Opened, row: int, values: Values) -> list[int]:
    """Where to look first: the first mismatch, else the greatest difference."""
    shape, frame = values.shape, opened.table.frame
    if 0 in shape or not shape:
        return [0] * len(shape)
    if frame["mismatched"][row]:
        found = first_mismatch(values)
        if found is not None:
            return found
    place = frame["max_abs_index"][row] or 0
    if not 0 <= place < np.prod(shape, dtype=np.int64):
        place = 0
    return [int(i) for i in np.unravel_index(place, shape)]


def _window(plane: _Plane, wished: Sequence[int] | None) -> tuple[int, int, int, int]:
    if wished is None:
        return 0, plane.height, 0, plane.width
    if len(wished) != 4:
        raise InputError("a window of four numbers", f"{len(wished)}")
    top, bottom, left, right = wished
    if not (0 <= top < bottom <= plane.height and 0 <= left < right <= plane.width):
        raise InputError(
            f"a window inside {plane.height} rows and {plane.width} columns", str(list(wished))
        )
    return top, bottom, left, right


def _patches(length: int, most: int) -> tuple[int, int]:
    """Length of a patch, and how many there are; the last may be shorter."""
    patch = max(-(-length // most), 1)
    return patch, -(-length // patch)


def _narrowed(values: Floats) -> NDArray[Any]:
    """Finite numbers stay finite in float32."""
    return np.where(np.isfinite(values), np.clip(values, -_FLOAT32, _FLOAT32), values)
