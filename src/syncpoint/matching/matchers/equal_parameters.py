"""Matcher: pairs unpaired ops that read equal parameters, and continues along the edges.

A convolution is known by its weight, also where that is named otherwise, reshaped or transposed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from syncpoint.errors import SyncpointError
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.matchers.graph_edges import EdgeWalk, walk_edges
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.sequence_alignment import longest_rising_chain
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, Role, Tensor

_MIN_ELEMENTS = 16
"""Number of elements below which parameters of different ops may be equal by chance."""
_MAX_ELEMENTS = 1 << 22
"""Number of elements above which sorting a parameter takes too long."""


class ParameterMatcher:
    """Pairs ops by their parameters, if neither edges nor values tell: after an error no value is
    equal any more."""

    name = "parameters"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Add the pairs, and those that follow from them."""
        work = Workspace.of(matching)
        if not all(graph.has_edges for graph in work.graphs) or work.is_done():
            return ()
        walk = EdgeWalk(work, loose=False)
        evidence = "same kind, reading equal parameters"
        pairs = find_ops_of_equal_parameters(work)
        if sum(walk.pair_unpaired_ops(*pair, evidence) for pair in pairs):
            walk_edges(work)
        return ()


def find_ops_of_equal_parameters(work: Workspace) -> list[tuple[int, int]]:
    """Positions of ops of one class that read an equal parameter which no other op of their side
    reads, in order. One is enough: the others may hold the fault.

    Pairs that cross others are left out: of two exchanged weights both would be paired with the
    wrong op, and the exchange would not show.
    """
    readers = [_ParameterKeys(work, side).readers() for side in (TARGET, REFERENCE)]
    partners: dict[int, set[int]] = {}
    for key, targets in readers[TARGET].items():
        references = readers[REFERENCE].get(key, [])
        if len(targets) == len(references) == 1:
            partners.setdefault(targets[0], set()).add(references[0])
    pairs = [(target, min(ops)) for target, ops in partners.items() if len(ops) == 1]
    return longest_rising_chain(sorted(pairs))


class _ParameterKeys:
    """The parameters of one side by what they hold, in any order of elements."""

    def __init__(self, work: Workspace, side: int) -> None:
        graph: SlotGraph = work.graphs[side]
        self._work, self._side, self._graph = work, side, graph
        self._parameters: dict[Slot, Tensor] = {
            Slot(tensor.key.op, tensor.key.index, Role.PARAMETER): tensor
            for tensor in graph.side.others
            if tensor.key.role is Role.PARAMETER
        }
        self._digests: dict[Edge, str] = {}

    def readers(self) -> dict[tuple[str, str], list[int]]:
        """The positions of the unpaired ops that compute with a parameter, by their class and its
        digest."""
        readers: dict[tuple[str, str], list[int]] = {}
        for position, kind in enumerate(self._graph.classes):
            is_open = any(self._work.is_free(self._side, s) for s in self._graph.results(position))
            if not is_open or not self._graph.live[position]:
                continue
            for digest in {self._digest(edge) for edge in self._graph.parameters(position)} - {""}:
                readers.setdefault((kind, digest), []).append(position)
        return readers

    def _digest(self, edge: Edge) -> str:
        """A digest of the sorted numbers of a parameter or constant; "" if they are no evidence."""
        if edge not in self._digests:
            self._digests[edge] = self._compute_digest(edge)
        return self._digests[edge]

    def _compute_digest(self, edge: Edge) -> str:
        slot = Slot(edge.op, edge.index, edge.role)
        tensor = self._parameters.get(slot) or next(iter(self._graph.slots.get(slot, ())), None)
        if tensor is None or not _MIN_ELEMENTS <= tensor.count <= _MAX_ELEMENTS:
            return ""
        if tensor.kept is not Kept.VALUES or DTYPES[tensor.dtype].kind is not Kind.FLOAT:
            return ""
        try:
            values = np.sort(self._graph.side.run.values(tensor).astype(np.float32), axis=None)
        except SyncpointError:
            return ""
        if np.count_nonzero(np.diff(values)) + 1 < _MIN_ELEMENTS:
            return ""
        return hashlib.sha256(values.tobytes()).hexdigest()
