"""Inputs that are made up: random numbers, zeros or ones in given shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from syncpoint.errors import InputError
from syncpoint.run.dtypes import Kind, parse_dtype
from syncpoint.runtimes.inputs.shapes import Shape, refuse_missing_shapes, shapes_by_name
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec

_INTEGERS_BELOW = 10
"""Random integers are small, so that they are ids in most vocabularies."""


def generate_inputs(
    kind: str, seed: str, shapes: Mapping[str, Shape], declared: Sequence[InputSpec]
) -> Inputs:
    """Generate inputs (zeros, ones or seeded random) for the shapes of the user or the model."""
    if seed and (kind != "random" or not seed.isdigit()):
        raise InputError("random, random:SEED, zeros or ones", repr(f"{kind}:{seed}"))
    required = [spec.name for spec in declared if spec.required]
    wanted = shapes_by_name(shapes, declared, required)
    refuse_missing_shapes(kind, wanted, required)
    generator = np.random.default_rng(int(seed or 0))
    return Inputs(kwargs={name: _filled(kind, wanted[name], generator) for name in wanted})


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
