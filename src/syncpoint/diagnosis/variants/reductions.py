"""Reductions: other axes, another kind, biased or unbiased, ties, running sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.reductions import place_of, running
from syncpoint.diagnosis.numpy_ops.reductions import reduced as reduce_by
from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen, variant_with_settings

_KINDS = {
    "sum": "the sum", "mean": "the mean", "max": "the maximum", "min": "the minimum",
    "l2": "the L2 norm", "var": "the variance", "std": "the standard deviation",
}  # fmt: skip


def reductions(seen: Seen) -> Iterable[Hypothesis]:
    """For sums, means, extremes, variances, places of extremes and running sums."""
    bound = seen.bound
    if bound is None or not bound.arrays or not isinstance(bound.arrays[0], np.ndarray):
        return
    x = bound.arrays[0]
    if bound.function is place_of:
        last = bool(bound.settings["last"])
        text = (
            f"returns the {'first' if last else 'last'} of equal positions;"
            f" the reference returns the {'last' if last else 'first'}"
        )
        yield from variant_with_settings(seen, "argmax-ties", text, 2, last=not last)
        flipped = not bound.settings["greatest"]
        text = "maximum instead of the minimum" if flipped else "minimum instead of the maximum"
        yield from variant_with_settings(
            seen, "argmax-kind", f"returns the position of the {text}", 1, greatest=flipped
        )
        for axis in range(x.ndim):
            yield from variant_with_settings(
                seen, "reduce-axis", f"searches along axis {axis}", 1, axis=axis
            )
    elif bound.function is running:
        exclusive, reverse = (bool(bound.settings[name]) for name in ("exclusive", "reverse"))
        change = "includes each element in" if exclusive else "leaves each element out of"
        for name, text in (
            ("exclusive", f"{change} its own sum"),
            ("reverse", f"sums from the {'start' if reverse else 'end'}"),
        ):
            yield from variant_with_settings(
                seen, f"cumsum-{name}", text, 2, **{name: not bound.settings[name]}
            )
        yield from variant_with_settings(
            seen, "cumsum-both", "sums from the end and leaves each element out of its own sum", 1,
            exclusive=True, reverse=True,
        )  # fmt: skip
        for axis in range(x.ndim):
            if axis != bound.settings["axis"] % x.ndim:
                yield from variant_with_settings(
                    seen,
                    "cumsum-axis",
                    f"sums along axis {axis} instead of {bound.settings['axis']}",
                    2,
                    axis=axis,
                )
    elif bound.function is reduce_by:
        yield from _reduced(seen, x)


def _reduced(seen: Seen, x: Any) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    own = seen.bound.settings
    for kind, text in _KINDS.items():
        if kind != own["kind"]:
            simple = 2 if {kind, own["kind"]} == {"sum", "mean"} else 1
            yield from variant_with_settings(
                seen,
                f"{kind}-instead",
                f"computes {text} instead of {_KINDS.get(own['kind'], own['kind'])}",
                simple,
                kind=kind,
            )
    if own["kind"] in ("var", "std"):
        less = 0.0 if own.get("correction") else 1.0
        text = (
            "computes the unbiased variance (over n - 1)"
            if less
            else "computes the biased variance (over n)"
        )
        yield from variant_with_settings(seen, "variance-bias", text, 2, correction=less)
    over = tuple(own["over"])
    for axes in combinations(range(x.ndim), len(over)):
        if axes != tuple(sorted(over)):
            text = f"reduces over axes {list(axes)} instead of {list(over)}"
            yield from variant_with_settings(seen, "reduce-axis", text, 2, over=axes)
