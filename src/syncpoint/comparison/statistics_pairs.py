"""Sync points of which a side kept no values: what is compared then, and what cannot be.

Digests tell equal bytes from unequal ones, and only where equal bytes would mean equal numbers.
Statistics are of whole tensors, in any order. Where one side has values, its digest or its
statistics are computed from them, through the view.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syncpoint.comparison.digest_pairs import (
    has_same_digest,
    is_whole_view,
    misfit_reason,
    why_bytes_incomparable,
)
from syncpoint.comparison.operands import (
    WIDENED_MASK,
    fit_view,
    operand_of,
)
from syncpoint.comparison.rows import Row
from syncpoint.errors import FormatError
from syncpoint.matching.views import View
from syncpoint.metrics import statistics
from syncpoint.metrics.statistics_bounds import compare_statistics, why_incomparable
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Statistics, Tensor
from syncpoint.run.statistics import scale_statistics

if TYPE_CHECKING:
    from syncpoint.comparison.sides import Sides

_MASKED_TYPES = ("f64", "f32", "f16", "bf16")


def measure_by_statistics(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> Row:
    """The row with what the statistics say, and the digests where there are some beside them."""
    misfit = misfit_reason(row, target, reference)
    if misfit:
        return replace(row, unmeasured=misfit)
    same = None
    if not why_bytes_incomparable(target, reference, View(row.view)):
        same = has_same_digest(sides, row, target, reference)
    mine = tensor_statistics(sides, 0, target, row.view)
    theirs = tensor_statistics(sides, 1, reference, "")
    numbers: dict[str, Any] = {"count": reference.count}
    code, why = ReasonCode.INCOMPARABLE, ""
    if isinstance(mine, str) or isinstance(theirs, str):
        why = mine if isinstance(mine, str) else str(theirs)
    else:
        numbers = compare_statistics(mine, theirs)
        if not numbers["mismatched"]:
            why = why_incomparable(mine, theirs)
        if _are_masked(sides, (target, reference), (mine, theirs)) and mine.nan == theirs.nan:
            code, why = ReasonCode.MASKED, "the statistics are of masked positions too"
    if why and not same:
        return replace(row, unmeasured=Reason(code, why))
    if same is not None:
        numbers["same_bytes"] = same
    notes = row.notes
    if DTYPES[reference.dtype].kind is Kind.COMPLEX and not same:
        notes = (*notes, "statistics of complex numbers are of their modulus")
    return replace(row, numbers=numbers, notes=notes)


def tensor_statistics(sides: Sides, side: int, tensor: Tensor, view: str) -> Statistics | str:
    """The statistics of the real numbers, or why there are none. Those of stored integers are
    scaled where one scale holds for all of them."""
    run = (sides.target, sides.reference)[side]
    whole = is_whole_view(View(view), tensor.shape)
    if tensor.kept is Kept.VALUES:
        operand = operand_of(run, tensor)
        if not whole:
            operand, _ = fit_view(operand, View(view), ())
        return statistics(operand)
    found, quantization = tensor.statistics, tensor.quantization
    if found is None:
        return f"no statistics of the {('target', 'reference')[side]}"
    if found.count != tensor.count or max(found.nan, 0) + max(found.inf, 0) > found.count:
        raise FormatError(
            f"statistics of the {tensor.count} elements of {tensor.key}",
            f"of {found.count}, {found.nan} NaN and {found.inf} infinite",
        )
    if not whole:
        return f"statistics are of the whole tensor, and {view} is compared"
    if quantization is None:
        return found
    if len(quantization.scale) != 1 or len(quantization.zero_point) != 1 or quantization.table:
        return "statistics of integers with several scales, or with a table"
    return scale_statistics(found, quantization.scale[0], quantization.zero_point[0])


def _are_masked(
    sides: Sides, tensors: tuple[Tensor, Tensor], figures: tuple[Statistics, Statistics]
) -> bool:
    """Whether both sides have masked positions, which outweigh all others in every figure."""
    marked = [
        _is_mask(sides, side, tensor, said.min)
        for side, (tensor, said) in enumerate(zip(tensors, figures, strict=True))
    ]
    # A mask may be another number on the other side, or an infinity.
    may = [said.inf != 0 or said.min <= WIDENED_MASK for said in figures]
    return (marked[0] and may[1]) or (marked[1] and may[0])


def _is_mask(sides: Sides, side: int, tensor: Tensor, low: float) -> bool:
    if tensor.dtype not in _MASKED_TYPES or tensor.quantization is not None:
        return False
    through = sides.precisions[side].of(tensor)
    if tensor.dtype in ("f32", "f64") and through == "f16":
        return low <= WIDENED_MASK
    return low <= -DTYPES[tensor.dtype].max / 2
