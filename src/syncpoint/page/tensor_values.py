"""The values of a sync point, read window by window.

Both sides are brought together by the code that measured them, so that the page shows the very
numbers behind the verdict: through the view of the pair, dequantized, and with the same rules for
what is masked and what is mismatched.
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

from syncpoint.comparison.masking import select_counted
from syncpoint.comparison.measuring import prepare_pair
from syncpoint.comparison.operands import dequantize
from syncpoint.comparison.storage.sync_point_table import row_from_table
from syncpoint.errors import InputError
from syncpoint.files.byte_ranges import map_bytes
from syncpoint.metrics import FileRegion, Operand, Pair
from syncpoint.metrics.dtype_rules import rules_of
from syncpoint.page.open_comparison import Opened
from syncpoint.run.dims import Dims
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Quantization

Floats = NDArray[np.float64]
Index = tuple[slice, ...]
BLOCK = 1 << 16
"""Elements that are looked at together: both sides and their difference fit a core's cache."""
_LOWEST = tuple(-DTYPES[name].max for name in ("f16", "bf16", "f32", "f64"))
"""What code writes as a mask, held perhaps by a wider type."""


@dataclass(frozen=True)
class Piece:
    """Some elements of both sides; of complex ones the modulus."""

    reference: Floats
    target: Floats
    difference: Floats
    """0 where both are masked, or hold the same NaN or infinity: nothing is off there."""
    off: Floats
    """How far off: |difference|, and infinite where it is NaN, infinite or masked on one side
    only."""
    counted: NDArray[np.bool_] | None = None
    """Which of them count; None where all do. Those that the map masks are not off."""


class Values:
    """Both tensors of a sync point, as they are compared."""

    def __init__(
        self, pair: Pair, names: list[str], counted: NDArray[np.bool_] | None = None
    ) -> None:
        self.pair = pair
        self.counted = counted
        """Which elements count; None where all do."""
        self.shape = pair.target.logical_shape
        self.names = names
        """Of the axes."""
        self._rules = rules_of(pair)
        sides = (pair.target, pair.reference)
        self._complex = any(DTYPES[side.dtype].kind is Kind.COMPLEX for side in sides)
        self._integers = all(
            DTYPES[side.dtype].kind is Kind.INT and side.quantization is None for side in sides
        )

    @property
    def narrow(self) -> bool:
        """Whether float32 holds every value exactly."""
        sides = (self.pair.target, self.pair.reference)
        return all(
            side.quantization is None
            and DTYPES[side.dtype].kind is not Kind.COMPLEX
            and DTYPES[side.dtype].bits <= (32 if DTYPES[side.dtype].kind is Kind.FLOAT else 16)
            for side in sides
        )

    def piece(self, index: Index) -> Piece:
        """The elements at `index`, which has a slice for every axis."""
        t, r = (_read(side, index) for side in (self.pair.target, self.pair.reference))
        with np.errstate(all="ignore"):
            piece = _of_complex(t, r) if self._complex else self._compared(t, r)
        if self.counted is None:
            return piece
        counted = self.counted[index]
        return replace(
            piece,
            difference=np.where(counted, piece.difference, 0.0),
            off=np.where(counted, piece.off, 0.0),
            counted=counted,
        )

    @property
    def counted_pair(self) -> Pair:
        """The pair that was measured: without what the map masks."""
        return self.pair if self.counted is None else select_counted(self.pair, self.counted)

    @property
    def masked_count(self) -> int:
        """How many elements the map masks."""
        return 0 if self.counted is None else int(np.count_nonzero(~self.counted))

    def _compared(self, t: NDArray[Any], r: NDArray[Any]) -> Piece:
        target, reference = _as_floats(t), _as_floats(r)
        difference = target - reference
        if self._integers:
            # Beyond 2**53 unequal integers may become the same float.
            lost = (difference == 0) & (t != r)
            if lost.any():
                difference[lost] = np.where(t > r, 1.0, -1.0)[lost]
        off = np.abs(difference)
        if not np.isfinite(off.max(initial=0.0)):
            unlike = ~np.isfinite(target) | ~np.isfinite(reference)
            same = (target == reference) | (np.isnan(target) & np.isnan(reference))
            difference[unlike & same] = 0.0
            off[unlike] = np.where(same, 0.0, np.inf)[unlike]
        self._mask(target, reference, difference, off)
        return Piece(reference, target, difference, off)

    def _mask(self, target: Floats, reference: Floats, difference: Floats, off: Floats) -> None:
        """Set apart what stands for "no value here"; the rule is that of the measurement."""
        rules = self._rules
        lowest = min(target.min(initial=0.0), reference.min(initial=0.0))
        if not lowest <= max(rules.target_mask, rules.reference_mask) and lowest == lowest:
            return
        t_low, r_low = target <= rules.target_mask, reference <= rules.reference_mask
        masked = t_low & r_low
        if np.isfinite(rules.reference_mask):
            masked |= t_low & _is_lowest(reference)
        if np.isfinite(rules.target_mask):
            masked |= r_low & _is_lowest(target)
        finite = np.isfinite(target) & np.isfinite(reference)
        alone = (t_low | r_low) & ~masked & finite
        agree = np.abs(target - reference) <= rules.rtol * np.abs(reference)
        masked |= alone & agree
        off[alone & ~agree] = np.inf
        off[masked] = 0.0
        difference[masked] = 0.0


def values_of(opened: Opened, row: int) -> Values:
    """The values behind a row. InputError where there are none, in words for the page."""
    flat = opened.table.frame.row(row, named=True)
    if flat["basis"] != Kept.VALUES or flat["unmeasured"]:
        what = flat["unmeasured"] or f"only the {flat['basis'] or 'names'} of this pair"
        raise InputError("values on both sides", what)
    sides = opened.sides
    if sides is None:
        missing = "; ".join(f"{side}: {why}" for side, why in opened.why_not.items())
        raise InputError("the values of both runs", missing, "put the runs back where they were")
    found = row_from_table(flat)
    if sides.target.tensor(found.target.key) is None:
        raise InputError(f"{found.target.key} in the target run", "another run at its place")
    reference = sides.reference.tensor(found.reference.key)
    if reference is None:
        raise InputError(f"{found.reference.key} in the reference run", "another run at its place")
    now, pair = prepare_pair(sides, found)
    if pair is None:
        raise InputError("tensors as they were measured", str(now.unmeasured) or "others")
    try:
        counted = sides.counted_elements(found)
    except ValueError as error:
        raise InputError("the mask that they were measured with", str(error)) from error
    return Values(pair, axis_names(reference.layout, pair.target.logical_shape), counted)


_AXES = {"N": "batch", "C": "channel", "H": "height", "W": "width", "T": "token", "D": "depth"}


def axis_names(layout: str, shape: tuple[int, ...]) -> list[str]:
    """Names for the axes: those of the reference where it says them, else their numbers."""
    plain = [f"axis {at}" for at in range(len(shape))]
    if layout.isalpha() and layout.isupper() and len(layout) == len(shape):
        return [_AXES.get(letter, letter) for letter in layout]
    try:
        dims = Dims.parse(layout)
        dims.check(shape)
    except InputError:
        return plain
    named = zip(dims.axes, plain, strict=True)
    return [axis.name if axis.name != "1" else number for axis, number in named]


def blocks(shape: tuple[int, ...], most: int = BLOCK) -> Iterator[Index]:
    """Slices that cover a shape in row-major order, each of at most so many elements."""
    if not prod(shape):
        return
    axis, size = len(shape), 1
    while axis and size * shape[axis - 1] <= most:
        axis -= 1
        size *= shape[axis]
    rest = tuple(slice(0, n) for n in shape[axis:])
    if not axis:
        yield rest
        return
    step = max(most // size, 1)
    for place in np.ndindex(*shape[: axis - 1]):
        before = tuple(slice(at, at + 1) for at in place)
        for start in range(0, shape[axis - 1], step):
            yield (*before, slice(start, min(start + step, shape[axis - 1])), *rest)


def each(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Do it for every item, several at a time: NumPy works without the interpreter's lock."""
    if len(items) < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        for _ in pool.map(work, items):
            pass


def _read(side: Operand, index: Index) -> NDArray[Any]:
    """Elements as they are stored, or dequantized. A file is mapped anew for each piece, so that
    only its own pages are held."""
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
    quantization = _quantization_at(side.quantization, data.shape, index)
    return dequantize(replace(side, data=piece, quantization=quantization))


def _as_floats(values: NDArray[Any]) -> Floats:
    """In float64, with what the processor is fast at in between."""
    if values.dtype == np.float64:
        return values
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    elif values.dtype == DTYPES["bf16"].numpy:
        values = (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def _quantization_at(whole: Quantization, shape: tuple[int, ...], index: Index) -> Quantization:
    if whole.axis is None or len(whole.scale) == 1:
        return whole
    axis = whole.axis % len(shape)
    places = np.arange(shape[axis])[index[axis]] // max(whole.block, 1)
    zeros = whole.zero_point
    return replace(
        whole,
        scale=tuple(whole.scale[at] for at in places),
        zero_point=zeros if len(zeros) == 1 else tuple(zeros[at] for at in places),
        axis=axis,
        block=0,
    )


def _is_lowest(values: Floats) -> NDArray[np.bool_]:
    return np.isin(values, _LOWEST)


def _of_complex(t: NDArray[Any], r: NDArray[Any]) -> Piece:
    t, r = t.astype(np.complex128), r.astype(np.complex128)
    difference = np.abs(t - r)
    same = (t == r) | (np.isnan(t) & np.isnan(r))
    unlike = ~(np.isfinite(t) & np.isfinite(r))
    difference = np.where(unlike & same, 0.0, difference)
    off = np.where(unlike & ~same, np.inf, difference)
    return Piece(np.abs(r), np.abs(t), difference, off)
