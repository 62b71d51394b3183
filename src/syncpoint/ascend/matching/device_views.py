"""Which view lays a tensor of the device over the one it should equal.

A device keeps tensors in layouts of its own, padded to whole blocks. The rule file says what axes
the original has, and both sides say their shapes. What none of them explains is not compared:
as many numbers are not yet the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from syncpoint.ascend.dumps.device_facts import tensor_facts
from syncpoint.ascend.matching.device_layouts import (
    AXIS_ORDERS,
    FOLDED_LAYOUTS,
    ND,
    Shape,
    ViewSteps,
    known_shape,
    to_logical,
    unfold_layout,
)
from syncpoint.ascend.matching.device_padding import crop_sizes, is_within
from syncpoint.ascend.matching.offline_data.original_ops import Origin
from syncpoint.ascend.matching.plan import Entry, form_text
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run

_FLIPPED = {"NCHW": ("NHWC", (0, 2, 3, 1)), "NHWC": ("NCHW", (0, 3, 1, 2))}
PLAIN = frozenset({"", "ND"})
_AXIS_LETTERS = frozenset("NCDHWL")


@dataclass(frozen=True)
class Misfit:
    """Why a tensor cannot be laid over another."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def laid_over(entry: Entry, target: Run, origin: Origin) -> Entry:
    """The entry with the view of its pair, or with the reason why there is none."""
    mine, theirs = entry.target, entry.reference
    assert mine is not None and theirs is not None
    facts = tensor_facts(target, mine)
    axes = _axes(origin, theirs)
    if mine.layout in PLAIN and axes in PLAIN:
        found = _plain(mine, theirs, origin)
    else:
        found = target_view(
            mine.shape,
            mine.layout,
            axes,
            theirs.shape,
            tuple(facts.get("original_shape", ())),
            int(facts.get("sub_format", 0)),
        )
    if isinstance(found, Misfit):
        return replace(
            entry,
            axes=axes,
            reason=ReasonCode.SHAPE,
            words=f"[{entry.op}] {_sentence(found.reason)}",
        )
    note = entry.note
    if axes != origin.axes:
        said = f"the golden has the axes {axes}, the rule file says {origin.axes}"
        note = f"{note}; {said}" if note else said
    return replace(entry, axes=axes, view=View(found), note=note)


def graph_view(run: Run, mine: Tensor, theirs: Tensor) -> View | str:
    """The view between tensors of two dumps of TorchAir, or in words why there is none. `run` has
    the first."""
    same = (mine.layout, mine.shape) == (theirs.layout, theirs.shape)
    plain = all(t.layout in PLAIN or set(t.layout) <= _AXIS_LETTERS for t in (mine, theirs))
    if same or (plain and without_ones(mine.shape) == without_ones(theirs.shape)):
        return View()
    if plain and regrouped(mine.shape, theirs.shape):
        return View(f"reshape({','.join(map(str, theirs.shape))})")
    if mine.layout not in PLAIN and theirs.layout in PLAIN:
        facts = tensor_facts(run, mine)
        original = tuple(facts.get("original_shape", ()))
        for axes in ("NCHW", "NCDHW", "ND"):
            if len(axes) in (2, len(theirs.shape)):
                sub = int(facts.get("sub_format", 0))
                found = target_view(mine.shape, mine.layout, axes, theirs.shape, original, sub)
                if not isinstance(found, Misfit):
                    return View(found)
    return f"{form_text(mine)} against {form_text(theirs)}"


def _axes(origin: Origin, reference: Tensor) -> str:
    """Names of the reference's axes; the file may have the other of the two common orders."""
    flipped = _FLIPPED.get(origin.axes)
    if flipped and origin.shape and len(origin.shape) == 4 == len(reference.shape):
        name, order = flipped
        turned = tuple(origin.shape[a] for a in order)
        if reference.shape == turned != origin.shape:
            return name
    return origin.axes


def _plain(mine: Tensor, theirs: Tensor, origin: Origin) -> str | Misfit:
    if without_ones(mine.shape) == without_ones(theirs.shape):
        return ""
    if regrouped(mine.shape, theirs.shape):
        return f"reshape({','.join(map(str, theirs.shape))})"
    inside = len(mine.shape) == len(theirs.shape) and all(
        a >= b for a, b in zip(mine.shape, theirs.shape, strict=True)
    )
    if inside and origin.shape == theirs.shape:
        # The rule file says that the device's tensor is the original one with padding.
        steps = [
            f"slice({axis},0,{b})"
            for axis, (a, b) in enumerate(zip(mine.shape, theirs.shape, strict=True))
            if a != b
        ]
        return " ".join(steps)
    return Misfit(_differ(mine.shape, theirs.shape))


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that have a length."""
    return tuple(n for n in shape if n != 1)


def regrouped(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether one shape is the other with neighbouring axes merged: then the order of elements
    can be the same. (2, 3) and (3, 2) hold as many numbers, but not the same way."""
    if prod(a) != prod(b):
        return False
    longer, shorter = sorted((without_ones(a), without_ones(b)), key=len, reverse=True)
    ends = {prod(longer[:at]) for at in range(len(longer) + 1)}
    return all(prod(shorter[:at]) in ends for at in range(len(shorter) + 1))


def _differ(mine: tuple[int, ...], theirs: tuple[int, ...]) -> str:
    if prod(mine) == prod(theirs):
        return (
            f"The shapes {mine} and {theirs} hold as many numbers, but not the same way:"
            " comparing them in order would compare unlike elements."
        )
    if prod(mine) > prod(theirs):
        return (
            f"The left dump data {mine} is larger than the right dump data {theirs}, and nothing"
            " says which part of it to compare."
        )
    return (
        "Due to the different shapes on the left and right,the left dump data"
        f"{_four(mine)} can not be compared to the right dump data{_four(theirs)}."
        " Please check the batch of the dump data or the shape may be changed due to optimization."
    )


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As the report has it: all elements in a row, and three more axes."""
    return (prod(shape), 1, 1, 1)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def target_view(
    shape: Sequence[int],
    layout: str,
    golden_axes: str,
    golden_shape: Sequence[int],
    original_shape: Sequence[int] = (),
    sub_format: int = 0,
) -> str | Misfit:
    """The view that lays a device's tensor over a golden array, or why there is none.

    Padding is cut off at the end of each axis, and only where the layout pads or the device says
    what the shape was before. A golden array that is smaller for another reason does not fit.
    """
    shape, golden = tuple(shape), tuple(golden_shape)
    original = known_shape(original_shape)
    named = golden_axes if golden_axes != ND and len(golden_axes) == len(golden) else ""
    if original and prod(original) != prod(golden):
        return Misfit(
            f"the device says that its shape is {_text(original)}, the golden array has"
            f" {_text(golden)}"
        )
    view = _view_by_axes(shape, layout, named, golden, original, sub_format)
    if view is not None:
        return view
    if not _readable(shape, layout):
        return Misfit(f"the layout {layout or ND} of shape {_text(shape)} cannot be undone")
    view = _view_by_regrouping(shape, layout, named, golden, original, sub_format)
    if view is not None:
        return view
    if layout in FOLDED_LAYOUTS and sub_format > 1:
        return Misfit(
            f"of {sub_format} groups in the layout {layout} several share a block, or the shape"
            f" {_text(golden)} is not theirs"
        )
    said = f" ({golden_axes})" if golden_axes else ""
    return Misfit(
        f"shape {_text(shape)} in the layout {layout or ND} cannot be laid over"
        f" {_text(golden)}{said} by cutting off padding"
    )


def _view_by_axes(
    shape: Shape, layout: str, named: str, golden: Shape, original: Shape, sub_format: int
) -> str | None:
    """The view that keeps the axes apart and puts them in the order of the golden array."""
    for order in _golden_orders(named):
        view = _over(shape, layout, order, golden, original, sub_format)
        if view is not None:
            return view
    if not named and original == golden:
        # The device has the very shape of the golden array for it, so one order of axes is right.
        orders = AXIS_ORDERS.get(len(golden), ())
        views = {_over(shape, layout, o, golden, original, sub_format) for o in orders} - {None}
        if len(views) == 1:
            return views.pop()
    return None


def _view_by_regrouping(
    shape: Shape, layout: str, named: str, golden: Shape, original: Shape, sub_format: int
) -> str | None:
    """The view that reshapes what the device says its shape was into the golden array's."""
    if not original:
        return None
    logical = to_logical(shape, layout, original, sub_format)
    if logical is None or (named and logical.axes != ND):
        return None
    if not _regroups(logical.shape, golden):
        return None
    return str(ViewSteps(logical.shape, logical.view).reshape(*golden))


def _golden_orders(named: str) -> tuple[str, ...]:
    """The orders a golden array may have: what is said of it first, then its channels moved."""
    if not named:
        return (ND,)
    flipped = {"NCHW": "NHWC", "NHWC": "NCHW", "NCDHW": "NDHWC", "NDHWC": "NCDHW"}.get(named)
    return (named, flipped) if flipped is not None else (named,)


def _over(
    shape: Shape, layout: str, order: str, golden: Shape, original: Shape, sub_format: int
) -> str | None:
    """The view onto a golden array whose axes are in this order; the only one, or None."""
    found = set()
    # Without names, sizes that a layout hides are tried in every order that people have.
    guesses = (order,) if order != ND else (ND, *AXIS_ORDERS.get(len(golden), ()))
    for guess in guesses:
        sizes = dict(zip(guess, golden, strict=True)) if guess != ND else {}
        logical = unfold_layout(shape, layout, sizes, sub_format)
        if logical is None or (guess != order and layout not in FOLDED_LAYOUTS):
            continue
        steps = ViewSteps(logical.shape, logical.view)
        blocks = logical.blocks
        both = ND not in (guess, logical.axes)
        if both:
            if sorted(guess) != sorted(logical.axes):
                continue
            axes = [logical.axes.index(a) for a in guess]
            steps.transpose(*axes)
            blocks = tuple(blocks[a] for a in axes)
        crop = crop_sizes(steps.shape, blocks, golden, strict=both)
        if crop is None and blocks == (1,) * len(blocks) and original == golden:
            crop = golden if is_within(golden, steps.shape) else None
        if crop is not None:
            found.add(str(steps.crop(crop).reshape(*golden)))
    return found.pop() if len(found) == 1 else None


def _regroups(one: Shape, other: Shape) -> bool:
    """Whether one shape is the other with neighbouring axes merged; 2x3 and 3x2 are not so."""
    first, second = _boundaries(one), _boundaries(other)
    return prod(one) == prod(other) > 0 and (first <= second or second <= first)


def _boundaries(shape: Shape) -> set[int]:
    return {prod(shape[:k]) for k in range(len(shape) + 1)}


def _readable(shape: Shape, layout: str) -> bool:
    folded = layout in FOLDED_LAYOUTS and len(shape) == 4
    return folded or unfold_layout(shape, layout, {}, 0) is not None


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a scalar"
