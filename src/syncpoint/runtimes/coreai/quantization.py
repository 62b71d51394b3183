"""Which constants of a Core AI asset are compressed weights, and for which numbers they stand.

A kernel makes the dense weight out of integers before it is used. The runtime shows what it reads
as a set, in which scale and offset may have one form: a meaning is taken only if it gives what
the kernel gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import Quantization
from syncpoint.runtimes.coreai.program import Node
from syncpoint.runtimes.protocol import Array

UNPACKING = frozenset({"blockwise_shift_scale", "lut_to_dense"})
"""Kernels that make a weight out of integers, by their short names."""
_CLOSE = 2.0**-8
"""What rounding to the narrowest type that a weight may have leaves, of each element."""


def meaning(kernel: str, read: Sequence[Array], made: Array) -> tuple[int, Quantization] | None:
    """Which of the arrays that a kernel read are the stored integers, and what they mean, as
    `rows` has them. None where nothing that can be said of them gives what it made."""
    whole = [at for at, a in enumerate(read) if _is_integer(a) and a.shape == made.shape]
    if len(whole) != 1 or not made.size:
        return None
    stored = read[whole[0]].astype(np.float64)
    others = [a for at, a in enumerate(read) if at != whole[0]]
    wanted = made.astype(np.float64)
    for found, real in (_shifted if kernel == "blockwise_shift_scale" else _looked_up)(
        stored, others
    ):
        if (np.abs(real - wanted) <= _CLOSE * np.abs(wanted)).all():
            return whole[0], found
    return None


def rows(stored: Array, known: Quantization | None) -> Array:
    """Stored integers in the form that their meaning speaks of: where it changes along two axes,
    neighbours that share a scale are a row."""
    if known is None or not known.describe_misfit(stored.shape):
        return stored
    return stored.reshape(len(known.scale), -1)


def _shifted(stored: Array, others: Sequence[Array]) -> Iterator[tuple[Quantization, Array]]:
    """scale * (stored - zero point), with an offset of nothing but zeros."""
    floats = [a for a in others if not _is_integer(a)]
    zeros = [a for a in others if _is_integer(a)] or [np.zeros((1,) * stored.ndim, np.int8)]
    for (scale, *rest), zero in product(permutations(floats), zeros):
        if any(a.any() for a in rest) or zero.shape not in (scale.shape, (1,) * stored.ndim):
            continue
        shared = _Shared.of(scale.shape, stored.shape)
        if shared is None:
            continue
        offsets = np.broadcast_to(zero, scale.shape).reshape(-1).astype(int)
        scales = scale.reshape(-1).astype(np.float64)
        real = scales[shared.which] * (stored - offsets[shared.which])
        yield shared.said(scales, offsets if zero.size > 1 else offsets[:1]), real


def _looked_up(stored: Array, others: Sequence[Array]) -> Iterator[tuple[Quantization, Array]]:
    """Tables of single numbers: one for the whole weight, or one for each of its blocks."""
    for table in others:
        if table.ndim != stored.ndim + 2 or table.shape[-1] != 1 or stored.max() >= table.shape[-2]:
            continue
        shared = _Shared.of(table.shape[:-2], stored.shape)
        if shared is None:
            continue
        entries = table.reshape(-1).astype(np.float64)
        length = table.shape[-2]
        starts = np.arange(entries.size // length) * length
        real = entries[stored.astype(np.int64) + starts[shared.which]]
        found = shared.said(np.ones(starts.size), -starts)
        yield replace(found, table=tuple(entries.tolist())), real


@dataclass(frozen=True)
class _Shared:
    """Which elements of a weight share a scale or a table."""

    which: NDArray[np.int64]
    """By element: the number of its scale."""
    axis: int | None
    block: int
    """As a quantization has them, where the scales change along one axis at most."""
    row: int
    """Else the number of neighbours that share one."""

    @classmethod
    def of(cls, form: Sequence[int], shape: tuple[int, ...]) -> _Shared | None:
        """None where scales of this form do not fit, or share no neighbours."""
        if len(form) != len(shape) or any(not f or n % f for f, n in zip(form, shape, strict=True)):
            return None
        which = np.arange(prod(form)).reshape(form)
        axes = [axis for axis, length in enumerate(form) if length > 1]
        for at in range(len(shape)):
            which = np.repeat(which, shape[at] // form[at], at)
        if not axes:
            return cls(which, None, 0, 0)
        if len(axes) == 1:
            block = shape[axes[0]] // form[axes[0]]
            return cls(which, axes[0], block if block > 1 else 0, 0)
        row = prod(shape[axes[-1] + 1 :]) * (shape[axes[-1]] // form[axes[-1]])
        return cls(which, 0, 0, row)

    def said(self, scale: NDArray[Any], zero: NDArray[Any]) -> Quantization:
        """The quantization of these scales and zero points, by their numbers."""
        if self.row:
            each = self.which.reshape(-1, self.row)[:, 0]
            scale, zero = scale[each], zero[each] if zero.size > 1 else zero
        return Quantization(
            tuple(scale.astype(float).tolist()),
            tuple(zero.astype(int).tolist()),
            self.axis,
            self.block,
        )


class Rounded:
    """What the integers of quantized results mean, from the constants of the steps that make
    them: real = scale * (stored - zero point). Unknown where a step is missing."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, Array]] = {}

    def step(self, node: Node, constants: Sequence[Array]) -> Quantization | None:
        """Take note of a step; the meaning of its result where it is the one that gives
        integers."""
        if node.step != "quantize":
            return None
        known = self._known.setdefault(node.group, {})
        if node.name != "cast":
            known[node.name] = constants[0] if len(constants) == 1 else np.zeros(0)
            return None
        scale, zero = known.get("divide"), known.get("add")
        if not node.plain or scale is None or zero is None or scale.size != 1 or zero.size != 1:
            return None
        return Quantization((float(scale.reshape(-1)[0]),), (int(zero.reshape(-1)[0]),))


def _is_integer(array: Array) -> bool:
    return from_numpy(array.dtype).kind is Kind.INT
