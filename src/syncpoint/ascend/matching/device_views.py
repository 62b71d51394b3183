"""Which view lays a tensor of the device over the one it should equal.

A device keeps tensors in layouts of its own, padded to whole blocks. The rule file says what axes
the original has, and both sides say their shapes. What none of them explains is not compared:
as many numbers are not yet the same numbers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from syncpoint.ascend.dumps.device_facts import facts_of
from syncpoint.ascend.dumps.device_layouts import Misfit, target_view
from syncpoint.ascend.matching.plan_entries import Entry
from syncpoint.ascend.matching.rule_groups import Origin
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run

_FLIPPED = {"NCHW": ("NHWC", (0, 2, 3, 1)), "NHWC": ("NCHW", (0, 3, 1, 2))}
PLAIN = frozenset({"", "ND"})


def laid_over(entry: Entry, target: Run, origin: Origin) -> Entry:
    """The entry with the view of its pair, or with the reason why there is none."""
    mine, theirs = entry.target, entry.reference
    assert mine is not None and theirs is not None
    facts = facts_of(target, mine)
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
