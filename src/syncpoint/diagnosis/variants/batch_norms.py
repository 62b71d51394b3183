"""Variants of batch norm: missing, twice, another epsilon, ignored statistics or weights."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest

_USUAL_EPSILONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-12, 0.0)


def vary_batch_norm(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary a batch norm with running statistics."""
    if tested_op.kind != "batch_norm" or tested_op.bound is None:
        return
    bound = tested_op.bound
    x, weight, bias, mean, variance = bound.arrays
    eps = float(bound.settings["eps"])
    yield Hypothesis(
        "batch_norm-missing",
        "returns its input unchanged; the reference applies a batch norm",
        x,
        simplicity=3,
    )
    twice = tested_op.run_bound(bound.on(tested_op.output))
    if twice is not None:
        yield Hypothesis("batch_norm-twice", "normalizes twice", twice, simplicity=1)
    for other in _USUAL_EPSILONS:
        if not np.isclose(other, eps, rtol=1e-6, atol=0):
            value = tested_op.run_with_settings(eps=other)
            if value is not None:
                text = f"uses epsilon {other:g} instead of {eps:g}"
                yield Hypothesis("epsilon", text, value, subtle=True, simplicity=2)
    value = tested_op.run_with_settings(outside=True)
    if value is not None:
        text = f"adds its epsilon {eps:g} outside the square root"
        yield Hypothesis("epsilon-outside", text, value, subtle=True, simplicity=1)
    zero, one = np.zeros_like(mean), np.ones_like(mean)
    # The square root of a squared variance is the variance itself (`batch_norm-no-root`).
    changes = (
        ("batch_norm-mean", "does not subtract the mean", (x, weight, bias, zero, variance), 2),
        ("batch_norm-variance", "does not divide by the standard deviation",
         (x, weight, bias, mean, one), 2),
        ("batch_norm-unloaded", "uses mean 0 and variance 1: its statistics were not loaded",
         (x, weight, bias, zero, one), 3),
        ("batch_norm-weight", "ignores its weight", (x, None, bias, mean, variance), 2),
        ("batch_norm-bias", "ignores its bias", (x, weight, None, mean, variance), 3),
        ("batch_norm-no-root", "divides by the variance instead of its square root",
         (x, weight, bias, mean, np.square(variance)), 1),
        ("batch_norm-swapped", "swaps mean and variance",
         (x, weight, bias, variance, np.abs(mean)), 1),
        ("batch_norm-batch", "uses statistics of the batch instead of the running ones",
         (x, weight, bias, *_batch_statistics(x)), 2),
        ("batch_norm-batch-unbiased", "uses statistics of the batch, with unbiased variance",
         (x, weight, bias, *_batch_statistics(x, 1)), 1),
    )  # fmt: skip
    for kind, text, arrays, simplicity in changes:
        value = tested_op.run_bound(bound.on(*arrays))
        if value is not None:
            cause = "weights" if kind == "batch_norm-unloaded" else "implementation"
            yield Hypothesis(kind, text, value, simplicity=simplicity, cause=cause)


def _batch_statistics(x: np.ndarray, correction: int = 0) -> tuple[np.ndarray, np.ndarray]:
    axes = (0, *range(2, x.ndim))
    if x.size // max(x.shape[1], 1) <= correction:
        correction = 0
    return x.mean(axes), x.var(axes, ddof=correction)
