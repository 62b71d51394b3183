"""Sync points of which a side kept no values: what is compared then, and what cannot be.

Digests tell equal bytes from unequal ones, and only where equal bytes would mean equal numbers.
Statistics are of whole tensors, in any order. Where one side has values, its digest or its
statistics are computed from them, through the view.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syncpoint.comparison.operands import (
    WIDENED_MASK,
    fitted,
    operand_of,
    shapes_reason,
    view_reason,
    without_ones,
)
from syncpoint.comparison.rows import Row
from syncpoint.errors import FormatError
from syncpoint.matching.views import Seen, View
from syncpoint.metrics import statistics
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode
from syncpoint.metrics.without_values import compare_statistics, incomparable
from syncpoint.run.digests import compute_digests, is_computable
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Statistics, Tensor
from syncpoint.run.statistics import scale_statistics

if TYPE_CHECKING:
    from syncpoint.comparison.measuring import Sides

_MASKED_TYPES = ("f64", "f32", "f16", "bf16")


def basis_of(target: Tensor, reference: Tensor, view: View) -> str:
    """The best form that both sides can be brought to; "" if there is none."""
    kept = {target.kept, reference.kept}
    if kept == {Kept.VALUES}:
        return Kept.VALUES
    if Kept.DIGEST in kept:
        if not unlike_bytes(target, reference, view):
            return Kept.DIGEST
        # Tools that keep digests may keep a few figures beside them.
        told = all(t.statistics or t.kept is Kept.VALUES for t in (target, reference))
        return Kept.STATISTICS if told else ""
    return Kept.STATISTICS


def unlike_bytes(target: Tensor, reference: Tensor, view: View) -> str:
    """Why the bytes of the two cannot be compared, or would say nothing of their numbers."""
    both = (("target", target), ("reference", reference))
    for side, tensor in both:
        if not tensor.digest and tensor.kept is not Kept.VALUES:
            return f"no digest of the {side}"
    if target.dtype != reference.dtype:
        return f"digests of {target.dtype} against {reference.dtype}"
    if target.quantization != reference.quantization:
        return "digests of integers that stand for other numbers"
    if not _kind(target, reference, view):
        if not _in_order(view, target.shape) and not any(t.kept is Kept.VALUES for _, t in both):
            return f"digests cannot be seen through {view}"
        kinds = [t.digest_kind or "none" for _, t in both]
        if kinds[0] == kinds[1]:
            return f"digests cannot be seen through {view}"
        return f"digests of unlike kind, {kinds[0]} against {kinds[1]}"
    return ""


def _kind(target: Tensor, reference: Tensor, view: View) -> str:
    """The kind of digest that both sides can be brought to; "" if there is none."""
    mine, theirs = target.digest_kind, reference.digest_kind
    if _in_order(view, target.shape) and target.digest and reference.digest and mine == theirs:
        return mine
    if target.kept is Kept.VALUES and reference.digest and is_computable(theirs):
        return theirs
    undone = _in_order(view, target.shape) or _is_whole(view, target.shape)
    if reference.kept is Kept.VALUES and target.digest and is_computable(mine) and undone:
        return mine
    return ""


def _seen(view: View, shape: tuple[int, ...]) -> Seen | None:
    try:
        return view.seen(shape)
    except ValueError:
        return None  # which is said when the two are laid over each other


def _in_order(view: View, shape: tuple[int, ...]) -> bool:
    seen = _seen(view, shape)
    return seen is None or (seen.whole and seen.ordered)


def _is_whole(view: View, shape: tuple[int, ...]) -> bool:
    seen = _seen(view, shape)
    return seen is None or seen.whole


def _misfit(row: Row, target: Tensor, reference: Tensor) -> Reason:
    """Why the two cannot be laid over each other; empty if they can."""
    seen = _seen(View(row.view), target.shape)
    if seen is None:
        return view_reason(row.view, target.shape)
    if without_ones(seen.shape) != without_ones(reference.shape):
        return shapes_reason(seen.shape, reference.shape)
    return NO_REASON


def by_digest(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> Row:
    """The row with what the digests say."""
    misfit = _misfit(row, target, reference)
    if misfit:
        return replace(row, unmeasured=misfit)
    same = _same_bytes(sides, row, target, reference)
    return replace(row, numbers={"count": reference.count, "same_bytes": same})


def _same_bytes(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> bool:
    """Whether the bytes are the same; only for tensors whose bytes can be compared."""
    view = View(row.view)
    kind = _kind(target, reference, view)
    if _in_order(view, target.shape):
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


def by_statistics(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> Row:
    """The row with what the statistics say, and the digests where there are some beside them."""
    misfit = _misfit(row, target, reference)
    if misfit:
        return replace(row, unmeasured=misfit)
    same = None
    if not unlike_bytes(target, reference, View(row.view)):
        same = _same_bytes(sides, row, target, reference)
    mine = statistics_of(sides, 0, target, row.view)
    theirs = statistics_of(sides, 1, reference, "")
    numbers: dict[str, Any] = {"count": reference.count}
    code, why = ReasonCode.INCOMPARABLE, ""
    if isinstance(mine, str) or isinstance(theirs, str):
        why = mine if isinstance(mine, str) else str(theirs)
    else:
        numbers = compare_statistics(mine, theirs)
        if not numbers["mismatched"]:
            why = incomparable(mine, theirs)
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


def statistics_of(sides: Sides, side: int, tensor: Tensor, view: str) -> Statistics | str:
    """The statistics of the real numbers, or why there are none. Those of stored integers are
    scaled where one scale holds for all of them."""
    run = (sides.target, sides.reference)[side]
    whole = _is_whole(View(view), tensor.shape)
    if tensor.kept is Kept.VALUES:
        operand = operand_of(run, tensor)
        if not whole:
            operand, _ = fitted(operand, View(view), ())
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
