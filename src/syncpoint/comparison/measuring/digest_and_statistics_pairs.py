"""Measure pairs without values by digests (equal bytes) or statistics, or say why not; views that
keep all elements, masks; rows close but unproven.

Digests tell whether the bytes are equal. Statistics are minimum, maximum, mean and norm; they
cannot prove equality.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syncpoint.comparison.operands import (
    WIDENED_MASK,
    drop_unit_axes,
    fit_view,
    operand_of,
    shapes_reason,
    view_reason,
)
from syncpoint.comparison.rows import Row
from syncpoint.errors import FormatError
from syncpoint.matching.views import View, ViewEffect
from syncpoint.metrics import statistics
from syncpoint.metrics.statistics_bounds import compare_statistics, why_incomparable
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode, Verdict
from syncpoint.run.digests import compute_digests, is_computable
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Statistics, Tensor
from syncpoint.run.statistics import scale_statistics

if TYPE_CHECKING:
    from syncpoint.comparison.sides import Sides

_MASKED_TYPES = ("f64", "f32", "f16", "bf16")


def why_bytes_incomparable(target: Tensor, reference: Tensor, view: View) -> str:
    """Why the bytes of two tensors cannot be compared; "" where they can."""
    tensors = (("target", target), ("reference", reference))
    for side, tensor in tensors:
        if not tensor.digest and tensor.kept is not Kept.VALUES:
            return f"the {side} has no digest"
    if target.dtype != reference.dtype:
        return f"digests of different dtypes, {target.dtype} and {reference.dtype}"
    if target.quantization != reference.quantization:
        return "digests of integers with different quantization"
    if not _common_digest_kind(target, reference, view):
        if not _keeps_order(view, target.shape) and not any(
            t.kept is Kept.VALUES for _, t in tensors
        ):
            return f"digests cannot be compared through the view {view}"
        kinds = [t.digest_kind or "none" for _, t in tensors]
        if kinds[0] == kinds[1]:
            return f"digests cannot be compared through the view {view}"
        return f"digests of different kinds, {kinds[0]} and {kinds[1]}"
    return ""


def _common_digest_kind(target: Tensor, reference: Tensor, view: View) -> str:
    """The kind of digest that is available for both sides; "" if there is none."""
    target_kind, reference_kind = target.digest_kind, reference.digest_kind
    if (
        _keeps_order(view, target.shape)
        and target.digest
        and reference.digest
        and target_kind == reference_kind
    ):
        return target_kind
    if target.kept is Kept.VALUES and reference.digest and is_computable(reference_kind):
        return reference_kind
    can_undo_view = _keeps_order(view, target.shape) or is_whole_view(view, target.shape)
    if (
        reference.kept is Kept.VALUES
        and target.digest
        and is_computable(target_kind)
        and can_undo_view
    ):
        return target_kind
    return ""


def _view_extent(view: View, shape: tuple[int, ...]) -> ViewEffect | None:
    try:
        return view.effect_on(shape)
    except ValueError:
        return None  # reported when the shapes are compared


def _keeps_order(view: View, shape: tuple[int, ...]) -> bool:
    extent = _view_extent(view, shape)
    return extent is None or (extent.keeps_all and extent.keeps_order)


def is_whole_view(view: View, shape: tuple[int, ...]) -> bool:
    """Whether a view shows every element of a tensor of this shape."""
    extent = _view_extent(view, shape)
    return extent is None or extent.keeps_all


def misfit_reason(row: Row, target: Tensor, reference: Tensor) -> Reason:
    """Why the shapes of two tensors do not fit; empty if they do."""
    extent = _view_extent(View(row.view), target.shape)
    if extent is None:
        return view_reason(row.view, target.shape)
    if drop_unit_axes(extent.shape) != drop_unit_axes(reference.shape):
        return shapes_reason(extent.shape, reference.shape)
    return NO_REASON


def measure_by_digest(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> Row:
    """The row with whether both sides have the same bytes."""
    misfit = misfit_reason(row, target, reference)
    if misfit:
        return replace(row, unmeasured=misfit)
    same = has_same_digest(sides, row, target, reference)
    return replace(row, numbers={"count": reference.count, "same_bytes": same})


def has_same_digest(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> bool:
    """Whether the bytes are the same; for tensors whose bytes can be compared only."""
    view = View(row.view)
    kind = _common_digest_kind(target, reference, view)
    if _keeps_order(view, target.shape):
        target_digests = sides.target.digests(target, kind)
        reference_digests = sides.reference.digests(reference, kind)
    elif target.kept is Kept.VALUES:
        viewed_values = view.apply(sides.target.values(target))
        target_digests = compute_digests(kind, target.dtype, lambda: [viewed_values])
        reference_digests = sides.reference.digests(reference, kind)
    else:
        stored_values = view.undo(sides.reference.values(reference), target.shape)
        if stored_values is None:
            raise ValueError(row.view)  # such a pair has no common kind of digest
        reference_digests = compute_digests(kind, target.dtype, lambda: [stored_values])
        target_digests = sides.target.digests(target, kind)
    return bool(target_digests & reference_digests)


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
            f"the statistics of {tensor.key} do not fit its {tensor.count} elements: they describe"
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


def has_same_bytes(row: Row) -> bool:
    """Whether digests show that both sides of a row have the same bytes."""
    return row.basis != Kept.VALUES and bool((row.numbers or {}).get("same_bytes"))


def is_unproven(row: Row) -> bool:
    """Whether a row is close by statistics only, which cannot prove equality."""
    close = row.verdict is Verdict.CLOSE
    return close and (row.ends_only or (row.basis == Kept.STATISTICS and not has_same_bytes(row)))
