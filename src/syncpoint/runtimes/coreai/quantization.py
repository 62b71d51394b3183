"""Find scale, zero point or lookup table of compressed weights and quantized activations in a Core
AI asset, by trying which give the real numbers.

A kernel decompresses integers to a dense weight before its use. The runtime shows the inputs of the
kernel as a set, in which scale and offset may have the same form. So a quantization is accepted
only if it gives the output of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import OpKey, Quantization
from syncpoint.runtimes.coreai.program import ProgramNode
from syncpoint.runtimes.protocol import Array

UNPACKING_KERNELS = frozenset({"blockwise_shift_scale", "lut_to_dense"})
"""Kernels that decompress a weight, by their short types."""
_MAX_RELATIVE_ERROR = 2.0**-8
"""Error of each element from rounding to the narrowest type of a weight."""


@dataclass
class CompressedWeights:
    """The quantizations of the weights that kernels decompressed."""

    quantizations: dict[int, Quantization] = field(default_factory=dict)
    """By the constant that holds the stored integers."""
    unknown: list[str] = field(default_factory=list)
    """Ops that decompress a weight whose quantization is unknown."""

    def add(
        self,
        key: OpKey,
        kernel: str,
        constants: Sequence[int],
        arrays: Sequence[Array],
        weight: Array,
    ) -> None:
        """Find the quantization of the weight that the kernel of an op made from its constants."""
        match = find_quantization(kernel, arrays, weight)
        if match is None:
            self.unknown.append(str(key))
            return
        position, quantization = match
        self.quantizations[constants[position]] = quantization


def find_quantization(
    kernel: str, inputs: Sequence[Array], output: Array
) -> tuple[int, Quantization] | None:
    """Find which input of a kernel is the stored integers, and their quantization.

    The quantization fits the shape that `reshape_to_rows` returns. None where no quantization
    gives the output of the kernel.
    """
    candidates = [i for i, a in enumerate(inputs) if _is_integer(a) and a.shape == output.shape]
    if len(candidates) != 1 or not output.size:
        return None
    index = candidates[0]
    stored = inputs[index].astype(np.float64)
    others = [a for i, a in enumerate(inputs) if i != index]
    expected = output.astype(np.float64)
    try_all = _try_scales if kernel == "blockwise_shift_scale" else _try_tables
    for quantization, real in try_all(stored, others):
        if (np.abs(real - expected) <= _MAX_RELATIVE_ERROR * np.abs(expected)).all():
            return index, quantization
    return None


def reshape_to_rows(stored: Array, quantization: Quantization | None) -> Array:
    """Reshape stored integers to fit their quantization: where scales change along two axes, the
    neighbours that share a scale become a row."""
    if quantization is None or not quantization.describe_misfit(stored.shape):
        return stored
    return stored.reshape(len(quantization.scale), -1)


def _try_scales(stored: Array, others: Sequence[Array]) -> Iterator[tuple[Quantization, Array]]:
    """Yield quantizations of the form scale * (stored - zero point), with their real numbers."""
    floats = [a for a in others if not _is_integer(a)]
    zeros = [a for a in others if _is_integer(a)] or [np.zeros((1,) * stored.ndim, np.int8)]
    for (scale, *rest), zero in product(permutations(floats), zeros):
        if any(a.any() for a in rest) or zero.shape not in (scale.shape, (1,) * stored.ndim):
            continue
        shared = _ScaleSharing.of(scale.shape, stored.shape)
        if shared is None:
            continue
        offsets = np.broadcast_to(zero, scale.shape).reshape(-1).astype(int)
        scales = scale.reshape(-1).astype(np.float64)
        real = scales[shared.scale_index] * (stored - offsets[shared.scale_index])
        yield shared.make_quantization(scales, offsets if zero.size > 1 else offsets[:1]), real


def _try_tables(stored: Array, others: Sequence[Array]) -> Iterator[tuple[Quantization, Array]]:
    """Yield quantizations by lookup table, one per weight or per block, with their real numbers."""
    for table in others:
        if table.ndim != stored.ndim + 2 or table.shape[-1] != 1 or stored.max() >= table.shape[-2]:
            continue
        shared = _ScaleSharing.of(table.shape[:-2], stored.shape)
        if shared is None:
            continue
        entries = table.reshape(-1).astype(np.float64)
        length = table.shape[-2]
        starts = np.arange(entries.size // length) * length
        real = entries[stored.astype(np.int64) + starts[shared.scale_index]]
        quantization = shared.make_quantization(np.ones(starts.size), -starts)
        yield replace(quantization, table=tuple(entries.tolist())), real


@dataclass(frozen=True)
class _ScaleSharing:
    """Which elements of a weight share a scale or a table."""

    scale_index: NDArray[np.int64]
    """By element: the index of its scale."""
    axis: int | None
    block: int
    """As in a Quantization, where the scales change along one axis at most."""
    row: int
    """Otherwise the number of neighbours that share a scale."""

    @classmethod
    def of(cls, form: Sequence[int], shape: tuple[int, ...]) -> _ScaleSharing | None:
        """Spread scales of the shape `form` over a weight; None where they do not fit."""
        if len(form) != len(shape) or any(not f or n % f for f, n in zip(form, shape, strict=True)):
            return None
        scale_index = np.arange(prod(form)).reshape(form)
        axes = [axis for axis, length in enumerate(form) if length > 1]
        for axis in range(len(shape)):
            scale_index = np.repeat(scale_index, shape[axis] // form[axis], axis)
        if not axes:
            return cls(scale_index, None, 0, 0)
        if len(axes) == 1:
            block = shape[axes[0]] // form[axes[0]]
            return cls(scale_index, axes[0], block if block > 1 else 0, 0)
        row = prod(shape[axes[-1] + 1 :]) * (shape[axes[-1]] // form[axes[-1]])
        return cls(scale_index, 0, 0, row)

    def make_quantization(self, scale: NDArray[Any], zero: NDArray[Any]) -> Quantization:
        """Make the quantization of these scales and zero points, which `scale_index` indexes."""
        if self.row:
            row_index = self.scale_index.reshape(-1, self.row)[:, 0]
            scale, zero = scale[row_index], zero[row_index] if zero.size > 1 else zero
        return Quantization(
            tuple(scale.astype(float).tolist()),
            tuple(zero.astype(int).tolist()),
            self.axis,
            self.block,
        )


class QuantizeSteps:
    """Finds the quantization of an activation from the constants of the steps that quantize it.

    real = scale * (stored - zero point). Unknown where a step is missing.
    """

    def __init__(self) -> None:
        self._constants: dict[int, dict[str, Array]] = {}
        """By group: the constant of each step."""

    def add_step(self, node: ProgramNode, constants: Sequence[Array]) -> Quantization | None:
        """Add a step; returns the quantization of its output if it is the step to integers."""
        if node.step != "quantize":
            return None
        step_constants = self._constants.setdefault(node.group, {})
        if node.name != "cast":
            step_constants[node.name] = constants[0] if len(constants) == 1 else np.zeros(0)
            return None
        scale, zero = step_constants.get("divide"), step_constants.get("add")
        if scale is None or zero is None or scale.size != 1 or zero.size != 1:
            return None
        if not node.has_zero_minimum:
            return None
        return Quantization((float(scale.reshape(-1)[0]),), (int(zero.reshape(-1)[0]),))


def _is_integer(array: Array) -> bool:
    return from_numpy(array.dtype).kind is Kind.INT
