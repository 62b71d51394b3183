"""Normalisations: another epsilon, variance, weight, mean or axis; whole, or spread over ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen
from syncpoint.diagnosis.variants.solving import plain, solved
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

Values = NDArray[np.float64]
Made = Callable[..., Iterator[Hypothesis]]

EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2, 1e-10, 1e-15)
"""Those that libraries and papers use, the common first."""
_OWN = (2.0**-23, 2.0**-52, 2.0**-10, 2.0**-7)
"""What stands for an epsilon that is not given: that of the type."""
_MOST_EPSILON = 0.1


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalisation with all its settings."""

    x: Values
    axes: tuple[int, ...]
    epsilon: float
    weight: Values | None = None
    bias: Values | None = None
    centred: bool = True
    outside: bool = False
    """The epsilon is added to the root, not below it."""
    correction: int = 0
    """Taken off the count: 1 for the unbiased variance."""
    groups: int = 0
    """Channels along axis 1 are normalised in so many groups."""

    def value(self, index: int = 0) -> Values:
        """Output 0 is the result, 1 the mean, 2 one over the deviation."""
        x = self.x
        if self.groups:
            x = x.reshape(x.shape[0], self.groups, -1)
        axes = (2,) if self.groups else self.axes
        mean = x.mean(axes, keepdims=True) if self.centred else np.zeros_like(x[:1])
        count = prod(x.shape[a] for a in axes)
        square = np.square(x - mean).sum(axes, keepdims=True) / max(count - self.correction, 1)
        if self.outside:
            scale = 1 / (np.sqrt(square) + self.epsilon)
        else:
            scale = 1 / np.sqrt(square + self.epsilon)
        if index:
            return np.asarray(mean if index == 1 and self.centred else scale, np.float64)
        found: Values = ((x - mean) * scale).reshape(self.x.shape)
        if self.weight is not None:
            found = found * self.weight
        return found if self.bias is None else found + self.bias


def normalizations(seen: Seen) -> Iterable[Hypothesis]:
    """The variants of a normalisation, or of one of the ops that one is made of."""
    if seen.output.dtype.kind != "f":
        return
    if seen.kind in ("layer_norm", "rms_norm", "group_norm"):
        norm = _read(seen)
        if norm is not None:
            yield from _whole(seen, norm)
    elif seen.kind in ("add", "max"):
        yield from _added(seen)
    elif seen.kind == "sub":
        yield from _centred(seen)
    elif seen.kind in ("mean", "var", "std", "var_mean", "sum"):
        yield from _spread(seen)


def _read(seen: Seen) -> Norm | None:
    """The settings of the op, proven by giving its own output."""
    x = seen.argument(0)
    if x is None or x.dtype.kind != "f" or x.ndim < 1:
        return None
    said = seen.attribute("eps", "epsilon")
    tries = (float(said),) if said is not None else (1e-5, *_OWN)
    parameters = [a for a in seen.arguments[1:] if a is not None and a.dtype.kind == "f"]
    for axes, groups in _extents(seen, x):
        weight, bias = [_laid(p, x, axes, bool(groups)) for p in (*parameters[:2], None, None)[:2]]
        for epsilon in tries:
            norm = Norm(
                x=np.asarray(x, np.float64),
                axes=axes,
                epsilon=epsilon,
                weight=weight,
                bias=bias,
                centred=seen.kind != "rms_norm",
                groups=groups,
            )
            got = _shaped(norm, seen)
            if got is not None and np.allclose(got, seen.output, rtol=1e-9, atol=1e-9):
                return norm
    return None


def _extents(seen: Seen, x: Array) -> Iterator[tuple[tuple[int, ...], int]]:
    if seen.kind == "group_norm":
        said = seen.attribute("num_groups", "group", "groups")
        if x.ndim < 2:
            return
        channels = x.shape[1]
        for groups in (said, channels, 1) if said else (channels, 1):
            if groups and channels % int(groups) == 0:
                yield tuple(range(2, x.ndim)), int(groups)
        return
    shape = seen.attribute("normalized_shape")
    if shape is not None:
        yield tuple(range(x.ndim - len(shape), x.ndim)), 0
    axis = seen.attribute("axis", default=-1)
    if isinstance(axis, int):
        yield tuple(range(axis % x.ndim, x.ndim)), 0


def _laid(parameter: Array | None, x: Array, axes: tuple[int, ...], grouped: bool) -> Values | None:
    if parameter is None:
        return None
    if grouped and parameter.size == x.shape[1]:
        parameter = parameter.reshape(-1, *[1] * (x.ndim - 2))
    elif not grouped and parameter.size == prod(x.shape[a] for a in axes):
        parameter = parameter.reshape([x.shape[a] for a in axes])
    return np.asarray(parameter, np.float64)


def _shaped(norm: Norm, seen: Seen) -> Values | None:
    if seen.index and seen.kind == "rms_norm":
        got = norm.value(2)
    else:
        got = norm.value(seen.index)
    return got.reshape(seen.output.shape) if got.size == seen.output.size else None


def _whole(seen: Seen, norm: Norm) -> Iterator[Hypothesis]:
    def made(kind: str, text: str, other: Norm, **more: Any) -> Iterator[Hypothesis]:
        value = _shaped(other, seen)
        if value is not None:
            yield Hypothesis(kind, text, value, **more)

    def with_epsilon(number: float) -> Array:
        found = _shaped(replace(norm, epsilon=number), seen)
        return seen.output if found is None else found

    yield from _epsilons(seen, norm.epsilon, with_epsilon)
    yield from made(
        "epsilon-outside",
        f"adds its epsilon {plain(norm.epsilon)} outside the square root",
        replace(norm, outside=True),
        subtle=True,
        simplicity=1,
    )
    yield from made(
        "variance-unbiased",
        "uses the unbiased variance (over n - 1 instead of n)",
        replace(norm, correction=1),
        subtle=True,
        simplicity=2,
    )
    if norm.weight is not None:
        yield from made(
            "weight-missing", "ignores its weight", replace(norm, weight=None), simplicity=3
        )
        one_more = replace(norm, weight=1 + norm.weight)
        yield from made("weight-plus-one", "multiplies by 1 + its weight", one_more, simplicity=2)
        one_less = replace(norm, weight=norm.weight - 1)
        yield from made("weight-minus-one", "multiplies by its weight - 1", one_less, simplicity=2)
    if norm.bias is not None:
        yield from made("bias-missing", "ignores its bias", replace(norm, bias=None), simplicity=3)
        bare = replace(norm, bias=None, weight=None)
        yield from made("affine-missing", "ignores its weight and its bias", bare, simplicity=2)
    other = replace(norm, centred=not norm.centred)
    if norm.centred:
        yield from made("mean-not-subtracted", "does not subtract the mean", other, simplicity=2)
        yield from made(
            "rms-instead",
            "computes an RMS norm: it subtracts no mean and adds no bias",
            replace(other, bias=None),
            simplicity=1 if norm.bias is None else 2,
        )
    else:
        yield from made(
            "mean-subtracted",
            "subtracts the mean, as a layer norm does; the reference is an RMS norm",
            other,
        )
    yield from _elsewhere(seen, norm, made)
    for name in ("f16", "bf16"):
        low = np.asarray(norm.x.astype(DTYPES[name].numpy), np.float64)
        yield from made(
            f"norm-in-{name}",
            f"rounds its input to {DTYPES[name].long_name} first",
            replace(norm, x=low),
            cause="precision",
        )


def _elsewhere(seen: Seen, norm: Norm, made: Made) -> Iterator[Hypothesis]:
    """Other axes, other groups."""
    if norm.groups:
        channels = norm.x.shape[1]
        for groups in (n for n in range(1, channels + 1) if channels % n == 0):
            if groups != norm.groups:
                text = f"normalizes in {groups} groups instead of {norm.groups}"
                yield from made("groups", text, replace(norm, groups=groups), simplicity=1)
        return
    if seen.index:
        return
    for axes in _other_axes(norm.x.ndim, norm.axes):
        text = f"normalizes over axes {list(axes)} instead of {list(norm.axes)}"
        yield from made("norm-axes", text, replace(norm, axes=axes), simplicity=1)


def _other_axes(rank: int, own: tuple[int, ...]) -> list[tuple[int, ...]]:
    single = [(a,) for a in range(rank)]
    trailing = [tuple(range(a, rank)) for a in range(rank)]
    return [axes for axes in dict.fromkeys(single + trailing) if axes != own]


def _epsilons(seen: Seen, own: float, form: Callable[[float], Array]) -> Iterator[Hypothesis]:
    """Other epsilons: the usual ones, none, and the one that fits."""
    usual = [e for e in EPSILONS if not np.isclose(e, own, rtol=1e-3, atol=0)]
    for epsilon in usual:
        yield _epsilon(epsilon, own, form(epsilon), True)
    yield _epsilon(0.0, own, form(0.0), True)
    found = solved(seen, form, (own, *usual), usual)
    if found is not None and not any(np.isclose(found.number, e, rtol=1e-9, atol=0) for e in usual):
        yield _epsilon(found.number, own, found.value, False)


def _epsilon(epsilon: float, own: float, value: Array, usual: bool) -> Hypothesis:
    text = f"uses epsilon {plain(epsilon)} instead of {plain(own)}"
    return Hypothesis(
        "epsilon",
        text,
        value,
        next=f"set the epsilon of the normalization in the target to {plain(own)}",
        subtle=usual,
        simplicity=3 if usual and epsilon else 2 if usual else 0,
    )


def constant(seen: Seen) -> tuple[Array, float] | None:
    """What an op of two operands reads, and the one number that it is combined with."""
    other = seen.attribute("other", "min", "value")
    if isinstance(other, int | float) and not isinstance(other, bool):
        x = seen.argument(0)
        return (x, float(other)) if x is not None else None
    if len(seen.arguments) < 2:
        return None
    a, b = seen.arguments[0], seen.arguments[1]
    if a is None or b is None:
        return None
    if b.size == 1 and a.size > 1:
        return a, float(b.reshape(()))
    if a.size == 1 and b.size > 1:
        return b, float(a.reshape(()))
    return None


def _added(seen: Seen) -> Iterator[Hypothesis]:
    """A small number that is added to a variance before its root; 1 that is added to a weight."""
    found = constant(seen)
    if found is None or found[0].shape != seen.output.shape:
        return
    x, number = found
    if 0 < number < _MOST_EPSILON and x.dtype.kind == "f":
        x = np.asarray(x, np.float64)
        if np.allclose(x + number, seen.output, rtol=1e-9):
            yield from _epsilons(seen, number, lambda e: x + e)
    elif number == 1 and any(e.role is Role.PARAMETER for e in seen.op.inputs):
        text = "does not add 1 to the weight"
        yield Hypothesis("weight-plus-one-missing", text, np.asarray(x), simplicity=3)


def _centred(seen: Seen) -> Iterator[Hypothesis]:
    """x - mean(x), recognised by its numbers."""
    x, mean = seen.argument(0), seen.argument(1)
    if x is None or mean is None or x.ndim != mean.ndim or x.shape != seen.output.shape:
        return
    axes = tuple(a for a in range(x.ndim) if mean.shape[a] == 1 and x.shape[a] > 1)
    if not axes or not np.allclose(x.mean(axes, keepdims=True), mean, rtol=1e-3, atol=1e-3):
        return
    text = "does not subtract the mean"
    yield Hypothesis("mean-not-subtracted", text, np.asarray(x), simplicity=3)


def _spread(seen: Seen) -> Iterator[Hypothesis]:
    """Variances that are computed by an op of their own, or as the mean of squares."""
    x = seen.argument(0)
    if x is None or x.dtype.kind != "f" or not seen.output.size or x.size == seen.output.size:
        return
    count = x.size // seen.output.size
    if count < 2:
        return
    named = seen.kind in ("var", "std", "var_mean")
    power = 0.5 if seen.kind == "std" else 1.0
    biased = _is_biased(seen, x, count) if named else True
    if biased is None or (not named and (x < 0).any()):
        return
    factor = (count / (count - 1)) ** power
    if biased:
        text = "computes the unbiased variance (over n - 1 instead of n)"
        yield Hypothesis("variance-unbiased", text, seen.output * factor, subtle=True, simplicity=2)
    else:
        text = "computes the biased variance (over n instead of n - 1)"
        yield Hypothesis("variance-biased", text, seen.output / factor, subtle=True, simplicity=2)


def _is_biased(seen: Seen, x: Array, count: int) -> bool | None:
    """By the attributes, which every runtime words otherwise; None where they do not say."""
    said = seen.attribute("correction")
    if said is not None:
        return float(said) == 0
    unbiased = seen.attribute("unbiased")
    return None if unbiased is None else not unbiased
