"""Variants of reductions: other axes, another kind (sum, mean, extreme), variance bias, ties of
argmax, cumulative sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.reductions import place_of, running
from syncpoint.diagnosis.numpy_ops.reductions import reduced as reduce_by
from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest, variant_with_settings

_TEXT_BY_KIND = {
    "sum": "the sum", "mean": "the mean", "max": "the maximum", "min": "the minimum",
    "l2": "the L2 norm", "var": "the variance", "std": "the standard deviation",
}  # fmt: skip


def vary_reduction(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary sums, means, extremes, variances, argmax / argmin and cumulative sums."""
    bound = tested_op.bound
    if bound is None or not bound.arrays or not isinstance(bound.arrays[0], np.ndarray):
        return
    x = bound.arrays[0]
    if bound.function is place_of:
        returns_last = bool(bound.settings["last"])
        text = (
            f"returns the {'first' if returns_last else 'last'} of equal positions;"
            f" the reference returns the {'last' if returns_last else 'first'}"
        )
        yield from variant_with_settings(tested_op, "argmax-ties", text, 2, last=not returns_last)
        searches_maximum = not bound.settings["greatest"]
        text = (
            "maximum instead of the minimum"
            if searches_maximum
            else "minimum instead of the maximum"
        )
        yield from variant_with_settings(
            tested_op,
            "argmax-kind",
            f"returns the position of the {text}",
            1,
            greatest=searches_maximum,
        )
        for axis in range(x.ndim):
            yield from variant_with_settings(
                tested_op, "reduce-axis", f"searches along axis {axis}", 1, axis=axis
            )
    elif bound.function is running:
        exclusive, reverse = (bool(bound.settings[name]) for name in ("exclusive", "reverse"))
        change = "includes each element in" if exclusive else "leaves each element out of"
        for name, text in (
            ("exclusive", f"{change} its own sum"),
            ("reverse", f"sums from the {'start' if reverse else 'end'}"),
        ):
            yield from variant_with_settings(
                tested_op,
                f"cumsum-{name}",
                text,
                2,
                (f"`{name}`", str(bool(bound.settings[name]))),
                **{name: not bound.settings[name]},
            )
        yield from variant_with_settings(
            tested_op,
            "cumsum-both",
            "sums from the end and leaves each element out of its own sum",
            1,
            exclusive=True,
            reverse=True,
        )
        for axis in range(x.ndim):
            if axis != bound.settings["axis"] % x.ndim:
                yield from variant_with_settings(
                    tested_op,
                    "cumsum-axis",
                    f"sums along axis {axis} instead of {bound.settings['axis']}",
                    2,
                    ("the axis", str(bound.settings["axis"])),
                    axis=axis,
                )
    elif bound.function is reduce_by:
        yield from _vary_settings(tested_op, x)


def _vary_settings(tested_op: OpUnderTest, x: Any) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    settings = tested_op.bound.settings
    reference_text = _TEXT_BY_KIND.get(settings["kind"], settings["kind"])
    for kind, text in _TEXT_BY_KIND.items():
        if kind != settings["kind"]:
            simplicity = 2 if {kind, settings["kind"]} == {"sum", "mean"} else 1
            advice = (
                f"in the target, replace {text} with {reference_text} ({tested_op.op.key} of the"
                " reference)"
            )
            for hypothesis in variant_with_settings(
                tested_op,
                f"{kind}-instead",
                f"computes {text} instead of {reference_text}",
                simplicity,
                kind=kind,
            ):
                yield replace(hypothesis, next=advice)
    if settings["kind"] in ("var", "std"):
        correction = 0.0 if settings.get("correction") else 1.0
        text = (
            "computes the unbiased variance (over n - 1)"
            if correction
            else "computes the biased variance (over n)"
        )
        right = ("`correction`", f"{float(settings.get('correction') or 0.0):g}")
        yield from variant_with_settings(
            tested_op, "variance-bias", text, 2, right, correction=correction
        )
    reference_axes = tuple(settings["over"])
    for axes in combinations(range(x.ndim), len(reference_axes)):
        if axes != tuple(sorted(reference_axes)):
            text = f"reduces over axes {list(axes)} instead of {list(reference_axes)}"
            right = ("the axes", str(list(reference_axes)))
            yield from variant_with_settings(tested_op, "reduce-axis", text, 2, right, over=axes)
