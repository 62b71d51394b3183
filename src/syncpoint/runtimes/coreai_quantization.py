"""Which constants of a Core AI asset are compressed weights, and for which numbers they stand.

A kernel makes the dense weight out of integers before it is used. The runtime shows what it reads
as a set, in which scale and offset may have one form: a meaning is taken only if it gives what
the kernel gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

import numpy as np

from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import Quantization
from syncpoint.runtimes.coreai_program import Node
from syncpoint.runtimes.protocol import Array

UNPACKING = frozenset({"blockwise_shift_scale", "lut_to_dense"})
"""Kernels that make a weight out of integers, by their short names."""
_CLOSE = 2.0**-8
"""What rounding to the narrowest type that a weight may have leaves, of each element."""


def meaning(kernel: str, read: Sequence[Array], made: Array) -> tuple[int, Quantization] | None:
    """Which of the arrays that a kernel read are the stored integers, and what they mean. None
    where nothing that can be said of them gives what it made: several tables in one weight, or
    scales that change along two axes."""
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


def _shifted(stored: Array, others: Sequence[Array]) -> Iterator[tuple[Quantization, Array]]:
    """scale * (stored - zero point), with an offset of nothing but zeros."""
    floats = [a for a in others if not _is_integer(a)]
    zeros = [a for a in others if _is_integer(a)] or [np.zeros((1,) * stored.ndim, np.int8)]
    for (scale, *rest), zero in product(permutations(floats), zeros):
        axes = [axis for axis, length in enumerate(scale.shape) if length > 1]
        if any(a.any() for a in rest) or len(axes) > 1 or scale.ndim != stored.ndim:
            continue
        if zero.shape not in (scale.shape, (1,) * stored.ndim):
            continue
        axis = axes[0] if axes else None
        block = stored.shape[axis] // scale.size if axis is not None else 0
        if axis is not None and block * scale.size != stored.shape[axis]:
            continue
        wide, offset = scale.astype(np.float64), zero.astype(np.float64)
        if axis is not None and block > 1:
            wide = np.repeat(wide, block, axis)
            offset = np.repeat(offset, block, axis) if offset.size > 1 else offset
        yield (
            Quantization(
                tuple(scale.reshape(-1).astype(float).tolist()),
                tuple(zero.reshape(-1).astype(int).tolist()),
                axis,
                block if block > 1 else 0,
            ),
            wide * (stored - offset),
        )


def _looked_up(stored: Array, others: Sequence[Array]) -> Iterator[tuple[Quantization, Array]]:
    """One table of single numbers for the whole weight."""
    for table in others:
        if table.ndim == stored.ndim + 2 and table.size == table.shape[-2] > stored.max():
            entries = table.reshape(-1).astype(np.float64)
            yield (
                Quantization((1.0,), table=tuple(entries.tolist())),
                entries[stored.astype(np.int64)],
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
