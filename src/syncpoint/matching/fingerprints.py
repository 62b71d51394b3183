"""Fingerprints: a few hundred values of a tensor, enough to tell it from every other.

They are taken once, at places that depend on the number of elements alone, so that two tensors
of one size are compared element by element without reading either of them whole. Rounding moves
a fingerprint a little; another tensor has another one altogether.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.views import View
from syncpoint.metrics.limits import PRESETS, coarsest, preset_of
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Part, Role, Tensor
from syncpoint.run.reader import Run

SAMPLES = 512
_LEAST = 6
"""Different values that a fingerprint must have to say anything."""
_PARTS = 3
"""Executions that are looked at where a run has several: each must agree."""

MARGIN = 10.0
"""How much further away the second best must be for values to choose the best."""
FLOOR = 1e-7
"""Distances below are rounding of rounding: as good as nothing."""

SAFE_NORM = 1e-150
"""Norms below this may have lost squares that underflowed."""

Sample = NDArray[np.float64]


class Fingerprints:
    """The fingerprints of both sides, taken when asked for and kept."""

    def __init__(self, target: Graph, reference: Graph) -> None:
        self.graphs = (target, reference)
        self._samples: dict[tuple[int, Slot, Part, str], Sample | None] = {}
        self._parts = self._common_parts()
        self._tolerance = _tolerance(target.side.run, reference.side.run)
        self.taken = 0
        """How many fingerprints were read."""
        self.compared = 0
        """How many pairs were looked at."""

    @property
    def tolerance(self) -> float:
        """Relative distance up to which two tensors count as equal: what the coarsest precision
        of either run leaves of a tensor that is called moderate."""
        return self._tolerance

    def sample(self, side: int, slot: Slot, view: View | None = None) -> Sample | None:
        """The fingerprint of a slot, seen through a view; None where it says nothing: not
        recorded, constant, too few different values, or the same for every input."""
        found = [self._sample(side, slot, part, view or View()) for part in self._parts[:1]]
        return found[0] if found else None

    def distance(self, target: Slot, reference: Slot, view: View | None = None) -> float:
        """How far apart two slots are, relative to the reference; inf where it cannot be told.

        With several parts, the distance of the worst.
        """
        worst = 0.0
        for part in self._parts[:_PARTS]:
            mine = self._sample(0, target, part, view or View())
            theirs = self._sample(1, reference, part, View())
            if mine is None or theirs is None or len(mine) != len(theirs):
                return inf
            self.compared += 1
            worst = max(worst, apart(mine, theirs))
        return worst if self._parts else inf

    def equal(self, target: Slot, reference: Slot, view: View | None = None) -> bool:
        """Whether two slots hold the same numbers up to rounding."""
        return self.distance(target, reference, view) <= self._tolerance

    def tells(self, side: int, slot: Slot) -> bool:
        """Whether a slot's values are evidence at all."""
        return self.sample(side, slot) is not None

    def _common_parts(self) -> list[Part]:
        sides = []
        for graph in self.graphs:
            sides.append(
                {t.key.part for ts in graph.slots.values() for t in ts if t.key.role is Role.OUTPUT}
            )
        return sorted(sides[0] & sides[1])

    def _sample(self, side: int, slot: Slot, part: Part, view: View) -> Sample | None:
        key = (side, slot, part, view.text)
        if key not in self._samples:
            self.taken += 1
            self._samples[key] = self._read(side, slot, part, view)
        return self._samples[key]

    def _read(self, side: int, slot: Slot, part: Part, view: View) -> Sample | None:
        graph = self.graphs[side]
        at = graph.position.get(slot.op, -1)
        if slot.role is not Role.OUTPUT or at < 0 or not graph.live[at]:
            return None
        tensor = next((t for t in graph.slots.get(slot, ()) if t.key.part == part), None)
        if tensor is None or tensor.kept is not Kept.VALUES or tensor.count < 2:
            return None
        if DTYPES[tensor.dtype].kind not in (Kind.FLOAT, Kind.INT):
            return None
        try:
            return informative(_picked(graph.side.run, tensor, view))
        except (SyncpointError, ValueError, IndexError):
            return None


def apart(mine: Sample, theirs: Sample) -> float:
    """Distance of two fingerprints relative to the second; inf where that is zero."""
    with np.errstate(over="ignore"):
        gap, norm = float(np.linalg.norm(mine - theirs)), float(np.linalg.norm(theirs))
    if SAFE_NORM < norm < inf and gap < inf:
        return gap / norm
    # The squares of very large and very small numbers are inf and 0.
    top = max(float(np.max(np.abs(side), initial=0.0)) for side in (mine, theirs))
    if not 0 < top < inf:
        return inf
    mine, theirs = mine / top, theirs / top
    norm = float(np.linalg.norm(theirs))
    return float(np.linalg.norm(mine - theirs)) / norm if norm > 0 else inf


def log_norm(sample: Sample) -> float:
    """Natural logarithm of a fingerprint's norm, whatever its size; 0 where that is zero."""
    top = float(np.max(np.abs(sample), initial=0.0))
    if not 0 < top < inf:
        return 0.0
    return float(np.log(top) + np.log(np.linalg.norm(sample / top)))


def chosen(table: list[list[float]], tolerance: float) -> list[tuple[int, int]]:
    """The pairs of rows and columns that are equal, while every other in the row and in the
    column is at least ten times further away."""
    found = []
    columns = list(zip(*table, strict=True))
    for i, row in enumerate(table):
        for j, best in enumerate(row):
            if not best <= tolerance:
                continue
            rivals = [d for k, d in enumerate(row) if k != j]
            rivals += [d for k, d in enumerate(columns[j]) if k != i]
            if min(rivals, default=inf) >= MARGIN * max(best, FLOOR):
                found.append((i, j))
    return found


def informative(sample: Sample) -> Sample | None:
    """The sample, unless it could be that of many a tensor: constant, nearly so, or empty."""
    if len(set(sample[: 4 * _LEAST].tolist())) >= _LEAST:
        return sample
    return sample if len(np.unique(sample)) >= _LEAST else None


def places(count: int) -> NDArray[np.int64]:
    """Where a tensor of so many elements is sampled."""
    if count <= SAMPLES:
        return np.arange(count, dtype=np.int64)
    # One place in each of as many equal pieces, moved by a fixed pattern: an even stride would
    # fall on the same channel again and again.
    generator = np.random.default_rng(count)
    starts = np.arange(SAMPLES, dtype=np.int64) * count // SAMPLES
    ends = np.arange(1, SAMPLES + 1, dtype=np.int64) * count // SAMPLES
    return starts + (generator.random(SAMPLES) * (ends - starts)).astype(np.int64)


def _picked(run: Run, tensor: Tensor, view: View) -> Sample:
    values = view.apply(run.values_for_sampling(tensor))
    where = places(prod(values.shape))
    if values.flags.c_contiguous:
        picked = values.reshape(-1)[where]
    else:
        picked = values[np.unravel_index(where, values.shape)]
    sample = _real(picked, tensor, where) if tensor.quantization else picked.astype(np.float64)
    lowest = -DTYPES[tensor.dtype].max / 2 if DTYPES[tensor.dtype].kind is Kind.FLOAT else -inf
    # Masks are written as -inf or the lowest number of the type, which each type has its own of.
    return np.where(np.isfinite(sample) & (sample > lowest), sample, 0.0)


def _real(picked: NDArray[Any], tensor: Tensor, where: NDArray[np.int64]) -> Sample:
    """Stored integers as the numbers they stand for."""
    quantization = tensor.quantization
    assert quantization is not None
    scale, zero = np.asarray(quantization.scale), np.asarray(quantization.zero_point, np.float64)
    if quantization.table:
        raise ValueError("no fingerprint of a look-up table")
    if quantization.axis is not None and scale.size > 1:
        along = np.unravel_index(where, tensor.shape)[quantization.axis]
        along = along // max(quantization.block, 1)
        scale, zero = scale[along], zero[along] if zero.size > 1 else zero
    return np.asarray((picked.astype(np.float64) - zero) * scale)


def _tolerance(target: Run, reference: Run) -> float:
    given = (Role.OUTPUT, Role.PARAMETER, Role.MODEL_INPUT)
    kinds = {
        (t.dtype, t.quantization is not None)
        for run in (target, reference)
        for t in run.tensors
        if t.key.role in given
    }
    preset = coarsest([preset_of(dtype, quantized) for dtype, quantized in kinds])
    limits = PRESETS[preset if preset != "exact" else "f32"]
    return float(10.0 ** (-limits.sqnr[1] / 20))
