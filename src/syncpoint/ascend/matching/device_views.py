"""Choose the view from a device tensor to its partner (golden array or device tensor), by axes or
by merged axes, or say why the shapes do not fit.

A device stores tensors in its own layouts, padded to whole blocks. The rule file has the axes of
the original tensor, and both sides have shapes. A pair that these do not explain is not compared:
the same number of elements does not mean the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from syncpoint.ascend.dumps.device_file import tensor_facts
from syncpoint.ascend.matching.device_layouts import (
    AXIS_ORDERS,
    FOLDED_LAYOUTS,
    ND,
    Shape,
    ViewSteps,
    crop_sizes,
    is_within,
    positive_shape,
    to_logical,
    unfold_layout,
)
from syncpoint.ascend.matching.offline_data.original_ops import OriginalOutput
from syncpoint.ascend.matching.plan import PlanEntry, format_form
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run

_OTHER_ORDER = {"NCHW": ("NHWC", (0, 2, 3, 1)), "NHWC": ("NCHW", (0, 3, 1, 2))}
PLAIN_LAYOUTS = frozenset({"", "ND"})
_AXIS_LETTERS = frozenset("NCDHWL")


@dataclass(frozen=True)
class Misfit:
    """Why there is no view between two tensors."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def add_view(entry: PlanEntry, target_run: Run, original: OriginalOutput) -> PlanEntry:
    """The entry with the view of its pair, or with the reason why there is none."""
    target, reference = entry.target, entry.reference
    assert target is not None and reference is not None
    facts = tensor_facts(target_run, target)
    axes = _reference_axes(original, reference)
    if target.layout in PLAIN_LAYOUTS and axes in PLAIN_LAYOUTS:
        view = _plain_view(target, reference, original)
    else:
        view = target_view(
            target.shape,
            target.layout,
            axes,
            reference.shape,
            tuple(facts.get("original_shape", ())),
            int(facts.get("sub_format", 0)),
        )
    if isinstance(view, Misfit):
        return replace(
            entry,
            axes=axes,
            reason=ReasonCode.SHAPE,
            report_text=f"[{entry.op}] {_as_sentence(view.reason)}",
        )
    note = entry.note
    if axes != original.axes:
        axes_note = f"the golden has the axes {axes}, the rule file says {original.axes}"
        note = f"{note}; {axes_note}" if note else axes_note
    return replace(entry, axes=axes, view=View(view), note=note)


def graph_view(target_run: Run, target: Tensor, reference: Tensor) -> View | str:
    """The view between tensors of two dumps of TorchAir, or why there is none."""
    tensors = (target, reference)
    is_same = (target.layout, target.shape) == (reference.layout, reference.shape)
    is_plain = all(t.layout in PLAIN_LAYOUTS or set(t.layout) <= _AXIS_LETTERS for t in tensors)
    if is_same or (is_plain and drop_unit_axes(target.shape) == drop_unit_axes(reference.shape)):
        return View()
    if is_plain and is_regrouped(target.shape, reference.shape):
        return View(f"reshape({','.join(map(str, reference.shape))})")
    if target.layout not in PLAIN_LAYOUTS and reference.layout in PLAIN_LAYOUTS:
        facts = tensor_facts(target_run, target)
        original = tuple(facts.get("original_shape", ()))
        sub_format = int(facts.get("sub_format", 0))
        for axes in ("NCHW", "NCDHW", "ND"):
            if len(axes) in (2, len(reference.shape)):
                view = target_view(
                    target.shape, target.layout, axes, reference.shape, original, sub_format
                )
                if not isinstance(view, Misfit):
                    return View(view)
    return f"{format_form(target)} against {format_form(reference)}"


def _reference_axes(original: OriginalOutput, reference: Tensor) -> str:
    """The axes of the reference; its file may have the other of the two common orders."""
    other_order = _OTHER_ORDER.get(original.axes)
    if other_order and original.shape and len(original.shape) == 4 == len(reference.shape):
        axes, order = other_order
        transposed = tuple(original.shape[a] for a in order)
        if reference.shape == transposed != original.shape:
            return axes
    return original.axes


def _plain_view(target: Tensor, reference: Tensor, original: OriginalOutput) -> str | Misfit:
    if drop_unit_axes(target.shape) == drop_unit_axes(reference.shape):
        return ""
    if is_regrouped(target.shape, reference.shape):
        return f"reshape({','.join(map(str, reference.shape))})"
    if is_within(reference.shape, target.shape) and original.shape == reference.shape:
        # By the rule file, the device tensor is the original one with padding.
        return str(ViewSteps(target.shape).crop(reference.shape))
    return Misfit(_shape_mismatch_text(target.shape, reference.shape))


def drop_unit_axes(shape: Shape) -> Shape:
    """The shape without its axes of length one."""
    return tuple(n for n in shape if n != 1)


def is_regrouped(first: Shape, second: Shape) -> bool:
    """Whether one shape is the other with neighbouring axes merged, so that the order of elements
    can be the same. (2, 3) and (3, 2) have as many elements, but not in the same order."""
    if prod(first) != prod(second):
        return False
    shapes = (drop_unit_axes(first), drop_unit_axes(second))
    longer, shorter = sorted(shapes, key=len, reverse=True)
    return _boundaries(shorter) <= _boundaries(longer)


def _shape_mismatch_text(target: Shape, reference: Shape) -> str:
    if prod(target) == prod(reference):
        return (
            f"The shapes {target} and {reference} hold as many numbers, but not the same way:"
            " comparing them in order would compare unlike elements."
        )
    if prod(target) > prod(reference):
        return (
            f"The left dump data {target} is larger than the right dump data {reference}, and"
            " nothing says which part of it to compare."
        )
    return (
        "Due to the different shapes on the left and right,the left dump data"
        f"{_flat_4d(target)} can not be compared to the right dump data{_flat_4d(reference)}."
        " Please check the batch of the dump data or the shape may be changed due to optimization."
    )


def _flat_4d(shape: Shape) -> Shape:
    """The shape in the form of the report: all elements in one axis, and three axes of one."""
    return (prod(shape), 1, 1, 1)


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def target_view(
    shape: Sequence[int],
    layout: str,
    golden_axes: str,
    golden_shape: Sequence[int],
    original_shape: Sequence[int] = (),
    sub_format: int = 0,
) -> str | Misfit:
    """The view from a tensor of a device to a golden array, or why there is none.

    Padding is cropped at the end of each axis, and only if the layout pads or the device declares
    the original shape. A golden array that is smaller for another reason does not fit.
    """
    shape, golden = tuple(shape), tuple(golden_shape)
    original = positive_shape(original_shape)
    axes = golden_axes if golden_axes != ND and len(golden_axes) == len(golden) else ""
    if original and prod(original) != prod(golden):
        return Misfit(
            f"shape mismatch: the device declares the shape {_text(original)}, the golden array"
            f" has {_text(golden)}"
        )
    view = _view_by_axes(shape, layout, axes, golden, original, sub_format)
    if view is not None:
        return view
    if not _is_readable(shape, layout):
        return Misfit(f"the layout {layout or ND} of shape {_text(shape)} is not supported")
    view = _view_by_regrouping(shape, layout, axes, golden, original, sub_format)
    if view is not None:
        return view
    if layout in FOLDED_LAYOUTS and sub_format > 1:
        return Misfit(
            f"several of the {sub_format} groups in the layout {layout} share a block, or their"
            f" shape is not {_text(golden)}"
        )
    axes_text = f" ({golden_axes})" if golden_axes else ""
    return Misfit(
        f"shape mismatch: {_text(shape)} in the layout {layout or ND} does not become"
        f" {_text(golden)}{axes_text} by cropping the padding"
    )


def _view_by_axes(
    shape: Shape, layout: str, axes: str, golden: Shape, original: Shape, sub_format: int
) -> str | None:
    """The view that reorders the axes to those of the golden array, and crops them."""
    for order in _golden_orders(axes):
        view = _view_in_order(shape, layout, order, golden, original, sub_format)
        if view is not None:
            return view
    if not axes and original == golden:
        # The device declares the shape of the golden array, so one of the orders is right.
        orders = AXIS_ORDERS.get(len(golden), ())
        candidates = (
            _view_in_order(shape, layout, order, golden, original, sub_format) for order in orders
        )
        views = set(candidates) - {None}
        if len(views) == 1:
            return views.pop()
    return None


def _view_by_regrouping(
    shape: Shape, layout: str, axes: str, golden: Shape, original: Shape, sub_format: int
) -> str | None:
    """The view that reshapes the original shape of the device to that of the golden array."""
    if not original:
        return None
    logical = to_logical(shape, layout, original, sub_format)
    if logical is None or (axes and logical.axes != ND):
        return None
    if not _is_regrouped_strictly(logical.shape, golden):
        return None
    return str(ViewSteps(logical.shape, logical.view).reshape(*golden))


def _golden_orders(axes: str) -> tuple[str, ...]:
    """The possible axis orders of a golden array: the declared one, then with moved channels."""
    if not axes:
        return (ND,)
    moved = {"NCHW": "NHWC", "NHWC": "NCHW", "NCDHW": "NDHWC", "NDHWC": "NCDHW"}.get(axes)
    return (axes, moved) if moved is not None else (axes,)


def _view_in_order(
    shape: Shape, layout: str, order: str, golden: Shape, original: Shape, sub_format: int
) -> str | None:
    """The view to a golden array whose axes are in this order; None if there is not exactly one."""
    views = set()
    # Without axis names, the sizes that a layout hides are tried in every usual order.
    guesses = (order,) if order != ND else (ND, *AXIS_ORDERS.get(len(golden), ()))
    for guess in guesses:
        sizes = dict(zip(guess, golden, strict=True)) if guess != ND else {}
        logical = unfold_layout(shape, layout, sizes, sub_format)
        if logical is None or (guess != order and layout not in FOLDED_LAYOUTS):
            continue
        steps = ViewSteps(logical.shape, logical.view)
        blocks = logical.blocks
        has_names = ND not in (guess, logical.axes)
        if has_names:
            if sorted(guess) != sorted(logical.axes):
                continue
            permutation = [logical.axes.index(axis) for axis in guess]
            steps.transpose(*permutation)
            blocks = tuple(blocks[axis] for axis in permutation)
        crop = crop_sizes(steps.shape, blocks, golden, strict=has_names)
        if crop is None and blocks == (1,) * len(blocks) and original == golden:
            crop = golden if is_within(golden, steps.shape) else None
        if crop is not None:
            views.add(str(steps.crop(crop).reshape(*golden)))
    return views.pop() if len(views) == 1 else None


def _is_regrouped_strictly(first: Shape, second: Shape) -> bool:
    """Like `is_regrouped`, but not for empty shapes."""
    boundaries = (_boundaries(first), _boundaries(second))
    is_merged = boundaries[0] <= boundaries[1] or boundaries[1] <= boundaries[0]
    return prod(first) == prod(second) > 0 and is_merged


def _boundaries(shape: Shape) -> set[int]:
    """The products of the first axes: where a merged axis may end."""
    return {prod(shape[:k]) for k in range(len(shape) + 1)}


def _is_readable(shape: Shape, layout: str) -> bool:
    is_folded = layout in FOLDED_LAYOUTS and len(shape) == 4
    return is_folded or unfold_layout(shape, layout, {}, 0) is not None


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a scalar"
