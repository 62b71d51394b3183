"""Sync points of which a side kept only a digest: equal bytes are told from unequal ones."""

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
    """Why the bytes of the two cannot be compared, or would say nothing of their numbers."""
    both = (("target", target), ("reference", reference))
    for side, tensor in both:
        if not tensor.digest and tensor.kept is not Kept.VALUES:
            return f"no digest of the {side}"
    if target.dtype != reference.dtype:
        return f"digests of {target.dtype} against {reference.dtype}"
    if target.quantization != reference.quantization:
        return "digests of integers that stand for other numbers"
    if not _common_digest_kind(target, reference, view):
        if not _keeps_order(view, target.shape) and not any(t.kept is Kept.VALUES for _, t in both):
            return f"digests cannot be seen through {view}"
        kinds = [t.digest_kind or "none" for _, t in both]
        if kinds[0] == kinds[1]:
            return f"digests cannot be seen through {view}"
        return f"digests of unlike kind, {kinds[0]} against {kinds[1]}"
    return ""


def _common_digest_kind(target: Tensor, reference: Tensor, view: View) -> str:
    """The kind of digest that both sides can be brought to; "" if there is none."""
    mine, theirs = target.digest_kind, reference.digest_kind
    if _keeps_order(view, target.shape) and target.digest and reference.digest and mine == theirs:
        return mine
    if target.kept is Kept.VALUES and reference.digest and is_computable(theirs):
        return theirs
    undone = _keeps_order(view, target.shape) or is_whole_view(view, target.shape)
    if reference.kept is Kept.VALUES and target.digest and is_computable(mine) and undone:
        return mine
    return ""


def _view_extent(view: View, shape: tuple[int, ...]) -> ViewEffect | None:
    try:
        return view.effect_on(shape)
    except ValueError:
        return None  # which is said when the two are laid over each other


def _keeps_order(view: View, shape: tuple[int, ...]) -> bool:
    seen = _view_extent(view, shape)
    return seen is None or (seen.keeps_all and seen.keeps_order)


def is_whole_view(view: View, shape: tuple[int, ...]) -> bool:
    """Whether a view shows every element of a tensor of this shape."""
    seen = _view_extent(view, shape)
    return seen is None or seen.keeps_all


def misfit_reason(row: Row, target: Tensor, reference: Tensor) -> Reason:
    """Why the two cannot be laid over each other; empty if they can."""
    seen = _view_extent(View(row.view), target.shape)
    if seen is None:
        return view_reason(row.view, target.shape)
    if drop_unit_axes(seen.shape) != drop_unit_axes(reference.shape):
        return shapes_reason(seen.shape, reference.shape)
    return NO_REASON


def measure_by_digest(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> Row:
    """The row with what the digests say."""
    misfit = misfit_reason(row, target, reference)
    if misfit:
        return replace(row, unmeasured=misfit)
    same = has_same_digest(sides, row, target, reference)
    return replace(row, numbers={"count": reference.count, "same_bytes": same})


def has_same_digest(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> bool:
    """Whether the bytes are the same; only for tensors whose bytes can be compared."""
    view = View(row.view)
    kind = _common_digest_kind(target, reference, view)
    if _keeps_order(view, target.shape):
        mine = sides.target.digests(target, kind)
        theirs = sides.reference.digests(reference, kind)
    elif target.kept is Kept.VALUES:
        turned = view.apply(sides.target.values(target))
        mine = compute_digests(kind, target.dtype, lambda: [turned])
        theirs = sides.reference.digests(reference, kind)
    else:
        undone = view.undo(sides.reference.values(reference), target.shape)
        if undone is None:
            raise ValueError(row.view)  # such a pair has no kind in common
        theirs = compute_digests(kind, target.dtype, lambda: [undone])
        mine = sides.target.digests(target, kind)
    return bool(mine & theirs)
