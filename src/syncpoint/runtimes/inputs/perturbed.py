"""Make a second input from the first by shuffling and noise (same shapes, types, range): for one
side, or alike for the matching input of the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from syncpoint.errors import InputError
from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.runtimes.protocol import Array, Inputs, Tree

_SEED = 20
_NOISE_PER_STD = 0.1
_MAX_RELATIVE_DIFFERENCE = 2e-2
"""Arrays of the two sides that differ by less are one input in two precisions."""


def perturb_inputs(
    target: Sequence[Inputs], reference: Sequence[Inputs], signs: bool
) -> tuple[list[Inputs], list[Inputs]]:
    """Make a second input, the same for both sides. An input of one side may be a slice of one of
    the other side, such as one of two states, or hold it, such as with padding.

    With `signs` numbers change sign as well; models made for one range of numbers may fail."""
    if len(target) != len(reference):
        raise InputError(
            f"the target has {_count_samples(target)} and the reference"
            f" {_count_samples(reference)}",
            cure="record both sides with the same inputs",
        )
    target_inputs, reference_inputs = [], []
    for target_sample, reference_sample in zip(target, reference, strict=True):
        reference_arrays = _find_arrays([*reference_sample.args, *reference_sample.kwargs.values()])
        reference_inputs.append(_map_arrays(reference_sample, partial(perturb_array, signs=signs)))
        target_inputs.append(
            _map_arrays(
                target_sample,
                partial(_perturb_like, reference_arrays=reference_arrays, signs=signs),
            )
        )
    return target_inputs, reference_inputs


def _count_samples(samples: Sequence[Inputs]) -> str:
    return "1 input sample" if len(samples) == 1 else f"{len(samples)} input samples"


def perturb_array(array: Array, signs: bool) -> Array:
    """Shuffle the numbers and add noise to floats.

    Masks, bools, single integers and non-finite values stay: many models fail on other ones."""
    kind = from_numpy(array.dtype).kind
    generator = np.random.default_rng(_SEED)
    if kind is Kind.INT:
        return generator.permutation(array.reshape(-1)).reshape(array.shape)
    if kind is not Kind.FLOAT or not array.size:
        return array
    values = array.astype(np.float64)
    if not np.isfinite(values).all() or np.isin(values, (0, 1)).all():
        return array
    if array.size == 1:
        return (1.25 * values).astype(array.dtype)
    low, high = values.min(), values.max()
    perturbed = generator.permutation(values.reshape(-1)).reshape(array.shape)
    scale = _NOISE_PER_STD * (values.std() or abs(high))
    perturbed = perturbed + scale * generator.standard_normal(array.shape)
    perturbed = np.clip(perturbed, low, high)
    if signs:
        perturbed = perturbed * generator.choice((-1.0, 1.0), array.shape)
    return np.asarray(perturbed.astype(array.dtype))


def _perturb_like(array: Array, reference_arrays: list[Array], signs: bool) -> Array:
    """Perturb an array as the reference perturbs the same input, perhaps in another type."""
    for other in reference_arrays:
        if other.shape == array.shape and _is_same_input(array, other):
            return np.asarray(perturb_array(other, signs).astype(array.dtype))
    perturbed = array.copy()
    is_rest = np.ones(array.shape, bool)
    for other in reference_arrays:
        window = _find_window(array, other)
        if window is not None:
            return np.asarray(perturb_array(other, signs)[window].astype(array.dtype))
        window = _find_window(other, array)
        if window is not None:
            perturbed[window] = perturb_array(other, signs).astype(array.dtype)
            is_rest[window] = False
    if is_rest.all():
        if np.array_equal(perturb_array(array, signs), array, equal_nan=True):
            return array
    elif len(np.unique(array[is_rest])) <= 1:
        return np.asarray(perturbed)
    raise InputError(
        f"an input of shape {list(array.shape)} is on one side only",
        cure="give both sides the same inputs",
    )


def _find_window(part: Array, whole: Array) -> tuple[slice, ...] | None:
    """Where `part` is the start, the end or one of the equal pieces of `whole` along one axis."""
    if part.ndim != whole.ndim or not part.size:
        return None
    longer = [a for a in range(part.ndim) if part.shape[a] != whole.shape[a]]
    if len(longer) != 1 or part.shape[longer[0]] > whole.shape[longer[0]]:
        return None
    axis = longer[0]
    length, end = part.shape[axis], whole.shape[axis]
    for start in (*range(0, end - length + 1, length), end - length):
        window = tuple(
            slice(start, start + length) if a == axis else slice(None) for a in range(part.ndim)
        )
        if _is_same_input(part, whole[window]):
            return window
    return None


def _is_same_input(array: Array, reference: Array) -> bool:
    a, b = array.astype(np.float64), reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        is_close = np.abs(a - b) <= _MAX_RELATIVE_DIFFERENCE * np.abs(b)
    return bool((is_close | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def _map_arrays(inputs: Inputs, change: Callable[[Array], Array]) -> Inputs:
    def walk(value: Tree) -> Tree:
        if isinstance(value, Mapping):
            return {key: walk(inner) for key, inner in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(walk(inner) for inner in value)
        return change(value) if isinstance(value, np.ndarray) else value

    return Inputs(
        tuple(walk(v) for v in inputs.args), {k: walk(v) for k, v in inputs.kwargs.items()}
    )


def _find_arrays(value: Any) -> list[Array]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return (
        [leaf for v in value for leaf in _find_arrays(v)] if isinstance(value, tuple | list) else []
    )
