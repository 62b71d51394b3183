"""Matcher: pairs separate matrix products with the slices of one merged product: query, key and
value, or gate and up.

The merged product reads the partner of what the separate products read, and the op that reads a
slice is paired with the op that reads the separate product. So a slice is paired although its
values are off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.matchers.graph_edges import walk_edges
from syncpoint.matching.op_kinds import COMMUTATIVE, TRANSPARENT
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Role

_SLICING = frozenset({"split", "slice", "embedding"})
"""Classes of ops that cut a tensor; ONNX also cuts with Gather."""
_MAX_STEPS = 8
"""Maximum number of ops between a product and the op that reads its result or a slice of it."""


class _Roots:
    """Of one side: the views of each root, and the products that read a view of it."""

    def __init__(self, graph: SlotGraph) -> None:
        self.views: dict[Slot, list[Slot]] = {}
        for slot, root in graph.roots.items():
            self.views.setdefault(root, []).append(slot)
        self.products: dict[Slot, list[int]] = {}
        for position, kind in enumerate(graph.classes):
            if kind == "matmul" and len(graph.reads[position]) == 1:
                root = graph.root(graph.reads[position][0])
                self.products.setdefault(root, []).append(position)


class MergedProductMatcher:
    """Pairs separate products with slices of a merged product."""

    name = "merged"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair the slices, then what follows along the edges."""
        work = Workspace.of(matching)
        if work.is_done() or not all(graph.has_edges for graph in work.graphs):
            return ()
        is_paired = False
        roots = [_Roots(graph) for graph in work.graphs]
        for side in (TARGET, REFERENCE):
            graph = work.graphs[side]
            for position, kind in enumerate(graph.classes):
                if kind == "matmul" and graph.live[position] and len(graph.reads[position]) == 1:
                    is_paired |= _pair_product(work, roots, side, position)
        if is_paired:
            walk_edges(work)
        return ()


def _pair_product(work: Workspace, roots: list[_Roots], side: int, position: int) -> bool:
    """Pair the result of a product, or the first view of it that a paired op reads, with a slice of
    a merged product; return whether it was paired."""
    graph = work.graphs[side]
    for slot in _views_of(graph, next(iter(graph.results(position)), None)):
        wrong = _partner_of_other_size(work, side, slot)
        if not work.is_free(side, slot) and wrong is None:
            return False
        operands = dict.fromkeys(_operands_of_partners(work, side, slot))
        fitting = [
            other for other in operands if _is_slice_of_merged(work, roots, side, position, other)
        ]
        if len(fitting) == 1 and work.graphs[1 - side].count(fitting[0]) == graph.count(slot):
            if wrong is not None:
                work.unpair(wrong)
                work.apply_changes()
            work.admit(1 - side, fitting[0])
            slots = (slot, fitting[0]) if side == TARGET else (fitting[0], slot)
            view = work.view_selector.reshape_view(*slots)
            if view:
                work.view_selector.define_view(*slots, view)
            evidence = "a slice of a merged product, read by paired ops"
            return work.pair(*slots, evidence, 0.85, view=view)
    return False


def _partner_of_other_size(work: Workspace, side: int, slot: Slot) -> Slot | None:
    """The target slot of a pair of two views of different size, such as the view of one product and
    that of a merged one; None if the slot is not in such a pair."""
    other = (work.to_reference, work.to_target)[side].get(slot)
    if other is None or work.graphs[side].count(slot) == work.graphs[1 - side].count(other):
        return None
    target = slot if side == TARGET else other
    classes = {work.graphs[side].class_of(slot), work.graphs[1 - side].class_of(other)}
    is_pinned = work.evidence_kind(target) is EvidenceKind.MAP
    return target if classes <= TRANSPARENT and not is_pinned else None


def _views_of(graph: SlotGraph, slot: Slot | None) -> Iterator[Slot]:
    """A slot, and the views of it as long as one op alone reads it."""
    for _ in range(_MAX_STEPS):
        if slot is None:
            return
        yield slot
        reader = graph.only_reader(slot)
        is_view = reader is not None and graph.classes[reader] in TRANSPARENT
        slot = next(iter(graph.outputs(reader)), None) if reader is not None and is_view else None


def _operands_of_partners(work: Workspace, side: int, slot: Slot) -> Iterator[Slot]:
    """What the partners of the ops that read a slot read in its place."""
    graph, other_graph = work.graphs[side], work.graphs[1 - side]
    paired = (work.to_reference, work.to_target)[side]
    for reader in graph.consumers.get(slot, ()):
        for output in graph.outputs(reader):
            if output not in paired:
                continue
            partner = other_graph.position.get(paired[output].op, -1)
            reads, others = graph.reads[reader], other_graph.reads[partner]
            if graph.classes[reader] != other_graph.classes[partner] or len(reads) != len(others):
                continue
            if graph.classes[reader] in COMMUTATIVE and len(reads) > 1:
                known = {
                    other_graph.root(paired[read])
                    for read in reads
                    if read != slot and read in paired
                }
                rest = [other for other in others if other_graph.root(other) not in known]
                if len(rest) == 1:
                    yield rest[0]
            else:
                yield others[reads.index(slot)]


def _is_slice_of_merged(
    work: Workspace, roots: list[_Roots], side: int, position: int, other: Slot
) -> bool:
    """Whether a slot of the other side is cut from a larger product that reads the partner of what
    the product reads."""
    graph, other_graph = work.graphs[side], work.graphs[1 - side]
    paired = (work.to_reference, work.to_target)[1 - side]
    if not work.is_free(1 - side, other) and other in paired:
        return False
    is_cut = False
    slot = other
    for _ in range(_MAX_STEPS):
        producer = other_graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        if producer < 0 or len(other_graph.reads[producer]) != 1:
            return False
        kind = other_graph.kind_of(slot)
        if kind == "matmul":
            first = other_graph.completing.get(producer, producer)
            root = other_graph.root(other_graph.reads[first][0])
            sources = {graph.root(read) for read in graph.reads[position]}
            partners = _partners_of_root(work, roots, 1 - side, root)
            return is_cut and bool(sources & partners)
        if kind not in TRANSPARENT | _SLICING:
            return False
        is_cut |= kind in _SLICING
        slot = other_graph.reads[producer][0]
    return False


def _partners_of_root(work: Workspace, roots: list[_Roots], side: int, root: Slot) -> set[Slot]:
    """The roots of the partners of a root and of its views."""
    other_graph = work.graphs[1 - side]
    paired = (work.to_reference, work.to_target)[side]
    slots = [root, *roots[side].views.get(root, ())]
    return {other_graph.root(paired[slot]) for slot in slots if slot in paired}


class LastSliceMatcher:
    """Pairs the only slice of a merged product that is left with the only separate product that is
    left, after values have paired the others: the one whose values are off."""

    name = "last-slice"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair the last slices, then what follows along the edges, until nothing changes."""
        work = Workspace.of(matching)
        if work.is_done() or not all(graph.has_edges for graph in work.graphs):
            return ()
        roots = [_Roots(graph) for graph in work.graphs]
        while any(_pair_last_slices(work, roots, side) for side in (TARGET, REFERENCE)):
            walk_edges(work)
        return ()


def _pair_last_slices(work: Workspace, roots: list[_Roots], side: int) -> bool:
    """Pair the last slice of each merged product of the other side; return whether any was
    paired."""
    other_graph = work.graphs[1 - side]
    is_paired = False
    for position, kind in enumerate(other_graph.classes):
        if kind != "matmul" or len(other_graph.reads[position]) != 1:
            continue
        branches = _branches(other_graph, position)
        if len(branches) > 1:
            root = other_graph.root(other_graph.reads[position][0])
            products = _products_reading_partner(work, roots, side, root)
            is_paired |= _pair_last_slice(work, side, products, branches)
    return is_paired


def _branches(graph: SlotGraph, position: int) -> list[list[Slot]]:
    """For each slice of a product, the slice and the views of it."""
    slot = next(iter(graph.results(position)), None)
    for view in _views_of(graph, slot):
        readers = graph.consumers.get(view, [])
        cuts = [reader for reader in readers if graph.classes[reader] in _SLICING]
        if cuts and len(cuts) == len(readers):
            outputs = [output for reader in cuts for output in graph.outputs(reader)]
            return [list(_views_of(graph, output)) for output in outputs]
    return []


def _pair_last_slice(
    work: Workspace, side: int, products: dict[int, list[Slot]], branches: list[list[Slot]]
) -> bool:
    """Pair the only slice and the only product that are left, at the views at which the others are
    paired; return whether they were paired."""
    graph, other_graph = work.graphs[side], work.graphs[1 - side]
    paired = (work.to_reference, work.to_target)[1 - side]
    levels: dict[tuple[int, int], None] = {}
    open_branches = []
    for branch in branches:
        partners = [
            (index, product, level)
            for index, slot in enumerate(branch)
            for product, views in products.items()
            for level, view in enumerate(views)
            if paired.get(slot) == view
        ]
        for index, product, level in partners[:1]:
            levels[index, level] = None
            del products[product]
        if not partners:
            open_branches.append(branch)
    if len(open_branches) != 1 or len(products) != 1 or not levels:
        return False
    branch, views = open_branches[0], next(iter(products.values()))
    for index, level in levels:
        if index >= len(branch) or level >= len(views):
            continue
        slot, other = views[level], branch[index]
        if graph.count(slot) != other_graph.count(other) or not work.is_free(side, slot):
            continue
        slots = (slot, other) if side == TARGET else (other, slot)
        if not work.admit(1 - side, other):
            continue
        view = work.view_selector.reshape_view(*slots)
        if view:
            work.view_selector.define_view(*slots, view)
        return work.pair(*slots, "the last slice of a merged product", 0.8, view=view)
    return False


def _products_reading_partner(
    work: Workspace, roots: list[_Roots], side: int, root: Slot
) -> dict[int, list[Slot]]:
    """The products that read the partner of a root of the other side, each with its result and the
    views of it."""
    graph = work.graphs[side]
    partners = _partners_of_root(work, roots, 1 - side, root)
    positions = sorted(p for partner in partners for p in roots[side].products.get(partner, ()))
    return {p: list(_views_of(graph, next(iter(graph.results(p)), None))) for p in positions}
