"""Inputs that are made up: random numbers, zeros or ones in given shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syncpoint.errors import InputError, NoShape
from syncpoint.run.dtypes import Kind, parse_dtype
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec

_INTEGERS_BELOW = 10
"""Random integers are small, so that they are ids in most vocabularies."""


@dataclass(frozen=True)
class Shape:
    """What `--shape` says of one input."""

    dims: tuple[int, ...]
    dtype: str = "f32"


def parse_shape(text: str) -> tuple[str, Shape]:
    """`ids=1,16:i64` as a name and a shape; without a name the input is meant by position."""
    name, _, rest = text.rpartition("=")
    numbers, _, kind = rest.partition(":")
    try:
        dims = tuple(int(n) for n in numbers.split(",")) if numbers.strip() else ()
    except ValueError:
        dims = (-1,)
    if any(n < 0 for n in dims):
        raise InputError("a shape such as x=1,3,224,224 or ids=1,16:i64", repr(text))
    return name.strip(), Shape(dims, parse_dtype(kind).name if kind else "f32")


def generate_inputs(
    kind: str, seed: str, shapes: Mapping[str, Shape], declared: Sequence[InputSpec]
) -> Inputs:
    """Generate inputs (zeros, ones or seeded random) for the shapes of the user or the model."""
    if seed and (kind != "random" or not seed.isdigit()):
        raise InputError("random, random:SEED, zeros or ones", repr(f"{kind}:{seed}"))
    required = [spec.name for spec in declared if spec.required]
    wanted = _shapes_by_name(shapes, declared, required)
    _refuse_missing_shapes(kind, wanted, required)
    generator = np.random.default_rng(int(seed or 0))
    return Inputs(kwargs={name: _filled(kind, wanted[name], generator) for name in wanted})


def _shapes_by_name(
    shapes: Mapping[str, Shape], declared: Sequence[InputSpec], required: Sequence[str]
) -> dict[str, Shape]:
    """The shapes of the user, one without a name for the first input that has none, then those
    that the model declares in full."""
    wanted = dict(shapes)
    nameless = wanted.pop("", None)
    if nameless is not None:
        free = [name for name in required if name not in wanted]
        wanted[free[0] if free else "0"] = nameless
    for spec in declared:
        if spec.name not in wanted and spec.shape is not None and min(spec.shape, default=0) >= 0:
            wanted[spec.name] = Shape(spec.shape, spec.dtype or "f32")
    return wanted


def _refuse_missing_shapes(kind: str, wanted: Mapping[str, Shape], required: Sequence[str]) -> None:
    """Raise NoShape where an input of the model has no shape, unless the user named as many."""
    missing = [name for name in required if name not in wanted]
    unnamed = bool(wanted) and not set(wanted) & set(required) and len(wanted) == len(required)
    if not wanted or (missing and not unnamed):
        lacking = missing[0] if missing else "NAME"
        raise NoShape(
            f"cannot generate {kind} values: no shape for {', '.join(missing) or 'any input'}",
            f"{lacking}=1,3,224,224",
        )


def _filled(kind: str, shape: Shape, generator: np.random.Generator) -> Array:
    element = parse_dtype(shape.dtype)
    if kind == "zeros":
        return np.zeros(shape.dims, element.numpy)
    if kind == "ones":
        return np.ones(shape.dims, element.numpy)
    if element.kind is Kind.BOOL:
        return generator.integers(0, 2, shape.dims).astype(bool)
    if element.kind is Kind.INT:
        return generator.integers(0, _INTEGERS_BELOW, shape.dims).astype(element.numpy)
    values = generator.standard_normal(shape.dims)
    if element.kind is Kind.COMPLEX:
        return (values + 1j * generator.standard_normal(shape.dims)).astype(element.numpy)
    return values.astype(element.numpy)
