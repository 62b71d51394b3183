"""Variants of normalizations, as one op or as several: epsilon, biased variance, weight, mean,
axes, groups; batch statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.solving import format_number, solve_number
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

Values = NDArray[np.float64]
ProposeNorm = Callable[..., Iterator[Hypothesis]]

EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2, 1e-10, 1e-15)
"""Epsilons that libraries and papers use, the most common first."""
_DTYPE_EPSILONS = (2.0**-23, 2.0**-52, 2.0**-10, 2.0**-7)
"""Machine epsilons of dtypes, which some runtimes use if no epsilon is declared."""
_MAX_EPSILON = 0.1

_USUAL_EPSILONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-12, 0.0)


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalization with all its settings."""

    x: Values
    axes: tuple[int, ...]
    epsilon: float
    weight: Values | None = None
    bias: Values | None = None
    subtracts_mean: bool = True
    epsilon_outside_root: bool = False
    """The epsilon is added outside the square root, not inside."""
    correction: int = 0
    """Subtracted from the element count: 1 for the unbiased variance."""
    groups: int = 0
    """Number of groups of channels along axis 1; 0 if channels are not grouped."""

    def value(self, index: int = 0) -> Values:
        """Compute output 0 (the result), 1 (the mean) or 2 (1 / standard deviation)."""
        x = self.x
        if self.groups:
            x = x.reshape(x.shape[0], self.groups, -1)
        axes = (2,) if self.groups else self.axes
        mean = x.mean(axes, keepdims=True) if self.subtracts_mean else np.zeros_like(x[:1])
        count = prod(x.shape[a] for a in axes)
        square = np.square(x - mean).sum(axes, keepdims=True) / max(count - self.correction, 1)
        if self.epsilon_outside_root:
            scale = 1 / (np.sqrt(square) + self.epsilon)
        else:
            scale = 1 / np.sqrt(square + self.epsilon)
        if index:
            return np.asarray(mean if index == 1 and self.subtracts_mean else scale, np.float64)
        normalized: Values = ((x - mean) * scale).reshape(self.x.shape)
        if self.weight is not None:
            normalized = normalized * self.weight
        return normalized if self.bias is None else normalized + self.bias


def vary_normalization(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary a normalization, or one of the ops that it consists of."""
    if tested_op.output.dtype.kind != "f":
        return
    if tested_op.kind in ("layer_norm", "rms_norm", "group_norm"):
        norm = _read_settings(tested_op)
        if norm is not None:
            yield from _vary_norm(tested_op, norm)
    elif tested_op.kind in ("add", "max"):
        yield from _vary_added_constant(tested_op)
    elif tested_op.kind == "sub":
        yield from _vary_mean_subtraction(tested_op)
    elif tested_op.kind in ("mean", "var", "std", "var_mean", "sum"):
        yield from _vary_variance(tested_op)


def _read_settings(tested_op: OpUnderTest) -> Norm | None:
    """Read the settings of the op; None if they do not reproduce its output."""
    x = tested_op.argument(0)
    if x is None or x.dtype.kind != "f" or x.ndim < 1:
        return None
    declared_epsilon = tested_op.attribute("eps", "epsilon")
    epsilons = (
        (float(declared_epsilon),) if declared_epsilon is not None else (1e-5, *_DTYPE_EPSILONS)
    )
    parameters = [a for a in tested_op.arguments[1:] if a is not None and a.dtype.kind == "f"]
    for axes, groups in _candidate_extents(tested_op, x):
        weight, bias = [
            _reshape_parameter(p, x, axes, bool(groups)) for p in (*parameters[:2], None, None)[:2]
        ]
        for epsilon in epsilons:
            norm = Norm(
                x=np.asarray(x, np.float64),
                axes=axes,
                epsilon=epsilon,
                weight=weight,
                bias=bias,
                subtracts_mean=tested_op.kind != "rms_norm",
                groups=groups,
            )
            output = _compute_output(norm, tested_op)
            if output is not None and np.allclose(output, tested_op.output, rtol=1e-9, atol=1e-9):
                return norm
    return None


def _candidate_extents(tested_op: OpUnderTest, x: Array) -> Iterator[tuple[tuple[int, ...], int]]:
    if tested_op.kind == "group_norm":
        declared_groups = tested_op.attribute("num_groups", "group", "groups")
        if x.ndim < 2:
            return
        channels = x.shape[1]
        for groups in (declared_groups, channels, 1) if declared_groups else (channels, 1):
            if groups and channels % int(groups) == 0:
                yield tuple(range(2, x.ndim)), int(groups)
        return
    shape = tested_op.attribute("normalized_shape")
    if shape is not None:
        yield tuple(range(x.ndim - len(shape), x.ndim)), 0
    axis = tested_op.attribute("axis", default=-1)
    if isinstance(axis, int):
        yield tuple(range(axis % x.ndim, x.ndim)), 0


def _reshape_parameter(
    parameter: Array | None, x: Array, axes: tuple[int, ...], is_grouped: bool
) -> Values | None:
    if parameter is None:
        return None
    if is_grouped and parameter.size == x.shape[1]:
        parameter = parameter.reshape(-1, *[1] * (x.ndim - 2))
    elif not is_grouped and parameter.size == prod(x.shape[a] for a in axes):
        parameter = parameter.reshape([x.shape[a] for a in axes])
    return np.asarray(parameter, np.float64)


def _compute_output(norm: Norm, tested_op: OpUnderTest) -> Values | None:
    if tested_op.index and tested_op.kind == "rms_norm":
        output = norm.value(2)
    else:
        output = norm.value(tested_op.index)
    return output.reshape(tested_op.output.shape) if output.size == tested_op.output.size else None


def _vary_norm(tested_op: OpUnderTest, norm: Norm) -> Iterator[Hypothesis]:
    def propose(kind: str, text: str, variant: Norm, **fields: Any) -> Iterator[Hypothesis]:
        value = _compute_output(variant, tested_op)
        if value is not None:
            yield Hypothesis(kind, text, value, **fields)

    def with_epsilon(number: float) -> Array:
        output = _compute_output(replace(norm, epsilon=number), tested_op)
        return tested_op.output if output is None else output

    yield from _vary_epsilon(tested_op, norm.epsilon, with_epsilon)
    yield from propose(
        "epsilon-outside",
        f"adds its epsilon {format_number(norm.epsilon)} outside the square root",
        replace(norm, epsilon_outside_root=True),
        next=f"add the epsilon of {tested_op.op.key} before the square root in the target",
        subtle=True,
        simplicity=1,
    )
    yield from propose(
        "variance-unbiased",
        "uses the unbiased variance (over n - 1 instead of n)",
        replace(norm, correction=1),
        setting=("the divisor of the variance", "n"),
        subtle=True,
        simplicity=2,
    )
    if norm.weight is not None:
        yield from propose(
            "weight-missing", "ignores its weight", replace(norm, weight=None), simplicity=3
        )
        weight_plus_one = replace(norm, weight=1 + norm.weight)
        yield from propose(
            "weight-plus-one", "multiplies by 1 + its weight", weight_plus_one, simplicity=2
        )
        weight_minus_one = replace(norm, weight=norm.weight - 1)
        yield from propose(
            "weight-minus-one", "multiplies by its weight - 1", weight_minus_one, simplicity=2
        )
    if norm.bias is not None:
        yield from propose(
            "bias-missing", "ignores its bias", replace(norm, bias=None), simplicity=3
        )
        without_affine = replace(norm, bias=None, weight=None)
        yield from propose(
            "affine-missing", "ignores its weight and its bias", without_affine, simplicity=2
        )
    other_centering = replace(norm, subtracts_mean=not norm.subtracts_mean)
    if norm.subtracts_mean:
        yield from propose(
            "mean-not-subtracted", "does not subtract the mean", other_centering, simplicity=2
        )
        yield from propose(
            "rms-instead",
            "computes an RMS norm: it subtracts no mean and adds no bias",
            replace(other_centering, bias=None),
            simplicity=1 if norm.bias is None else 2,
        )
    else:
        yield from propose(
            "mean-subtracted",
            "subtracts the mean, as a layer norm does; the reference is an RMS norm",
            other_centering,
        )
    yield from _vary_extent(tested_op, norm, propose)
    for name in ("f16", "bf16"):
        rounded_input = np.asarray(norm.x.astype(DTYPES[name].numpy), np.float64)
        yield from propose(
            f"norm-in-{name}",
            f"rounds its input to {DTYPES[name].long_name} first",
            replace(norm, x=rounded_input),
            cause="precision",
        )


def _vary_extent(tested_op: OpUnderTest, norm: Norm, propose: ProposeNorm) -> Iterator[Hypothesis]:
    """Normalize over other axes, or in another number of groups."""
    if norm.groups:
        channels = norm.x.shape[1]
        for groups in (n for n in range(1, channels + 1) if channels % n == 0):
            if groups != norm.groups:
                text = f"normalizes in {groups} groups instead of {norm.groups}"
                yield from propose(
                    "groups",
                    text,
                    replace(norm, groups=groups),
                    setting=("the number of groups", str(norm.groups)),
                    simplicity=1,
                )
        return
    if tested_op.index:
        return
    for axes in _other_axes(norm.x.ndim, norm.axes):
        text = f"normalizes over axes {list(axes)} instead of {list(norm.axes)}"
        setting = ("the axes", str(list(norm.axes)))
        variant = replace(norm, axes=axes)
        yield from propose("norm-axes", text, variant, setting=setting, simplicity=1)


def _other_axes(rank: int, reference_axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    single = [(a,) for a in range(rank)]
    trailing = [tuple(range(a, rank)) for a in range(rank)]
    return [axes for axes in dict.fromkeys(single + trailing) if axes != reference_axes]


def _vary_epsilon(
    tested_op: OpUnderTest, reference_epsilon: float, compute: Callable[[float], Array]
) -> Iterator[Hypothesis]:
    """Try other epsilons: the usual ones, 0, and the one that fits the target."""
    usual_epsilons = [
        e for e in EPSILONS if not np.isclose(e, reference_epsilon, rtol=1e-3, atol=0)
    ]
    for epsilon in usual_epsilons:
        yield _epsilon_hypothesis(epsilon, reference_epsilon, compute(epsilon), True)
    yield _epsilon_hypothesis(0.0, reference_epsilon, compute(0.0), True)
    solution = solve_number(
        tested_op, compute, (reference_epsilon, *usual_epsilons), usual_epsilons
    )
    if solution is not None and not any(
        np.isclose(solution.number, e, rtol=1e-9, atol=0) for e in usual_epsilons
    ):
        yield _epsilon_hypothesis(solution.number, reference_epsilon, solution.value, False)


def _epsilon_hypothesis(
    epsilon: float, reference_epsilon: float, value: Array, is_usual: bool
) -> Hypothesis:
    text = f"uses epsilon {format_number(epsilon)} instead of {format_number(reference_epsilon)}"
    return Hypothesis(
        "epsilon",
        text,
        value,
        next=(
            "set the epsilon of the normalization in the target to"
            f" {format_number(reference_epsilon)}"
        ),
        subtle=is_usual,
        simplicity=3 if is_usual and epsilon else 2 if is_usual else 0,
    )


def split_constant_operand(tested_op: OpUnderTest) -> tuple[Array, float] | None:
    """Split the operands of a binary op into the tensor and the scalar constant."""
    other = tested_op.attribute("other", "min", "value")
    if isinstance(other, int | float) and not isinstance(other, bool):
        x = tested_op.argument(0)
        return (x, float(other)) if x is not None else None
    if len(tested_op.arguments) < 2:
        return None
    a, b = tested_op.arguments[0], tested_op.arguments[1]
    if a is None or b is None:
        return None
    if b.size == 1 and a.size > 1:
        return a, float(b.reshape(()))
    if a.size == 1 and b.size > 1:
        return b, float(a.reshape(()))
    return None


def _vary_added_constant(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary an epsilon that is added to a variance, or a 1 that is added to a weight."""
    operand_and_constant = split_constant_operand(tested_op)
    if operand_and_constant is None or operand_and_constant[0].shape != tested_op.output.shape:
        return
    x, number = operand_and_constant
    if 0 < number < _MAX_EPSILON and x.dtype.kind == "f":
        x = np.asarray(x, np.float64)
        if np.allclose(x + number, tested_op.output, rtol=1e-9):
            yield from _vary_epsilon(tested_op, number, lambda e: x + e)
    elif number == 1 and any(e.role is Role.PARAMETER for e in tested_op.op.inputs):
        text = "does not add 1 to the weight"
        yield Hypothesis("weight-plus-one-missing", text, np.asarray(x), simplicity=3)


def _vary_mean_subtraction(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary `x - mean(x)`, which is recognized by its values."""
    x, mean = tested_op.argument(0), tested_op.argument(1)
    if x is None or mean is None or x.ndim != mean.ndim or x.shape != tested_op.output.shape:
        return
    axes = tuple(a for a in range(x.ndim) if mean.shape[a] == 1 and x.shape[a] > 1)
    if not axes or not np.allclose(x.mean(axes, keepdims=True), mean, rtol=1e-3, atol=1e-3):
        return
    text = "does not subtract the mean"
    yield Hypothesis("mean-not-subtracted", text, np.asarray(x), simplicity=3)


def _vary_variance(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary a variance that is computed by its own op or as the mean of squares."""
    x = tested_op.argument(0)
    if (
        x is None
        or x.dtype.kind != "f"
        or not tested_op.output.size
        or x.size == tested_op.output.size
    ):
        return
    count = x.size // tested_op.output.size
    if count < 2:
        return
    is_variance_op = tested_op.kind in ("var", "std", "var_mean")
    power = 0.5 if tested_op.kind == "std" else 1.0
    is_biased = _is_biased(tested_op, x, count) if is_variance_op else True
    if is_biased is None or (not is_variance_op and (x < 0).any()):
        return
    factor = (count / (count - 1)) ** power
    if is_biased:
        text = "computes the unbiased variance (over n - 1 instead of n)"
        yield Hypothesis(
            "variance-unbiased",
            text,
            tested_op.output * factor,
            setting=("the divisor of the variance", "n"),
            subtle=True,
            simplicity=2,
        )
    else:
        text = "computes the biased variance (over n instead of n - 1)"
        yield Hypothesis(
            "variance-biased",
            text,
            tested_op.output / factor,
            setting=("the divisor of the variance", "n - 1"),
            subtle=True,
            simplicity=2,
        )


def _is_biased(tested_op: OpUnderTest, x: Array, count: int) -> bool | None:
    """Whether the attributes declare a biased variance; None if they do not declare it."""
    correction = tested_op.attribute("correction")
    if correction is not None:
        return float(correction) == 0
    unbiased = tested_op.attribute("unbiased")
    return None if unbiased is None else not unbiased


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
                setting = ("epsilon", f"{eps:g}")
                yield Hypothesis("epsilon", text, value, setting=setting, subtle=True, simplicity=2)
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
