"""Values of a sync point in pieces, in parallel, as compared (view, dequantized, masked):
elementwise absolute differences, also of complex numbers; axis names.

The two tensors are prepared by the code that measured them, so that the page shows the numbers
behind the verdict: through the view of the pair, dequantized, and with the same rules for masked
and mismatched elements.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.measuring.masking import select_counted
from syncpoint.comparison.measuring.measure_rows import prepare_pair
from syncpoint.comparison.operands import dequantize
from syncpoint.comparison.storage.sync_point_table import row_from_table
from syncpoint.errors import InputError
from syncpoint.files.byte_ranges import map_bytes
from syncpoint.metrics import FileRegion, Operand, Pair
from syncpoint.metrics.dtype_rules import rules_of
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.run.dims import Dims
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Quantization

Floats = NDArray[np.float64]
Index = tuple[slice, ...]
BLOCK_ELEMENTS = 1 << 16
"""Elements that are read together: both sides and their difference fit a core's cache."""
_LOWEST_VALUES = tuple(-DTYPES[name].max for name in ("f16", "bf16", "f32", "f64"))
"""Values that code writes as a mask, perhaps stored in a wider type."""


@dataclass(frozen=True)
class TensorPiece:
    """Some elements of both sides; the modulus if they are complex."""

    reference: Floats
    target: Floats
    difference: Floats
    """0 where both are masked, or hold the same NaN or infinity."""
    distance: Floats
    """|difference|; infinite where an element is NaN, infinite or masked on one side only."""
    counted: NDArray[np.bool_] | None = None
    """Which elements count; None where all do. Those that the map masks have distance 0."""


class PairedValues:
    """Both tensors of a sync point, as they are compared."""

    def __init__(
        self, pair: Pair, axis_names: list[str], counted: NDArray[np.bool_] | None = None
    ) -> None:
        self.pair = pair
        self.counted = counted
        """Which elements count; None where all do."""
        self.shape = pair.target.logical_shape
        self.axis_names = axis_names
        self._rules = rules_of(pair)
        sides = (pair.target, pair.reference)
        self._complex = any(DTYPES[side.dtype].kind is Kind.COMPLEX for side in sides)
        self._integers = all(
            DTYPES[side.dtype].kind is Kind.INT and side.quantization is None for side in sides
        )

    @property
    def fits_float32(self) -> bool:
        """Whether float32 holds every value exactly."""
        sides = (self.pair.target, self.pair.reference)
        return all(
            side.quantization is None
            and DTYPES[side.dtype].kind is not Kind.COMPLEX
            and DTYPES[side.dtype].bits <= (32 if DTYPES[side.dtype].kind is Kind.FLOAT else 16)
            for side in sides
        )

    def read_piece(self, index: Index) -> TensorPiece:
        """Return the elements at `index`, which has a slice for every axis."""
        t, r = (_read_elements(side, index) for side in (self.pair.target, self.pair.reference))
        with np.errstate(all="ignore"):
            piece = _compare_complex(t, r) if self._complex else self._compare(t, r)
        if self.counted is None:
            return piece
        counted = self.counted[index]
        return replace(
            piece,
            difference=np.where(counted, piece.difference, 0.0),
            distance=np.where(counted, piece.distance, 0.0),
            counted=counted,
        )

    @property
    def counted_pair(self) -> Pair:
        """The pair that was measured: without the elements that the map masks."""
        return self.pair if self.counted is None else select_counted(self.pair, self.counted)

    @property
    def masked_count(self) -> int:
        """How many elements the map masks."""
        return 0 if self.counted is None else int(np.count_nonzero(~self.counted))

    def _compare(self, t: NDArray[Any], r: NDArray[Any]) -> TensorPiece:
        target, reference = _as_floats(t), _as_floats(r)
        difference = target - reference
        if self._integers:
            # Beyond 2**53 unequal integers may become the same float.
            is_rounded_away = (difference == 0) & (t != r)
            if is_rounded_away.any():
                difference[is_rounded_away] = np.where(t > r, 1.0, -1.0)[is_rounded_away]
        distance = np.abs(difference)
        if not np.isfinite(distance.max(initial=0.0)):
            is_non_finite = ~np.isfinite(target) | ~np.isfinite(reference)
            is_same = (target == reference) | (np.isnan(target) & np.isnan(reference))
            difference[is_non_finite & is_same] = 0.0
            distance[is_non_finite] = np.where(is_same, 0.0, np.inf)[is_non_finite]
        self._apply_masks(target, reference, difference, distance)
        return TensorPiece(reference, target, difference, distance)

    def _apply_masks(
        self, target: Floats, reference: Floats, difference: Floats, distance: Floats
    ) -> None:
        """Set the distance of masked elements, by the rules of the measurement."""
        rules = self._rules
        lowest = min(target.min(initial=0.0), reference.min(initial=0.0))
        if not lowest <= max(rules.target_mask, rules.reference_mask) and lowest == lowest:
            return
        t_masked, r_masked = target <= rules.target_mask, reference <= rules.reference_mask
        is_masked = t_masked & r_masked
        if np.isfinite(rules.reference_mask):
            is_masked |= t_masked & _is_lowest(reference)
        if np.isfinite(rules.target_mask):
            is_masked |= r_masked & _is_lowest(target)
        is_finite = np.isfinite(target) & np.isfinite(reference)
        is_one_sided = (t_masked | r_masked) & ~is_masked & is_finite
        agrees = np.abs(target - reference) <= rules.rtol * np.abs(reference)
        is_masked |= is_one_sided & agrees
        distance[is_one_sided & ~agrees] = np.inf
        distance[is_masked] = 0.0
        difference[is_masked] = 0.0


def read_values(opened: OpenComparison, row: int) -> PairedValues:
    """Return the values of a row. InputError where there are none."""
    fields = opened.table.frame.row(row, named=True)
    if fields["basis"] != Kept.VALUES or fields["unmeasured"]:
        reason = fields["unmeasured"] or f"only its {fields['basis'] or 'names'} were recorded"
        raise InputError(f"this sync point has no values: {reason}")
    sides = opened.sides
    if sides is None:
        reasons = "; ".join(f"{side}: {why}" for side, why in opened.why_missing.items() if why)
        raise InputError(
            f"the values are not available ({reasons})", cure="put the runs back where they were"
        )
    sync_point = row_from_table(fields)
    reference = sides.reference.tensor(sync_point.reference.key)
    for side, key, tensor in (
        ("target", sync_point.target.key, sides.target.tensor(sync_point.target.key)),
        ("reference", sync_point.reference.key, reference),
    ):
        if tensor is None:
            raise InputError(
                f"the {side} run has no tensor {key}: it is not the run that was compared",
                cure="put the run that was compared back in its place",
            )
    assert reference is not None
    measured_now, pair = prepare_pair(sides, sync_point)
    if pair is None:
        reason = str(measured_now.unmeasured) or "the runs have changed"
        raise InputError(
            f"the tensors are not those that were measured: {reason}",
            cure="put the runs that were compared back, or compare again",
        )
    try:
        counted = sides.counted_elements(sync_point)
    except ValueError as error:
        raise InputError(f"the mask of the map does not fit the tensors: {error}") from error
    axes = name_axes(reference.layout, pair.target.logical_shape)
    return PairedValues(pair, axes, counted)


_AXIS_BY_LETTER = {
    "N": "batch",
    "C": "channel",
    "H": "height",
    "W": "width",
    "T": "token",
    "D": "depth",
}


def name_axes(layout: str, shape: tuple[int, ...]) -> list[str]:
    """Return the names of the axes: those of the reference's layout, else their numbers."""
    numbered = [f"axis {axis}" for axis in range(len(shape))]
    if layout.isalpha() and layout.isupper() and len(layout) == len(shape):
        return [_AXIS_BY_LETTER.get(letter, letter) for letter in layout]
    try:
        dims = Dims.parse(layout)
        dims.check(shape)
    except InputError:
        return numbered
    axes = zip(dims.axes, numbered, strict=True)
    return [axis.name if axis.name != "1" else number for axis, number in axes]


def split_blocks(shape: tuple[int, ...], max_elements: int = BLOCK_ELEMENTS) -> Iterator[Index]:
    """Yield slices that cover a shape in row-major order, each of at most `max_elements`."""
    if not prod(shape):
        return
    axis, size = len(shape), 1
    while axis and size * shape[axis - 1] <= max_elements:
        axis -= 1
        size *= shape[axis]
    rest = tuple(slice(0, n) for n in shape[axis:])
    if not axis:
        yield rest
        return
    step = max(max_elements // size, 1)
    for place in np.ndindex(*shape[: axis - 1]):
        before = tuple(slice(index, index + 1) for index in place)
        for start in range(0, shape[axis - 1], step):
            yield (*before, slice(start, min(start + step, shape[axis - 1])), *rest)


def run_parallel(work: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    """Call `work` with every argument in several threads: NumPy releases the interpreter's lock."""
    if len(arguments) < 2:
        for argument in arguments:
            work(argument)
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        for _ in pool.map(work, arguments):
            pass


def _read_elements(side: Operand, index: Index) -> NDArray[Any]:
    """Return elements as they are stored, or dequantized. A file is mapped again for each piece, so
    that only the pages of that piece are in memory."""
    data = side.data
    if isinstance(data, FileRegion):
        dtype = DTYPES[side.dtype]
        raw = map_bytes(Path(data.path), data.offset, data.nbytes)
        count = prod(side.logical_shape)
        stored: NDArray[Any] = raw.view(dtype.numpy)[:count].reshape(side.logical_shape)[index]
        return _as_floats(stored.copy() if dtype.name == "f64" else stored)
    piece = data[index]
    if side.quantization is None:
        return piece
    quantization = _slice_quantization(side.quantization, data.shape, index)
    return dequantize(replace(side, data=piece, quantization=quantization))


def _as_floats(values: NDArray[Any]) -> Floats:
    """Convert to float64; float16 and bfloat16 by way of float32, which is faster."""
    if values.dtype == np.float64:
        return values
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    elif values.dtype == DTYPES["bf16"].numpy:
        values = (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def _slice_quantization(
    quantization: Quantization, shape: tuple[int, ...], index: Index
) -> Quantization:
    if quantization.axis is None or len(quantization.scale) == 1:
        return quantization
    axis = quantization.axis % len(shape)
    blocks = np.arange(shape[axis])[index[axis]] // max(quantization.block, 1)
    zeros = quantization.zero_point
    return replace(
        quantization,
        scale=tuple(quantization.scale[block] for block in blocks),
        zero_point=zeros if len(zeros) == 1 else tuple(zeros[block] for block in blocks),
        axis=axis,
        block=0,
    )


def _is_lowest(values: Floats) -> NDArray[np.bool_]:
    return np.isin(values, _LOWEST_VALUES)


def _compare_complex(t: NDArray[Any], r: NDArray[Any]) -> TensorPiece:
    t, r = t.astype(np.complex128), r.astype(np.complex128)
    difference = np.abs(t - r)
    is_same = (t == r) | (np.isnan(t) & np.isnan(r))
    is_non_finite = ~(np.isfinite(t) & np.isfinite(r))
    difference = np.where(is_non_finite & is_same, 0.0, difference)
    distance = np.where(is_non_finite & ~is_same, np.inf, difference)
    return TensorPiece(np.abs(r), np.abs(t), difference, distance)
