"""Variants of softmax: another axis, another scale, its logarithm, 1 in the denominator."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.solving import format_number, solve_number

Values = NDArray[np.float64]
_SCALES = (0.125, 0.25, 0.5, 0.7071067811865476, 1.4142135623730951, 2.0, 4.0, 8.0)


def softmax(x: Values, axis: int, extra_sum: float = 0.0) -> Values:
    """Compute softmax without overflow; `extra_sum` acts like positions with score 0."""
    peak = x.max(axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    if extra_sum:
        peak = np.maximum(peak, 0.0)
    powers = np.exp(x - peak)
    probabilities: Values = powers / (powers.sum(axis, keepdims=True) + extra_sum * np.exp(-peak))
    return probabilities


def log_softmax(x: Values, axis: int) -> Values:
    """Compute the logarithm of softmax without overflow."""
    peak = x.max(axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    logarithms: Values = x - peak - np.log(np.exp(x - peak).sum(axis, keepdims=True))
    return logarithms


def vary_softmax(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary a softmax or log-softmax."""
    if tested_op.kind not in ("softmax", "log_softmax"):
        return
    argument = tested_op.argument(0)
    axis = tested_op.attribute("dim", "axis", default=-1)
    if argument is None or argument.shape != tested_op.output.shape or not isinstance(axis, int):
        return
    if not argument.ndim:
        return
    x = np.asarray(argument, np.float64)
    is_logarithm = tested_op.kind == "log_softmax"
    compute = log_softmax if is_logarithm else softmax
    if not np.allclose(compute(x, axis), tested_op.output, rtol=1e-9, atol=1e-12, equal_nan=True):
        return
    for other_axis in range(x.ndim):
        if other_axis != axis % x.ndim and x.shape[other_axis] > 1:
            yield Hypothesis(
                "softmax-axis",
                f"applies its {'log-' if is_logarithm else ''}softmax over axis {other_axis}"
                f" instead of {axis % x.ndim}",
                compute(x, other_axis),
                setting=("the axis", str(axis)),
                simplicity=2,
            )
    if is_logarithm:
        text = "computes a softmax instead of a log-softmax"
        yield Hypothesis("softmax-instead", text, softmax(x, axis), simplicity=2)
    else:
        text = "computes a log-softmax instead of a softmax"
        yield Hypothesis("log-softmax-instead", text, log_softmax(x, axis), simplicity=2)
        text = "adds 1 to the denominator of its softmax"
        yield Hypothesis("softmax-plus-one", text, softmax(x, axis, 1.0), simplicity=2)
        text = "does not divide its exponentials by their sum"
        yield Hypothesis("softmax-not-divided", text, np.exp(x), simplicity=1)
    solution = solve_number(tested_op, lambda scale: compute(scale * x, axis), _SCALES, _SCALES)
    if solution is not None and abs(solution.number - 1) > 1e-3:
        text = f"multiplies its scores by {format_number(solution.number)} before the softmax"
        advice = f"remove this factor before {tested_op.op.key} in the target"
        yield Hypothesis("softmax-scale", text, solution.value, next=advice, simplicity=1)
