"""Softmax: another axis, another temperature, its logarithm, one more in the denominator."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen
from syncpoint.diagnosis.variants.solving import plain, solved

Values = NDArray[np.float64]
_SCALES = (0.125, 0.25, 0.5, 0.7071067811865476, 1.4142135623730951, 2.0, 4.0, 8.0)


def softmax(x: Values, axis: int, more: float = 0.0) -> Values:
    """Without overflow; `more` is added to the sum, as a place that scores 0 would."""
    peak = x.max(axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    if more:
        peak = np.maximum(peak, 0.0)
    powers = np.exp(x - peak)
    found: Values = powers / (powers.sum(axis, keepdims=True) + more * np.exp(-peak))
    return found


def log_softmax(x: Values, axis: int) -> Values:
    """The logarithm of it, by the sum."""
    peak = x.max(axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    found: Values = x - peak - np.log(np.exp(x - peak).sum(axis, keepdims=True))
    return found


def softmaxes(seen: Seen) -> Iterable[Hypothesis]:
    """The variants of a softmax or of its logarithm."""
    if seen.kind not in ("softmax", "log_softmax"):
        return
    given = seen.argument(0)
    axis = seen.attribute("dim", "axis", default=-1)
    if given is None or given.shape != seen.output.shape or not isinstance(axis, int):
        return
    if not given.ndim:
        return
    x = np.asarray(given, np.float64)
    logarithm = seen.kind == "log_softmax"
    own = log_softmax if logarithm else softmax
    if not np.allclose(own(x, axis), seen.output, rtol=1e-9, atol=1e-12, equal_nan=True):
        return
    for other in range(x.ndim):
        if other != axis % x.ndim and x.shape[other] > 1:
            yield Hypothesis(
                "softmax-axis",
                f"applies its {'log-' if logarithm else ''}softmax over axis {other} instead of"
                f" {axis % x.ndim}",
                own(x, other),
                simplicity=2,
            )
    if logarithm:
        text = "computes a softmax instead of a log-softmax"
        yield Hypothesis("softmax-instead", text, softmax(x, axis), simplicity=2)
    else:
        text = "computes a log-softmax instead of a softmax"
        yield Hypothesis("log-softmax-instead", text, log_softmax(x, axis), simplicity=2)
        text = "adds 1 to the denominator of its softmax"
        yield Hypothesis("softmax-plus-one", text, softmax(x, axis, 1.0), simplicity=2)
        text = "does not divide its exponentials by their sum"
        yield Hypothesis("softmax-not-divided", text, np.exp(x), simplicity=1)
    found = solved(seen, lambda scale: own(scale * x, axis), _SCALES, _SCALES)
    if found is not None and abs(found.number - 1) > 1e-3:
        text = f"multiplies its scores by {plain(found.number)} before the softmax"
        yield Hypothesis("softmax-scale", text, found.value, simplicity=1)
