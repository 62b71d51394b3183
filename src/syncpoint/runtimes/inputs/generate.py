"""Generate inputs: seeded random numbers, zeros or ones in given shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from syncpoint.errors import InputError
from syncpoint.run.dtypes import Kind, parse_dtype
from syncpoint.runtimes.inputs.shapes import InputShape, refuse_missing_shapes, resolve_shapes
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec

_RANDOM_INTEGERS_BELOW = 10
"""Random integers are small, so that they are valid ids in most vocabularies."""


def generate_inputs(
    kind: str, seed: str, shapes: Mapping[str, InputShape], declared: Sequence[InputSpec]
) -> Inputs:
    """Generate inputs (zeros, ones or seeded random) in the shapes of the user or the model."""
    if seed and (kind != "random" or not seed.isdigit()):
        raise InputError(
            f"cannot generate inputs from {f'{kind}:{seed}'!r}",
            cure="use random, random:SEED, zeros or ones",
        )
    required = [spec.name for spec in declared if spec.required]
    shape_by_name = resolve_shapes(shapes, declared, required)
    refuse_missing_shapes(kind, shape_by_name, required, declared)
    generator = np.random.default_rng(int(seed or 0))
    return Inputs(
        kwargs={
            name: _generate_array(kind, shape_by_name[name], generator) for name in shape_by_name
        }
    )


def _generate_array(kind: str, shape: InputShape, generator: np.random.Generator) -> Array:
    dtype = parse_dtype(shape.dtype)
    if kind == "zeros":
        return np.zeros(shape.dims, dtype.numpy)
    if kind == "ones":
        return np.ones(shape.dims, dtype.numpy)
    if dtype.kind is Kind.BOOL:
        return generator.integers(0, 2, shape.dims).astype(bool)
    if dtype.kind is Kind.INT:
        return generator.integers(0, _RANDOM_INTEGERS_BELOW, shape.dims).astype(dtype.numpy)
    values = generator.standard_normal(shape.dims)
    if dtype.kind is Kind.COMPLEX:
        return (values + 1j * generator.standard_normal(shape.dims)).astype(dtype.numpy)
    return values.astype(dtype.numpy)
