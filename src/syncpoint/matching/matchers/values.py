"""Values: tensors that hold the same numbers, where nothing better tells.

Every tensor that is still unpaired is filed under a coarse form of its fingerprint, and looked
at beside the few of the other side that lie near it. A pair must be equal up to rounding while
the second best is ten times further away, on every recorded part. Zero, constant and
input-independent tensors are no evidence. Tensors that hold the same numbers for a good reason,
views of one another for instance, are told apart by kind, shape and what they are made from; if
that does not suffice they are ambiguous and stay unpaired. Where both models can be run again,
equal means equal on a second input too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import inf

import numpy as np

from syncpoint.matching.fingerprints import FLOOR, MARGIN, Sample, apart, log_norm
from syncpoint.matching.graph import Slot
from syncpoint.matching.matchers.graph_edges import walk
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.matching.workspace import REFERENCE, SIDES, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Role

_ROUNDS = 4
_COORDINATES = 3
_MOST = 24
"""Tensors of one side that may lie near one of the other; where more do, values tell nothing."""

_SEVERAL = Reason(
    ReasonCode.AMBIGUOUS, "several tensors hold these numbers", cure="pin them with a map"
)
_FIRST_ONLY = Reason(ReasonCode.AMBIGUOUS, "agreed on the first input only")


class ValueMatcher:
    """Pairs equal tensors, and goes on from them along the edges."""

    name = "values"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Each round may leave fewer candidates for the next."""
        work = Workspace.of(matching)
        edges = all(graph.has_edges for graph in work.graphs)
        for _ in range(_ROUNDS):
            if not self._round(work):
                break
            if edges:
                walk(work)
        return ()

    def _round(self, work: Workspace) -> int:
        index = _Index(work)
        found = 0
        doubtful: list[tuple[Slot, Slot]] = []
        for reference, near in index.candidates():
            best = near[0]
            rivals = [d for d, _ in near[1:]]
            close = [s for d, s in near if d < MARGIN * max(best[0], FLOOR)]
            margin = min(rivals, default=inf) / max(best[0], FLOOR)
            why, confidence = "equal values", 0.9
            if len(close) > 1:
                kept = _alike(work, close, reference)
                if len(kept) != 1:
                    doubtful += [(slot, reference) for slot in close]
                    continue
                close, why, confidence = kept, "equal values, same kind and shape", 0.8
            elif margin < inf:
                why = f"equal values, the next {margin:.0f}x further away"
            if not index.mutual(close[0], reference) or not _operands_agree(
                work, close[0], reference
            ):
                doubtful.append((close[0], reference))
                continue
            if (close[0], reference) in index.confirmed:
                why += ", on a second input too"
            found += work.pair(close[0], reference, why, confidence)
        for slot, other in index.denied:
            _ambiguous(work, TARGET, slot, _FIRST_ONLY)
            _ambiguous(work, REFERENCE, other, _FIRST_ONLY)
        for slot, other in doubtful:
            _ambiguous(work, TARGET, slot)
            _ambiguous(work, REFERENCE, other)
        return found


class _Index:
    """The unpaired tensors of both sides, filed so that near ones lie in neighbouring cells."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self._width = max(6 * work.prints.tolerance, 1e-3)
        left = [_left(work, side) for side in (TARGET, REFERENCE)]
        common = left[0].keys() & left[1].keys()
        self._cells: dict[tuple[int, ...], list[Slot]] = {}
        self._order: list[Slot] = []
        self._sides: tuple[dict[Slot, Sample], dict[Slot, Sample]] = ({}, {})
        for side in (TARGET, REFERENCE):
            for count in common:
                for slot in left[side][count]:
                    sample = work.prints.sample(side, slot, self._view(side, slot))
                    if sample is not None:
                        self._sides[side][slot] = sample
        for slot, sample in self._sides[TARGET].items():
            self._cells.setdefault(self._cell(sample), []).append(slot)
        self.confirmed: set[tuple[Slot, Slot]] = set()
        self.denied: list[tuple[Slot, Slot]] = []
        """Equal on the first input, and not on the second."""
        self._near: dict[Slot, list[tuple[float, Slot]]] = {}
        self._back: dict[Slot, list[tuple[float, Slot]]] = {}
        for slot, sample in self._sides[REFERENCE].items():
            near = sorted(self._around(slot, sample))
            if len(near) <= _MOST:
                near = self._confirmed(near, slot)
            if near and len(near) <= _MOST:
                self._near[slot] = near
                for distance, other in near:
                    self._back.setdefault(other, []).append((distance, slot))

    def candidates(self) -> Iterator[tuple[Slot, list[tuple[float, Slot]]]]:
        """Reference slots in order, each with the target slots that equal it, nearest first."""
        yield from self._near.items()

    def mutual(self, target: Slot, reference: Slot) -> bool:
        """Whether the reference is also what the target is nearest to, by the margin or by kind."""
        back = sorted(self._back[target])
        close = [s for d, s in back if d < MARGIN * max(back[0][0], FLOOR)]
        if close == [reference]:
            return True
        kept = _alike(self.work, close, target, side=REFERENCE)
        return kept == [reference]

    def _confirmed(
        self, near: list[tuple[float, Slot]], reference: Slot
    ) -> list[tuple[float, Slot]]:
        confirmation = self.work.matching.confirmation
        if confirmation is None:
            return near
        kept = []
        for distance, slot in near:
            first = next(iter(self.work.graphs[TARGET].slots[slot])).key
            other = next(iter(self.work.graphs[REFERENCE].slots[reference])).key
            agrees = confirmation.agrees(first, other)
            if agrees:
                self.confirmed.add((slot, reference))
            if agrees is False:
                self.denied.append((slot, reference))
            else:
                kept.append((distance, slot))
        return kept

    def _view(self, side: int, slot: Slot) -> View:
        if side == REFERENCE:
            return View()
        shape = self.work.graphs[TARGET].shape(slot) or ()
        return self.work.layouts.proven(len(shape))

    def _around(self, slot: Slot, sample: Sample) -> Iterator[tuple[float, Slot]]:
        home = self._cell(sample)
        for step in product((-1, 0, 1), repeat=_COORDINATES):
            cell = (home[0], *(a + b for a, b in zip(home[1:], step, strict=True)))
            for other in self._cells.get(cell, ()):
                if self._is_bare(TARGET, other) != self._is_bare(REFERENCE, slot):
                    continue
                self.work.prints.compared += 1
                distance = apart(self._sides[TARGET][other], sample)
                if not distance <= self.work.prints.tolerance:
                    continue
                whole = self.work.prints.distance(other, slot, self._view(TARGET, other))
                # An execution that tells nothing leaves it open whether they are equal.
                if whole < inf:
                    yield max(distance, whole), other

    def _is_bare(self, side: int, slot: Slot) -> bool:
        """A product whose bias is added afterwards: it is like another one, but not a whole one,
        which coarse precisions would not tell from it."""
        graph = self.work.graphs[side]
        return graph.position.get(slot.op, -1) in graph.completed

    def _cell(self, sample: Sample) -> tuple[int, ...]:
        size = log_norm(sample)
        top = float(np.max(np.abs(sample), initial=0.0))
        unit = sample / top if top > 0 else sample
        norm = float(np.linalg.norm(unit))
        directions = _directions(len(sample))
        spots = directions @ (unit / norm) if norm > 0 else np.zeros(_COORDINATES)
        spots[0] = size
        return (len(sample), *(int(np.floor(x / self._width)) for x in spots))


@lru_cache(maxsize=256)
def _directions(length: int) -> Sample:
    generator = np.random.default_rng(length)
    return np.asarray(generator.standard_normal((_COORDINATES, length)))


def _left(work: Workspace, side: int) -> dict[int, list[Slot]]:
    """Unpaired slots by number of elements."""
    graph = work.graphs[side]
    found: dict[int, list[Slot]] = {}
    for slot in graph.slots:
        if slot.role is Role.OUTPUT and work.free(side, slot):
            found.setdefault(graph.count(slot), []).append(slot)
    return found


def _alike(work: Workspace, slots: list[Slot], other: Slot, side: int = TARGET) -> list[Slot]:
    """Of several equal tensors the one of the other's kind and shape; of views of one tensor,
    the one that computed it if the other did too."""
    mine, theirs = work.graphs[side], work.graphs[1 - side]
    kind, shape = theirs.class_of(other), theirs.shape(other)
    same = [s for s in slots if mine.class_of(s) == kind and mine.shape(s) == shape]
    if not same and kind in TRANSPARENT:
        # To move axes of length 1 is to reshape: views of one tensor are then told by shape.
        views = [s for s in slots if mine.class_of(s) in TRANSPARENT]
        same = [s for s in views if mine.shape(s) == shape]
        same = same or [s for s in views if _long(mine.shape(s)) == _long(shape)]
    if len(same) == 1 or kind in TRANSPARENT or len({mine.root(s) for s in slots}) > 1:
        return same
    return [s for s in slots if mine.class_of(s) not in TRANSPARENT]


def _long(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(n for n in shape or () if n != 1)


def _operands_agree(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Whether what both are made from does not belong to other pairs."""
    mine, theirs = work.graphs
    at = mine.position[target.op], theirs.position[reference.op]
    ends = (
        [
            mine.behind(at[0], work.to_reference),
            theirs.behind(at[1], work.to_target),
        ]
        if mine.has_edges and theirs.has_edges
        else [None, None]
    )
    if ends[0] is None or ends[1] is None:
        return True
    known = {theirs.root(work.to_reference[s]) for s in ends[0] if s in work.to_reference}
    wanted = {theirs.root(s) for s in ends[1] if s in work.to_target}
    return not known or not wanted or bool(known & wanted)


def _ambiguous(work: Workspace, side: int, slot: Slot, reason: Reason = _SEVERAL) -> None:
    if not work.free(side, slot):
        return
    for tensor in work.graphs[side].slots[slot]:
        work.matching.explain(SIDES[side], tensor.key, reason)
