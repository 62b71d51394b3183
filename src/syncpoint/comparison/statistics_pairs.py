"""Sync points of which a side kept only statistics: compare minimum, maximum, mean and norm.

Statistics describe whole tensors, in any order of elements. Where one side has values, its
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
    """The row with the differences of the statistics, and of the digests where there are some."""
    misfit = misfit_reason(row, target, reference)
    if misfit:
        return replace(row, unmeasured=misfit)
    same = None
    if not why_bytes_incomparable(target, reference, View(row.view)):
        same = has_same_digest(sides, row, target, reference)
    target_statistics = tensor_statistics(sides, 0, target, row.view)
    reference_statistics = tensor_statistics(sides, 1, reference, "")
    numbers: dict[str, Any] = {"count": reference.count}
    code, why = ReasonCode.INCOMPARABLE, ""
    if isinstance(target_statistics, str) or isinstance(reference_statistics, str):
        why = target_statistics if isinstance(target_statistics, str) else str(reference_statistics)
    else:
        numbers = compare_statistics(target_statistics, reference_statistics)
        if not numbers["mismatched"]:
            why = why_incomparable(target_statistics, reference_statistics)
        if (
            _are_masked(sides, (target, reference), (target_statistics, reference_statistics))
            and target_statistics.nan == reference_statistics.nan
        ):
            code, why = ReasonCode.MASKED, "the statistics include masked positions"
    if why and not same:
        return replace(row, unmeasured=Reason(code, why))
    if same is not None:
        numbers["same_bytes"] = same
    notes = row.notes
    if DTYPES[reference.dtype].kind is Kind.COMPLEX and not same:
        notes = (*notes, "statistics of complex numbers describe their modulus")
    return replace(row, numbers=numbers, notes=notes)


def tensor_statistics(sides: Sides, side: int, tensor: Tensor, view: str) -> Statistics | str:
    """The statistics of the real numbers, or a text that says why there are none.

    Statistics of stored integers are scaled if all elements have the same scale.
    """
    run = (sides.target, sides.reference)[side]
    is_whole = is_whole_view(View(view), tensor.shape)
    if tensor.kept is Kept.VALUES:
        operand = operand_of(run, tensor)
        if not is_whole:
            operand, _ = fit_view(operand, View(view), ())
        return statistics(operand)
    recorded, quantization = tensor.statistics, tensor.quantization
    if recorded is None:
        return f"the {('target', 'reference')[side]} has no statistics"
    if (
        recorded.count != tensor.count
        or max(recorded.nan, 0) + max(recorded.inf, 0) > recorded.count
    ):
        raise FormatError(
            f"the statistics of {tensor.key} do not fit its {tensor.count} elements: they are of"
            f" {recorded.count} elements, {recorded.nan} NaN and {recorded.inf} infinite",
            cure="record the run again",
        )
    if not is_whole:
        return f"statistics describe the whole tensor, but only {view} is compared"
    if quantization is None:
        return recorded
    if len(quantization.scale) != 1 or len(quantization.zero_point) != 1 or quantization.table:
        return "statistics of integers with several scales or a lookup table"
    return scale_statistics(recorded, quantization.scale[0], quantization.zero_point[0])


def _are_masked(
    sides: Sides, tensors: tuple[Tensor, Tensor], statistics: tuple[Statistics, Statistics]
) -> bool:
    """Whether both sides have masked positions, which dominate every statistic."""
    is_masked = [
        _has_mask(sides, side, tensor, summary.min)
        for side, (tensor, summary) in enumerate(zip(tensors, statistics, strict=True))
    ]
    # The other side may mask with another number or with an infinity.
    may_be_masked = [summary.inf != 0 or summary.min <= WIDENED_MASK for summary in statistics]
    return (is_masked[0] and may_be_masked[1]) or (is_masked[1] and may_be_masked[0])


def _has_mask(sides: Sides, side: int, tensor: Tensor, minimum: float) -> bool:
    if tensor.dtype not in _MASKED_TYPES or tensor.quantization is not None:
        return False
    preset = sides.precisions[side].of(tensor)
    if tensor.dtype in ("f32", "f64") and preset == "f16":
        return minimum <= WIDENED_MASK
    return minimum <= -DTYPES[tensor.dtype].max / 2
