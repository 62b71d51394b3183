"""Structure: from the pairs found so far along the edges of both graphs.

An op whose inputs are all paired belongs to the op of the same class that reads the partners of
those inputs. Where several do, values choose, then parameters; what neither tells apart stays
unpaired. Views, casts and copies are seen through: what they read is what counts. The work grows
with the number of edges: every op is filed once under what it reads, never held against all
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from syncpoint.matching.fingerprints import chosen
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.matchers.output_ops import pair_by_model_output
from syncpoint.matching.op_kinds import COMMUTATIVE, TRANSPARENT
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import OpKey, Role

_READING_PAIRED = "same kind, reading paired tensors"

Key = tuple[object, ...]


class StructureMatcher:
    """Pairs ops by what they read and what reads them."""

    name = "structure"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Adds what follows from the pairs of the matchers before."""
        work = Workspace.of(matching)
        if all(graph.has_edges for graph in work.graphs):
            walk(work)
            if pair_by_model_output(work):
                walk(work)
        return ()


def _whole(graph: Graph, slot: Slot) -> Slot:
    """A product with its bias, where another op adds it."""
    at = graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
    return next(iter(graph.results(at)), slot) if at in graph.completed else slot


def walk(work: Workspace) -> None:
    """Strictly first; then looking through ops that one side lacks; then whatever the order of
    operands, which is how swapped ones are found and not lost."""
    for loose, ordered in ((False, True), (True, True), (True, False)):
        if work.is_done():
            return
        Walk(work, loose, ordered).run()


@dataclass
class _Bucket:
    """Ops of both sides that read the same tensors and do the same."""

    members: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


class Walk:
    """One walk along the edges from all pairs there are."""

    def __init__(self, work: Workspace, loose: bool, ordered: bool = True) -> None:
        self.work = work
        self.loose = loose
        self.ordered = ordered
        self.graphs = work.graphs
        self._labels: tuple[dict[Slot, Slot], dict[Slot, Slot]] = ({}, {})
        """Root of either side -> the target's root that stands for both."""
        self._readers = tuple(self._by_root(graph) for graph in self.graphs)
        self._buckets: dict[Key, _Bucket] = {}
        self._filed: tuple[dict[int, Key], dict[int, Key]] = ({}, {})
        self._dirty: dict[Key, None] = {}
        self._waiting: list[tuple[Slot, Slot]] = []
        self._partners = {
            p.target.op: p.reference.op
            for p in work.matching.pairs
            if p.target.role is Role.PARAMETER and p.reference.role is Role.PARAMETER
        }
        self.visited = 0
        """How many ops were filed; grows with the number of edges."""

    def run(self) -> None:
        """Until nothing more follows from what is paired."""
        for target, reference in list(self.work.to_reference.items()):
            self._unite(target, reference)
        while True:
            self._spread()
            if not self._settle():
                return

    def root(self, side: int, slot: Slot) -> Slot:
        """What lies behind views, and in a loose walk behind ops that may have been absorbed."""
        graph = self.graphs[side]
        slot = graph.root(slot)
        if not self.loose:
            return slot
        paired = (self.work.to_reference, self.work.to_target)[side]
        for _ in range(4):
            at = graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
            if at < 0 or slot in paired or not graph.is_unary(at):
                break
            slot = graph.root(graph.reads[at][0])
        return slot

    def _by_root(self, graph: Graph) -> dict[Slot, list[int]]:
        side = self.graphs.index(graph)
        readers: dict[Slot, list[int]] = {}
        for at, reads in enumerate(graph.reads):
            for root in {self.root(side, slot) for slot in reads}:
                readers.setdefault(root, []).append(at)
        return readers

    def _unite(self, target: Slot, reference: Slot) -> None:
        roots = self.root(TARGET, target), self.root(REFERENCE, reference)
        known = [self._labels[side].get(root) for side, root in enumerate(roots)]
        if known[0] is not None or known[1] is not None:
            # The first pair of a root stands: a second that contradicts it is that pair's matter.
            return
        for side, root in enumerate(roots):
            self._labels[side][root] = roots[0]
        self._waiting.append(roots)

    def _spread(self) -> None:
        while self._waiting:
            for side, root in enumerate(self._waiting.pop()):
                for at in self._readers[side].get(root, ()):
                    self._file(side, at)

    def _file(self, side: int, at: int) -> None:
        """Put an op under what it reads, once all of that is paired."""
        graph = self.graphs[side]
        if at in self._filed[side] or not graph.live[at] or at in graph.completing:
            return
        labels = [self._labels[side].get(self.root(side, slot)) for slot in graph.reads[at]]
        if None in labels:
            return
        self.visited += 1
        kind = graph.classes[at]
        first = next(iter(graph.results(at)), None)
        said = graph.count(first) if first is not None else -1
        shape = graph.shape(first) if first is not None and kind in TRANSPARENT else None
        free = kind in COMMUTATIVE or not self.ordered
        read = tuple(sorted(labels, key=str)) if free else tuple(labels)
        key: Key = (kind, read, said, shape)
        self._filed[side][at] = key
        self._buckets.setdefault(key, _Bucket()).members[side].append(at)
        self._dirty[key] = None

    def _settle(self) -> bool:
        """Pair what is filed; tells whether anything was."""
        done = False
        for key in list(self._dirty):
            del self._dirty[key]
            bucket = self._buckets[key]
            mine, theirs = (
                [at for at in bucket.members[side] if self._open(side, at)]
                for side in (TARGET, REFERENCE)
            )
            if mine and theirs:
                done |= self._choose(mine, theirs)
        if not done:
            done = self._backwards()
        return done

    def _open(self, side: int, at: int) -> bool:
        outputs = self.graphs[side].results(at)
        return any(self.work.free(side, slot) for slot in outputs)

    def _choose(self, mine: list[int], theirs: list[int]) -> bool:
        if len(mine) == 1 and len(theirs) == 1:
            if not self.ordered and len(self.graphs[TARGET].reads[mine[0]]) > 1:
                return self._pair(mine[0], theirs[0], f"{_READING_PAIRED} in another order", 0.6)
            return self._pair(mine[0], theirs[0], _READING_PAIRED, 0.85)
        done = False
        for t, r, why in self._told_apart(mine, theirs):
            done |= self._pair(t, r, f"{_READING_PAIRED}; {why}", 0.85)
        left = [t for t in mine if self._open(TARGET, t)]
        others = [r for r in theirs if self._open(REFERENCE, r)]
        if done and len(left) == 1 and len(others) == 1:
            done |= self._pair(left[0], others[0], f"{_READING_PAIRED}; the only one left", 0.75)
        return done

    def _told_apart(self, mine: list[int], theirs: list[int]) -> Iterable[tuple[int, int, str]]:
        """Pairs among ops that read the same: by their parameters, else by their values."""
        named = self._by_parameters(mine, theirs)
        if named:
            yield from ((t, r, "the same parameters") for t, r in named)
            return
        if len(mine) * len(theirs) > 4096:
            return
        slots = [self.graphs[TARGET].results(t)[0] for t in mine]
        others = [self.graphs[REFERENCE].results(r)[0] for r in theirs]
        table = [[self.work.layouts.best(s, o)[0] for o in others] for s in slots]
        for i, j in chosen(table, self.work.prints.tolerance):
            yield mine[i], theirs[j], "equal values"
        views = self.graphs[TARGET].classes[mine[0]] in TRANSPARENT
        if views and len(mine) == len(theirs):
            yield from ((t, r, "in order") for t, r in zip(mine, theirs, strict=True))

    def _pair(self, t: int, r: int, evidence: str, confidence: float) -> bool:
        if self.work.denied(self.graphs[TARGET].ops[t].key, self.graphs[REFERENCE].ops[r].key):
            return False
        mine, theirs = self.graphs[TARGET].results(t), self.graphs[REFERENCE].results(r)
        kind = EvidenceKind.STRUCTURE
        done = False
        if t in self.graphs[TARGET].completed and r in self.graphs[REFERENCE].completed:
            # Both keep the product apart from the bias: then it is a pair of its own.
            inner = [graph.outputs(at)[:1] for graph, at in zip(self.graphs, (t, r), strict=True)]
            for slot, other in zip(*inner, strict=False):
                self.work.pair(slot, other, evidence, confidence, kind=kind)
        for slot in mine:
            other = next((s for s in theirs if s.index == slot.index), None)
            if other is not None and self.work.pair(slot, other, evidence, confidence, kind=kind):
                done = True
                self._unite(slot, other)
        return done

    def _backwards(self) -> bool:
        """What paired ops of one class read at the same place, where nothing else is known."""
        done = False
        mine, theirs = self.graphs
        for target, reference in list(self.work.to_reference.items()):
            t, r = mine.position.get(target.op, -1), theirs.position.get(reference.op, -1)
            if t < 0 or r < 0 or mine.classes[t] != theirs.classes[r]:
                continue
            if len(mine.reads[t]) != len(theirs.reads[r]):
                continue
            ends = [
                (self.root(TARGET, a), self.root(REFERENCE, b))
                for a, b in zip(mine.reads[t], theirs.reads[r], strict=True)
            ]
            loose = [e for e in ends if self._unknown(*e)]
            if mine.classes[t] in COMMUTATIVE and len(loose) != 1:
                continue
            for a, b in ((_whole(mine, a), _whole(theirs, b)) for a, b in loose):
                if not (self.work.free(TARGET, a) and self.work.free(REFERENCE, b)):
                    continue
                if mine.kind_of(a) != theirs.kind_of(b) or mine.count(a) != theirs.count(b):
                    continue
                if self.work.pair(a, b, "same kind, read by paired ops", 0.8):
                    self._unite(a, b)
                    done = True
        return done

    def _by_parameters(self, mine: list[int], theirs: list[int]) -> list[tuple[int, int]]:
        """Ops told apart by the parameters they read, where those are paired."""
        if not self._partners:
            return []
        by_parameters: dict[tuple[OpKey, ...], list[int]] = {}
        for r in theirs:
            said = tuple(e.op for e in self.graphs[REFERENCE].parameters(r))
            by_parameters.setdefault(said, []).append(r)
        found = []
        for t in mine:
            edges = [e.op for e in self.graphs[TARGET].parameters(t)]
            known = tuple(self._partners[e] for e in edges if e in self._partners)
            hits = by_parameters.get(known, []) if len(known) == len(edges) else []
            if edges and len(hits) == 1:
                found.append((t, hits[0]))
        return found if len({r for _, r in found}) == len(found) else []

    def _unknown(self, target: Slot, reference: Slot) -> bool:
        return target not in self._labels[TARGET] and reference not in self._labels[REFERENCE]
