"""Clamps and slopes: bounds that are missing or others, the slope of a leaky ReLU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncpoint.diagnosis.numpy_ops.elementwise import clamp, leaky
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen


def bounds(seen: Seen) -> Iterable[Hypothesis]:
    """For clamps, ReLUs and leaky ReLUs."""
    x = seen.argument(0)
    if x is None or x.dtype.kind != "f" or x.shape != seen.output.shape:
        return
    bound = seen.bound
    if seen.kind == "leaky_relu":
        yield from _slope(seen, x)
        yield from _solved(seen, seen.output, "result")
    elif seen.kind == "clamp" and bound is not None and bound.function is clamp:
        least, most = bound.settings["lower"], bound.settings["upper"]
        if least is not None:
            value = clamp(x, None, most)
            yield Hypothesis(
                "clamp-min-missing", f"ignores its lower bound {least}", value, simplicity=2
            )
        if most is not None:
            value = clamp(x, least, None)
            yield Hypothesis(
                "clamp-max-missing", f"ignores its upper bound {most}", value, simplicity=2
            )
        yield from _solved(seen, x, "")
    elif seen.kind in ("relu", "clamp"):
        yield from _solved(seen, x, "")


def _slope(seen: Seen, x: Array) -> Iterator[Hypothesis]:
    own = seen.bound.settings.get("slope") if seen.bound is not None else None
    said = f" instead of {own:g}" if isinstance(own, int | float) else ""
    for slope in (0.01, 0.1, 0.2, 0.3):
        text = f"uses slope {slope:g}{said}"
        yield Hypothesis("leaky-slope", text, leaky(x, slope), simplicity=2)
    if seen.target is not None:
        below = seen.without_masked((x < 0) & np.isfinite(x) & np.isfinite(seen.target))
        energy = float(np.sum(np.square(x[below])))
        if energy:
            slope = float(np.sum(x[below] * seen.target[below])) / energy
            text = f"uses slope {slope:.4g}{said}"
            yield Hypothesis("leaky-slope", text, leaky(x, slope), simplicity=1, solved=1)


def _solved(seen: Seen, x: Array, where: str) -> Iterator[Hypothesis]:
    """The bounds that the target's own extremes speak of."""
    target = seen.target
    if target is None or not target.size or not np.isfinite(target).all():
        return
    shown, read = seen.counted(target), seen.counted(x)
    if not shown.size:
        return
    least, most = float(shown.min()), float(shown.max())
    # A bound is one where several elements lie on it and some that were read lie beyond it.
    low = np.count_nonzero(shown == least) > 1 and bool((read < least).sum() > 1)
    high = np.count_nonzero(shown == most) > 1 and bool((read > most).sum() > 1)
    if not low and not high:
        return
    value = clamp(x, least if low else None, most if high else None)
    said = f"[{least:.6g}" if low else "(-inf"
    said += f", {most:.6g}]" if high else ", inf)"
    text = f"clamps its {where or 'input'} to {said}"
    own = seen.bound.settings if seen.bound is not None else {}
    if not where and "lower" in own and "upper" in own:
        text += f" instead of [{own['lower']}, {own['upper']}]"
    yield Hypothesis("clamp-bounds", text, value, simplicity=1, solved=int(low) + int(high))
