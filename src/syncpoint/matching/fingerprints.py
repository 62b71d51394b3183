"""Sample a few hundred values of a tensor (fingerprint), dequantized; compare two by distance, norm
and its log, tolerance, correlation; drop plain ones.

The positions of these values depend only on the number of elements. So two tensors of one size are
compared element by element, and neither is read completely. Rounding changes a fingerprint a
little; another tensor has a different fingerprint.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.views import View
from syncpoint.metrics.limits import PRESETS, Limits, coarsest, preset_of
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Part, Role, Tensor
from syncpoint.run.reader import Run

SAMPLES = 512
_MIN_DISTINCT_VALUES = 6
"""Number of distinct values below which a fingerprint is no evidence."""
_MAX_PARTS = 3
"""Maximum number of executions to compare if a run has several: each must agree."""

MARGIN = 10.0
"""Minimum ratio of the second smallest distance to the smallest for values to decide."""
FLOOR = 1e-7
"""Distances below this are rounding noise and count as zero."""

_FINE_TOLERANCE = 1e-3
"""Tolerance up to which no other tensor of a model is equal by chance."""
SAFE_NORM = 1e-150
"""Below this norm, squares of elements may have underflowed."""

Sample = NDArray[np.float64]


class Fingerprints:
    """The fingerprints of both sides, read on first use and cached."""

    def __init__(self, target: SlotGraph, reference: SlotGraph) -> None:
        self.graphs = (target, reference)
        self._samples: dict[tuple[int, Slot, Part, str], Sample | None] = {}
        self._distances: dict[tuple[Slot, Slot, str], float] = {}
        self._parts = self._common_parts()
        limits = _limits(target.side.run, reference.side.run)
        moderate, close = (float(10.0 ** (-limits.sqnr[level] / 20)) for level in (1, 0))
        self._tolerance = moderate
        self._close_tolerance = max(close, min(moderate, _FINE_TOLERANCE))
        self.read_count = 0
        """Number of fingerprints that were read."""
        self.comparison_count = 0
        """Number of pairs whose fingerprints were compared; each pair counts once."""

    @property
    def tolerance(self) -> float:
        """Relative distance up to which two tensors count as equal: the limit of the verdict
        moderate in the coarsest precision of either run."""
        return self._tolerance

    @property
    def close_tolerance(self) -> float:
        """Relative distance up to which equal values are evidence by themselves. In coarse
        precisions it is the limit of the verdict close: a tensor with a bias and one without it, or
        before and after a norm, are within the limit of moderate."""
        return self._close_tolerance

    def sample(self, side: int, slot: Slot, view: View | None = None) -> Sample | None:
        """The fingerprint of a slot through a view; None if it is no evidence: not recorded,
        constant, too few distinct values, or independent of the model's inputs."""
        if not self._parts:
            return None
        return self._sample(side, slot, self._parts[0], view or View())

    def distance(self, target: Slot, reference: Slot, view: View | None = None) -> float:
        """Distance of two slots relative to the reference; inf if it cannot be measured.

        With several parts it is the largest distance.
        """
        key = (target, reference, view.text if view else "")
        distance = self._distances.get(key)
        if distance is None:
            distance = self._distances[key] = self._measure(target, reference, view or View())
        return distance

    def _measure(self, target: Slot, reference: Slot, view: View) -> float:
        worst = 0.0
        for part in self._parts[:_MAX_PARTS]:
            target_sample = self._sample(0, target, part, view)
            reference_sample = self._sample(1, reference, part, View())
            if target_sample is None or reference_sample is None:
                return inf
            if len(target_sample) != len(reference_sample):
                return inf
            self.comparison_count += 1
            worst = max(worst, relative_distance(target_sample, reference_sample))
        return worst if self._parts else inf

    def are_equal(self, target: Slot, reference: Slot, view: View | None = None) -> bool:
        """Whether two slots hold the same values up to rounding."""
        return self.distance(target, reference, view) <= self._tolerance

    def correlation(self, target: Slot, reference: Slot, view: View | None = None) -> float:
        """Correlation of the fingerprints of two slots; 0 if it cannot be measured."""
        target_sample, reference_sample = self.sample(0, target, view), self.sample(1, reference)
        if target_sample is None or reference_sample is None:
            return 0.0
        if len(target_sample) != len(reference_sample):
            return 0.0
        centered = [sample - sample.mean() for sample in (target_sample, reference_sample)]
        norms = [float(np.linalg.norm(sample)) for sample in centered]
        if min(norms) <= SAFE_NORM or max(norms) == inf:
            return 0.0
        return float(np.dot(centered[0] / norms[0], centered[1] / norms[1]))

    def is_informative(self, side: int, slot: Slot) -> bool:
        """Whether the values of a slot are evidence."""
        return self.sample(side, slot) is not None

    def _common_parts(self) -> list[Part]:
        parts_by_side = []
        for graph in self.graphs:
            parts_by_side.append(
                {t.key.part for ts in graph.slots.values() for t in ts if t.key.role is Role.OUTPUT}
            )
        return sorted(parts_by_side[0] & parts_by_side[1])

    def _sample(self, side: int, slot: Slot, part: Part, view: View) -> Sample | None:
        key = (side, slot, part, view.text)
        if key not in self._samples:
            self.read_count += 1
            self._samples[key] = self._read(side, slot, part, view)
        return self._samples[key]

    def _read(self, side: int, slot: Slot, part: Part, view: View) -> Sample | None:
        graph = self.graphs[side]
        position = graph.position.get(slot.op, -1)
        if slot.role is not Role.OUTPUT or position < 0 or not graph.live[position]:
            return None
        tensor = next((t for t in graph.slots.get(slot, ()) if t.key.part == part), None)
        if tensor is None or tensor.kept is not Kept.VALUES or tensor.count < 2:
            return None
        if DTYPES[tensor.dtype].kind not in (Kind.FLOAT, Kind.INT):
            return None
        try:
            return drop_uninformative(_read_sample(graph.side.run, tensor, view))
        except (SyncpointError, ValueError, IndexError):
            return None


def relative_distance(target: Sample, reference: Sample) -> float:
    """Distance of two fingerprints relative to the norm of the second; inf if that norm is zero."""
    with np.errstate(over="ignore"):
        gap, norm = float(np.linalg.norm(target - reference)), float(np.linalg.norm(reference))
    if SAFE_NORM < norm < inf and gap < inf:
        return gap / norm
    # Squares of very large numbers overflow to inf, of very small ones underflow to 0.
    top = max(float(np.max(np.abs(side), initial=0.0)) for side in (target, reference))
    if not 0 < top < inf:
        return inf
    target, reference = target / top, reference / top
    norm = float(np.linalg.norm(reference))
    return float(np.linalg.norm(target - reference)) / norm if norm > 0 else inf


def log_norm(sample: Sample) -> float:
    """Natural logarithm of the norm of a fingerprint, without overflow; 0 if the norm is zero."""
    top = float(np.max(np.abs(sample), initial=0.0))
    if not 0 < top < inf:
        return 0.0
    return float(np.log(top) + np.log(np.linalg.norm(sample / top)))


def choose_by_margin(table: list[list[float]], tolerance: float) -> list[tuple[int, int]]:
    """Choose the cells of a table of distances that are equal within the tolerance, while every
    other cell of their row and column is at least `MARGIN` times larger."""
    chosen_cells = []
    columns = list(zip(*table, strict=True))
    for i, row in enumerate(table):
        for j, distance in enumerate(row):
            if not distance <= tolerance:
                continue
            rivals = [d for k, d in enumerate(row) if k != j]
            rivals += [d for k, d in enumerate(columns[j]) if k != i]
            if min(rivals, default=inf) >= MARGIN * max(distance, FLOOR):
                chosen_cells.append((i, j))
    return chosen_cells


def drop_uninformative(sample: Sample) -> Sample | None:
    """The sample; None if many tensors could have it: constant, nearly constant or empty."""
    if len(set(sample[: 4 * _MIN_DISTINCT_VALUES].tolist())) >= _MIN_DISTINCT_VALUES:
        return sample
    return sample if len(np.unique(sample)) >= _MIN_DISTINCT_VALUES else None


def sample_positions(count: int) -> NDArray[np.int64]:
    """The positions at which a tensor of `count` elements is sampled."""
    if count <= SAMPLES:
        return np.arange(count, dtype=np.int64)
    # One position in each of SAMPLES equal intervals, at a fixed pseudo-random offset: with an even
    # stride all positions could lie in the same channel.
    generator = np.random.default_rng(count)
    starts = np.arange(SAMPLES, dtype=np.int64) * count // SAMPLES
    ends = np.arange(1, SAMPLES + 1, dtype=np.int64) * count // SAMPLES
    return starts + (generator.random(SAMPLES) * (ends - starts)).astype(np.int64)


def _read_sample(run: Run, tensor: Tensor, view: View) -> Sample:
    values = view.apply(run.values_for_sampling(tensor))
    positions = sample_positions(prod(values.shape))
    if values.flags.c_contiguous:
        sampled = values.reshape(-1)[positions]
    else:
        sampled = values[np.unravel_index(positions, values.shape)]
    sample = (
        _dequantize(sampled, tensor, positions)
        if tensor.quantization
        else sampled.astype(np.float64)
    )
    lowest = -DTYPES[tensor.dtype].max / 2 if DTYPES[tensor.dtype].kind is Kind.FLOAT else -inf
    # A mask is written as -inf or as the lowest number of the type, which differs between types.
    return np.where(np.isfinite(sample) & (sample > lowest), sample, 0.0)


def _dequantize(stored: NDArray[Any], tensor: Tensor, positions: NDArray[np.int64]) -> Sample:
    """Convert stored integers to the numbers they represent."""
    quantization = tensor.quantization
    assert quantization is not None
    scale = np.asarray(quantization.scale)
    zero_point = np.asarray(quantization.zero_point, np.float64)
    if quantization.table:
        raise ValueError("a tensor with a look-up table has no fingerprint")
    if quantization.axis is not None and scale.size > 1:
        scale_index = np.unravel_index(positions, tensor.shape)[quantization.axis]
        scale_index = scale_index // max(quantization.block, 1)
        scale = scale[scale_index]
        zero_point = zero_point[scale_index] if zero_point.size > 1 else zero_point
    return np.asarray((stored.astype(np.float64) - zero_point) * scale)


def _limits(target: Run, reference: Run) -> Limits:
    """The limits for the coarsest precision of either run."""
    roles = (Role.OUTPUT, Role.PARAMETER, Role.MODEL_INPUT)
    dtypes = {
        (t.dtype, t.quantization is not None)
        for run in (target, reference)
        for t in run.tensors
        if t.key.role in roles
    }
    preset = coarsest([preset_of(dtype, quantized) for dtype, quantized in dtypes])
    return PRESETS[preset if preset != "exact" else "f32"]
