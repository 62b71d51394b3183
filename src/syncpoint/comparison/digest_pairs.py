"""Sync points of which a side kept only a digest: are the bytes equal?

A digest compares bytes. It is used only where equal bytes mean equal numbers. Where one side has
values, its digest is computed from them, through the view.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from syncpoint.comparison.operands import drop_unit_axes, shapes_reason, view_reason
from syncpoint.comparison.rows import Row
from syncpoint.matching.views import View, ViewEffect
from syncpoint.metrics.verdict import NO_REASON, Reason
from syncpoint.run.digests import compute_digests, is_computable
from syncpoint.run.model import Kept, Tensor

if TYPE_CHECKING:
    from syncpoint.comparison.sides import Sides


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
