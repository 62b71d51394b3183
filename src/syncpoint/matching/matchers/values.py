"""Matcher: pairs unpaired tensors by equal values, found through an index of fingerprints, and
continues along the edges; says which are ambiguous.

Every unpaired tensor is filed under a coarse form of its fingerprint and compared with the few near
tensors of the other side. A pair must be equal up to rounding while the second best is ten times
further away, on every recorded part. Zero, constant and input-independent tensors are no evidence.
Tensors that hold the same values for a known reason, such as views of one tensor, are distinguished
by kind, shape and sources; if that does not suffice, they are ambiguous and stay unpaired. If both
models can be run again, the values must be equal on a second input too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import inf

import numpy as np

from syncpoint.matching.fingerprints import FLOOR, MARGIN, Sample, log_norm, relative_distance
from syncpoint.matching.graph import Slot
from syncpoint.matching.matchers.graph_edges import walk_edges
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.matching.workspace import REFERENCE, SIDES, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Role

_MAX_ROUNDS = 4
_COORDINATES = 3
_MAX_CANDIDATES = 24
"""Maximum number of near tensors; if there are more, values are no evidence."""

_SEVERAL_EQUAL = Reason(
    ReasonCode.AMBIGUOUS, "several tensors hold these numbers", cure="pin them with a map"
)
_FIRST_INPUT_ONLY = Reason(ReasonCode.AMBIGUOUS, "agreed on the first input only")


class ValueMatcher:
    """Pairs equal tensors, and continues from them along the edges."""

    name = "values"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Repeat, since each round may leave fewer candidates for the next."""
        work = Workspace.of(matching)
        have_edges = all(graph.has_edges for graph in work.graphs)
        for _ in range(_MAX_ROUNDS):
            if not self._pair_round(work):
                break
            if have_edges:
                walk_edges(work)
        return ()

    def _pair_round(self, work: Workspace) -> int:
        index = _FingerprintIndex(work)
        pair_count = 0
        doubtful: list[tuple[Slot, Slot]] = []
        for reference, candidates in index.candidates():
            best = candidates[0]
            rivals = [d for d, _ in candidates[1:]]
            close = [s for d, s in candidates if d < MARGIN * max(best[0], FLOOR)]
            margin = min(rivals, default=inf) / max(best[0], FLOOR)
            evidence, confidence = "equal values", 0.9
            if len(close) > 1:
                alike = _filter_alike(work, close, reference)
                if len(alike) != 1:
                    alike = _first_of_copies(work, TARGET, close)
                if len(alike) != 1:
                    doubtful += [(slot, reference) for slot in close]
                    continue
                close, evidence, confidence = alike, "equal values, same kind and shape", 0.8
            elif margin < inf:
                evidence = f"equal values, the next {margin:.0f}x further away"
            is_mutual = index.is_mutual(close[0], reference)
            if not is_mutual or not _operands_agree(work, close[0], reference):
                doubtful.append((close[0], reference))
                continue
            if (close[0], reference) in index.confirmed:
                evidence += ", on a second input too"
            pair_count += work.pair(close[0], reference, evidence, confidence)
        for slot, other in index.rejected:
            _explain_ambiguous(work, TARGET, slot, _FIRST_INPUT_ONLY)
            _explain_ambiguous(work, REFERENCE, other, _FIRST_INPUT_ONLY)
        for slot, other in doubtful:
            _explain_ambiguous(work, TARGET, slot)
            _explain_ambiguous(work, REFERENCE, other)
        return pair_count


class _FingerprintIndex:
    """The unpaired tensors of both sides, filed so that near ones lie in neighboring cells."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self._width = max(6 * work.fingerprints.tolerance, 1e-3)
        free_slots = [_free_slots_by_size(work, side) for side in (TARGET, REFERENCE)]
        common = free_slots[0].keys() & free_slots[1].keys()
        self._cells: dict[tuple[int, ...], list[Slot]] = {}
        self._samples: tuple[dict[Slot, Sample], dict[Slot, Sample]] = ({}, {})
        for side in (TARGET, REFERENCE):
            for count in common:
                for slot in free_slots[side][count]:
                    sample = work.fingerprints.sample(side, slot, self._proven_view(side, slot))
                    if sample is not None:
                        self._samples[side][slot] = sample
        for slot, sample in self._samples[TARGET].items():
            self._cells.setdefault(self._cell_of(sample), []).append(slot)
        self.confirmed: set[tuple[Slot, Slot]] = set()
        self.rejected: list[tuple[Slot, Slot]] = []
        """Equal on the first input, but not on the second."""
        self._candidates: dict[Slot, list[tuple[float, Slot]]] = {}
        self._candidates_of_target: dict[Slot, list[tuple[float, Slot]]] = {}
        for slot, sample in self._samples[REFERENCE].items():
            candidates = sorted(self._near_targets(slot, sample))
            if len(candidates) <= _MAX_CANDIDATES:
                candidates = self._confirm(candidates, slot)
            if candidates and len(candidates) <= _MAX_CANDIDATES:
                self._candidates[slot] = candidates
                for distance, other in candidates:
                    self._candidates_of_target.setdefault(other, []).append((distance, slot))

    def candidates(self) -> Iterator[tuple[Slot, list[tuple[float, Slot]]]]:
        """Reference slots in order, each with its equal target slots, nearest first."""
        yield from self._candidates.items()

    def is_mutual(self, target: Slot, reference: Slot) -> bool:
        """Whether the reference is also the nearest to the target, by margin or by kind."""
        references = sorted(self._candidates_of_target[target])
        close = [s for d, s in references if d < MARGIN * max(references[0][0], FLOOR)]
        if close == [reference]:
            return True
        alike = _filter_alike(self.work, close, target, side=REFERENCE)
        if len(alike) != 1:
            alike = _first_of_copies(self.work, REFERENCE, close)
        return alike == [reference]

    def _confirm(
        self, candidates: list[tuple[float, Slot]], reference: Slot
    ) -> list[tuple[float, Slot]]:
        confirmation = self.work.matching.confirmation
        if confirmation is None:
            return candidates
        confirmed = []
        for distance, slot in candidates:
            target_key = next(iter(self.work.graphs[TARGET].slots[slot])).key
            reference_key = next(iter(self.work.graphs[REFERENCE].slots[reference])).key
            agrees = confirmation.agrees(target_key, reference_key)
            if agrees:
                self.confirmed.add((slot, reference))
            if agrees is False:
                self.rejected.append((slot, reference))
            else:
                confirmed.append((distance, slot))
        return confirmed

    def _proven_view(self, side: int, slot: Slot) -> View:
        if side == REFERENCE:
            return View()
        shape = self.work.graphs[TARGET].shape(slot) or ()
        return self.work.view_selector.proven_view(len(shape))

    def _near_targets(self, slot: Slot, sample: Sample) -> Iterator[tuple[float, Slot]]:
        home = self._cell_of(sample)
        for step in product((-1, 0, 1), repeat=_COORDINATES):
            cell = (home[0], *(a + b for a, b in zip(home[1:], step, strict=True)))
            for other in self._cells.get(cell, ()):
                if self._is_bare(TARGET, other) != self._is_bare(REFERENCE, slot):
                    continue
                self.work.fingerprints.comparison_count += 1
                distance = relative_distance(self._samples[TARGET][other], sample)
                if not distance <= self.work.fingerprints.close_tolerance:
                    continue
                worst = self.work.fingerprints.distance(
                    other, slot, self._proven_view(TARGET, other)
                )
                # If one execution is no evidence, it is unknown whether they are equal.
                if worst < inf:
                    yield max(distance, worst), other

    def _is_bare(self, side: int, slot: Slot) -> bool:
        """Whether a slot is a product whose bias is added later. Coarse precisions would not
        distinguish it from a product with bias."""
        graph = self.work.graphs[side]
        position = graph.position.get(slot.op, -1)
        return position in graph.completed or position in graph.between_halves

    def _cell_of(self, sample: Sample) -> tuple[int, ...]:
        size = log_norm(sample)
        top = float(np.max(np.abs(sample), initial=0.0))
        unit = sample / top if top > 0 else sample
        norm = float(np.linalg.norm(unit))
        directions = _directions(len(sample))
        coordinates = directions @ (unit / norm) if norm > 0 else np.zeros(_COORDINATES)
        coordinates[0] = size
        return (len(sample), *(int(np.floor(x / self._width)) for x in coordinates))


@lru_cache(maxsize=256)
def _directions(length: int) -> Sample:
    generator = np.random.default_rng(length)
    return np.asarray(generator.standard_normal((_COORDINATES, length)))


def _free_slots_by_size(work: Workspace, side: int) -> dict[int, list[Slot]]:
    """Free slots by number of elements."""
    graph = work.graphs[side]
    slots: dict[int, list[Slot]] = {}
    for slot in graph.slots:
        if slot.role is Role.OUTPUT and work.is_free(side, slot):
            slots.setdefault(graph.count(slot), []).append(slot)
    return slots


def _filter_alike(
    work: Workspace, slots: list[Slot], other: Slot, side: int = TARGET
) -> list[Slot]:
    """Of several equal slots those of the kind and shape of the other; of views of one tensor, the
    slot that computes it if the other slot does too."""
    graph, other_graph = work.graphs[side], work.graphs[1 - side]
    kind, shape = other_graph.class_of(other), other_graph.shape(other)
    same = [s for s in slots if graph.class_of(s) == kind and graph.shape(s) == shape]
    if not same and kind in TRANSPARENT:
        # Moving axes of length 1 is a reshape: views of one tensor are then distinguished by shape.
        views = [s for s in slots if graph.class_of(s) in TRANSPARENT]
        same = [s for s in views if graph.shape(s) == shape]
        same = same or [s for s in views if _long_axes(graph.shape(s)) == _long_axes(shape)]
    if len(same) == 1 or kind in TRANSPARENT or len({graph.root(s) for s in slots}) > 1:
        return same
    return [s for s in slots if graph.class_of(s) not in TRANSPARENT]


def _first_of_copies(work: Workspace, side: int, slots: list[Slot]) -> list[Slot]:
    """The first of several equal slots if one op computes all of them: copies of one result, or
    results that the op returns twice, as an LSTM returns its last step. One that is read counts
    before one that is not, since the pairs after it build on it."""
    graph = work.graphs[side]
    if len({graph.root(slot).op for slot in slots}) != 1:
        return []
    return [
        min(slots, key=lambda s: (s not in graph.consumers, graph.position.get(s.op, -1), s.index))
    ]


def _long_axes(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(n for n in shape or () if n != 1)


def _operands_agree(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Whether the sources of both are not paired with others."""
    target_graph, reference_graph = work.graphs
    if not (target_graph.has_edges and reference_graph.has_edges):
        return True
    target_position = target_graph.position[target.op]
    reference_position = reference_graph.position[reference.op]
    target_sources = target_graph.sources_behind(target_position, work.to_reference)
    reference_sources = reference_graph.sources_behind(reference_position, work.to_target)
    if target_sources is None or reference_sources is None:
        return True
    partners = (work.to_reference[slot] for slot in target_sources if slot in work.to_reference)
    expected_roots = {reference_graph.root(slot) for slot in partners}
    reference_roots = {reference_graph.root(s) for s in reference_sources if s in work.to_target}
    return not expected_roots or not reference_roots or bool(expected_roots & reference_roots)


def _explain_ambiguous(
    work: Workspace, side: int, slot: Slot, reason: Reason = _SEVERAL_EQUAL
) -> None:
    if not work.is_free(side, slot):
        return
    for tensor in work.graphs[side].slots[slot]:
        work.matching.explain(SIDES[side], tensor.key, reason)
