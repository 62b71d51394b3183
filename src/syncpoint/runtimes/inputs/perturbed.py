"""Another input like the first: same shapes, same types, same range, other numbers."""

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
"""Relative difference up to which arrays of both sides are the same input, in two precisions."""


def perturb_inputs(
    target: Sequence[Inputs], reference: Sequence[Inputs], signs: bool
) -> tuple[list[Inputs], list[Inputs]]:
    """Other inputs for both sides, the same for both. With `signs` numbers change sign as well,
    which models that were made for one range of numbers may not bear."""
    if len(target) != len(reference):
        raise InputError("the same inputs on both sides", "other numbers of samples")
    mine, theirs = [], []
    for one, other in zip(target, reference, strict=True):
        known = _find_arrays([*other.args, *other.kwargs.values()])
        theirs.append(_map_arrays(other, partial(perturb_array, signs=signs)))
        mine.append(_map_arrays(one, partial(_perturb_like, known=known, signs=signs)))
    return mine, theirs


def perturb_array(array: Array, signs: bool) -> Array:
    """The numbers shuffled and, if they are real, moved. Masks, bools, single integers and what
    is not finite stay: many a model breaks on other ones."""
    kind = from_numpy(array.dtype).kind
    generator = np.random.default_rng(_SEED)
    if kind is Kind.INT:
        return generator.permutation(array.reshape(-1)).reshape(array.shape)
    if kind is not Kind.FLOAT or not array.size:
        return array
    wide = array.astype(np.float64)
    if not np.isfinite(wide).all() or np.isin(wide, (0, 1)).all():
        return array
    if array.size == 1:
        return (1.25 * wide).astype(array.dtype)
    low, high = wide.min(), wide.max()
    moved = generator.permutation(wide.reshape(-1)).reshape(array.shape)
    moved = moved + _NOISE_PER_STD * (wide.std() or abs(high)) * generator.standard_normal(
        array.shape
    )
    moved = np.clip(moved, low, high)
    if signs:
        moved = moved * generator.choice((-1.0, 1.0), array.shape)
    return np.asarray(moved.astype(array.dtype))


def _perturb_like(array: Array, known: list[Array], signs: bool) -> Array:
    """What a side gets for an array that the other side has too, perhaps in another type."""
    for other in known:
        if other.shape == array.shape and _is_same_input(array, other):
            return np.asarray(perturb_array(other, signs).astype(array.dtype))
    raise InputError("the same inputs on both sides", f"an input of {list(array.shape)} on one")


def _is_same_input(mine: Array, theirs: Array) -> bool:
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= _MAX_RELATIVE_DIFFERENCE * np.abs(b)
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())


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
