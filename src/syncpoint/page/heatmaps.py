"""The heat map of a sync point: a plane of both tensors and their difference, pooled so that one
bad element stays visible; default axes, index, window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import InputError
from syncpoint.page.encoding import pack_array
from syncpoint.page.histograms_and_worst_elements import find_first_mismatch
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import HeatMap
from syncpoint.page.tensor_values import (
    BLOCK_ELEMENTS,
    Floats,
    Index,
    PairedValues,
    read_values,
    run_parallel,
)

_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class HeatMapRequest:
    """Which part of the tensors to show, and how finely; None for the default."""

    row_axis: int | None = None
    column_axis: int | None = None
    index: Sequence[int] | None = None
    """Index along every axis; those of the two axes of the plane are not used."""
    window: Sequence[int] | None = None
    """First row, last row + 1, first column, last column + 1."""
    rows: int = 128
    columns: int = 128


@dataclass(frozen=True)
class _Plane:
    """Two axes of the tensors, and the index along all others."""

    row_axis: int
    column_axis: int
    index: list[int]
    height: int
    width: int

    def slices(self, rows: slice, columns: slice) -> Index:
        """Return the index of a piece of the plane in the tensors."""
        slices = [slice(index, index + 1) for index in self.index]
        if self.row_axis >= 0:
            slices[self.row_axis] = rows
        if self.column_axis >= 0:
            slices[self.column_axis] = columns
        return tuple(slices)

    def orient(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a piece of the tensor as rows and columns."""
        if self.row_axis > self.column_axis:
            array = np.swapaxes(array, self.row_axis, self.column_axis)
        sizes = [array.shape[x] for x in sorted((self.row_axis, self.column_axis)) if x >= 0]
        return array.reshape([1, 1, *sizes][-2:])


def build_heatmap(opened: OpenComparison, row: int, request: HeatMapRequest) -> HeatMap:
    """Return the requested plane; by default the one with the largest difference."""
    values = read_values(opened, row)
    plane = _choose_plane(opened, row, values, request)
    window = _check_window(plane, request.window)
    row_start, row_stop, column_start, column_stop = window
    patch_rows, rows = _split_patches(row_stop - row_start, request.rows)
    patch_columns, columns = _split_patches(column_stop - column_start, request.columns)
    cells = _Cells(rows, columns)
    # Pieces of whole patches, in the order in which the elements lie in memory.
    patches = max(BLOCK_ELEMENTS // max(patch_columns * patch_rows, 1), 1)
    if plane.row_axis > plane.column_axis:
        high, wide = max(min(patches, rows), 1), max(patches // max(rows, 1), 1)
    else:
        high, wide = max(patches // max(columns, 1), 1), max(min(patches, columns), 1)
    corners = [(y, x) for y in range(0, rows, high) for x in range(0, columns, wide)]

    def fill(corner: tuple[int, int]) -> None:
        top = row_start + corner[0] * patch_rows
        side = column_start + corner[1] * patch_columns
        y = slice(top, min(top + high * patch_rows, row_stop))
        x = slice(side, min(side + wide * patch_columns, column_stop))
        cells.fill(values, plane, y, x, corner, (patch_rows, patch_columns))

    run_parallel(fill, corners)
    dtype = "<f4" if values.fits_float32 else "<f8"
    magnitudes = [
        np.abs(side[np.isfinite(side) & cells.counted]) for side in (cells.reference, cells.target)
    ]
    difference = np.abs(cells.difference[np.isfinite(cells.difference)])
    return HeatMap(
        shape=list(values.shape),
        row_axis=plane.row_axis,
        column_axis=plane.column_axis,
        at=plane.index,
        window=list(window),
        rows=rows,
        columns=columns,
        patch=[patch_rows, patch_columns],
        wide=dtype == "<f8",
        reference=pack_array(cells.reference, dtype),
        target=pack_array(cells.target, dtype),
        difference=pack_array(_clip_to_float32(cells.difference), "<f4"),
        places=pack_array(cells.places, "<u4"),
        scale=max((float(side.max(initial=0.0)) for side in magnitudes), default=0.0),
        difference_scale=float(difference.max(initial=0.0)),
        names=values.axis_names,
    )


class _Cells:
    """The element that is shown of each patch."""

    def __init__(self, rows: int, columns: int) -> None:
        self.reference = np.zeros((rows, columns))
        self.target = np.zeros((rows, columns))
        self.difference = np.zeros((rows, columns))
        self.places = np.zeros((rows, columns), np.int64)
        self.counted = np.ones((rows, columns), np.bool_)
        """Whether the element shown counts: the map does not mask it."""

    def fill(
        self,
        values: PairedValues,
        plane: _Plane,
        y: slice,
        x: slice,
        corner: tuple[int, int],
        patch: tuple[int, int],
    ) -> None:
        """Fill the cells of one piece of the plane; `corner` is its first cell."""
        piece = values.read_piece(plane.slices(y, x))
        worst_y, worst_x = _find_worst_of_patches(plane.orient(piece.distance), patch)
        height, width = worst_y.shape
        cells = np.s_[corner[0] : corner[0] + height, corner[1] : corner[1] + width]
        for name in ("reference", "target", "difference"):
            getattr(self, name)[cells] = plane.orient(getattr(piece, name))[worst_y, worst_x]
        if piece.counted is not None:
            self.counted[cells] = plane.orient(piece.counted)[worst_y, worst_x]
        self.places[cells] = (worst_y + y.start) * plane.width + worst_x + x.start


def _find_worst_of_patches(
    distances: Floats, patch: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column of the largest element of every patch; the first of several."""
    height, width = distances.shape
    high, wide = patch
    rows, columns = -(-height // high), -(-width // wide)
    if (height, width) != (rows * high, columns * wide):
        padded = np.full((rows * high, columns * wide), -1.0)
        padded[:height, :width] = distances
        distances = padded
    if high == wide == 1:
        y, x = np.indices((rows, columns))
        return y, x
    lines = distances.reshape(rows * high, columns, wide)
    in_line = lines.argmax(2)
    line_maxima = np.take_along_axis(lines, in_line[..., None], 2)[..., 0]
    line = line_maxima.reshape(rows, high, columns).argmax(1)
    y = line + np.arange(rows)[:, None] * high
    x = np.take_along_axis(in_line, y, 0) + np.arange(columns) * wide
    return y, x


def _choose_plane(
    opened: OpenComparison, row: int, values: PairedValues, request: HeatMapRequest
) -> _Plane:
    shape = values.shape
    row_axis, column_axis = _choose_axes(shape, request)
    if request.index is None:
        index = _find_worst_index(opened, row, values)
    else:
        index = _check_index(shape, request.index)
    lengths = [shape[axis] if axis >= 0 else 1 for axis in (row_axis, column_axis)]
    if 0 in shape:
        lengths = [0, 0]
    return _Plane(row_axis, column_axis, index, lengths[0], lengths[1])


def _choose_axes(shape: tuple[int, ...], request: HeatMapRequest) -> tuple[int, int]:
    """Return the axes of rows and columns; by default the last two that are longer than one."""
    if len(shape) <= 1:
        # A tensor of one axis is a single row of cells, whatever axes are requested.
        return -1, len(shape) - 1
    longer = [axis for axis, n in enumerate(shape) if n > 1]
    rest = [axis for axis, n in enumerate(shape) if n <= 1]
    default = sorted((rest + longer)[-2:])
    row_axis = default[0] if request.row_axis is None else request.row_axis
    column_axis = default[1] if request.column_axis is None else request.column_axis
    if request.row_axis is None and row_axis == column_axis:
        row_axis = next(axis for axis in (*default, 0, 1) if axis != column_axis)
    if request.column_axis is None and row_axis == column_axis:
        column_axis = next(axis for axis in (*default[::-1], 0, 1) if axis != row_axis)
    for axis in (row_axis, column_axis):
        if axis >= len(shape):
            raise InputError(
                f"axis {axis} is out of range for a tensor of shape {list(shape)}",
                cure=f"choose an axis from 0 to {len(shape) - 1}",
            )
    if row_axis == column_axis:
        raise InputError(
            f"the same axis ({row_axis}) was chosen for rows and for columns",
            cure="choose two different axes",
        )
    return row_axis, column_axis


def _check_index(shape: tuple[int, ...], index: Sequence[int]) -> list[int]:
    """Return the requested index if it lies in the tensor; else InputError."""
    if len(index) != len(shape) or any(
        not 0 <= i < max(n, 1) for i, n in zip(index, shape, strict=True)
    ):
        raise InputError(
            f"index {list(index)} is out of range for a tensor of shape {list(shape)}",
            cure=f"give {len(shape)} numbers, each smaller than the length of its axis",
        )
    return list(index)


def _find_worst_index(opened: OpenComparison, row: int, values: PairedValues) -> list[int]:
    """Return the index of the first mismatch, else that of the largest difference."""
    shape, frame = values.shape, opened.table.frame
    if 0 in shape or not shape:
        return [0] * len(shape)
    if frame["mismatched"][row]:
        mismatch = find_first_mismatch(values)
        if mismatch is not None:
            return mismatch
    place = frame["max_abs_index"][row] or 0
    if not 0 <= place < np.prod(shape, dtype=np.int64):
        place = 0
    return [int(i) for i in np.unravel_index(place, shape)]


def _check_window(plane: _Plane, window: Sequence[int] | None) -> tuple[int, int, int, int]:
    """Return the requested window, or the whole plane; InputError if it is out of range."""
    if window is None:
        return 0, plane.height, 0, plane.width
    if len(window) != 4:
        raise InputError(
            f"the window has {len(window)} numbers instead of 4",
            cure="give first row, last row + 1, first column, last column + 1",
        )
    row_start, row_stop, column_start, column_stop = window
    is_inside = 0 <= row_start < row_stop <= plane.height
    if not (is_inside and 0 <= column_start < column_stop <= plane.width):
        raise InputError(
            f"window {list(window)} is out of range for a plane of {plane.height} rows and "
            f"{plane.width} columns",
            cure="choose a window inside the plane",
        )
    return row_start, row_stop, column_start, column_stop


def _split_patches(length: int, max_patches: int) -> tuple[int, int]:
    """Return the length of a patch, and how many there are; the last may be shorter."""
    patch = max(-(-length // max_patches), 1)
    return patch, -(-length // patch)


def _clip_to_float32(values: Floats) -> NDArray[Any]:
    """Clip finite numbers so that they stay finite in float32."""
    return np.where(np.isfinite(values), np.clip(values, -_FLOAT32_MAX, _FLOAT32_MAX), values)
