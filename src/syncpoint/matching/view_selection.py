"""Choose the view of a pair: from declared layouts and axis names, from shapes, or by equal values;
blocked channels; votes for an order of axes.

A view comes from a layout that the target declares, from the definition of the op (a matrix product
is 2-D where a linear layer keeps its axes), from what the ops read, or from values that are equal
through it. An order of axes is proven when the operands have it, or when several sync points need
the same one. If only one op needs it, it is a finding about that op, and the op is compared without
a view.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from math import inf

from syncpoint.errors import InputError
from syncpoint.matching.fingerprints import Fingerprints
from syncpoint.matching.graph import Slot
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.run.dims import Dims
from syncpoint.run.model import Role, Tensor

_ORDERS: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((1, 0),),
    3: ((0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0)),
    4: ((0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3), (0, 1, 3, 2), (1, 0, 2, 3), (2, 0, 1, 3)),
    5: ((0, 4, 1, 2, 3), (0, 2, 3, 4, 1)),
}
"""Orders of axes to try. Trying all would take long and would find coincidences."""
_MIN_CORRELATION = 0.5
"""Correlation of two tensors from which an order of axes may be a view of them. An error such as a
factor or an offset leaves it at 1."""
MIN_VOTES = 3
"""Sync points that must need one order of axes before it counts as the layout of the target."""
_BLOCKED = re.compile(r"NCHW(\d+)c")


class ViewSelector:
    """Finds the views between the slots of two runs."""

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._fingerprints = fingerprints
        self._votes: dict[int, Counter[str]] = {}
        self._voters: set[tuple[Slot, Slot]] = set()
        self._defined_views: dict[tuple[Slot, Slot], View] = {}

    def define_view(self, target: Slot, reference: Slot, view: View) -> None:
        """Set the view that follows from the definition of two ops."""
        self._defined_views[target, reference] = view

    def has_defined_view(self, target: Slot, reference: Slot) -> bool:
        """Whether a view follows from the definition of two ops."""
        return (target, reference) in self._defined_views

    def find_declared_view(self, target: Slot, reference: Slot) -> View:
        """The view between the layouts that both runs declare or that the ops define; empty if
        there is none."""
        if (target, reference) in self._defined_views:
            return self._defined_views[target, reference]
        graphs = self._fingerprints.graphs
        target_tensor = next(iter(graphs[0].slots.get(target, ())), None)
        reference_tensor = next(iter(graphs[1].slots.get(reference, ())), None)
        if target_tensor is None or reference_tensor is None:
            return View()
        return declared_view(target_tensor, reference_tensor)

    def find_best_view(self, target: Slot, reference: Slot) -> tuple[float, View]:
        """The smallest distance through any view that fits, and that view. The order of elements
        in memory is tried first: a reshape alone never moves a value."""
        declared = self.find_declared_view(target, reference)
        plain = self._fingerprints.distance(target, reference, declared)
        if plain <= self._fingerprints.tolerance:
            return plain, declared or self.reshape_view(target, reference)
        if plain == inf and not self._have_same_count(target, reference):
            return inf, View()
        best = (plain, declared or self.reshape_view(target, reference))
        for view in self.axis_orders(target, reference):
            distance = self._fingerprints.distance(target, reference, view)
            if distance < best[0]:
                best = (distance, view)
        return best

    def axis_orders(self, target: Slot, reference: Slot) -> list[View]:
        """The transpositions that would give the target the shape of the reference."""
        target_shape, reference_shape = self.shapes_of(target, reference)
        if target_shape is None or reference_shape is None:
            return []
        if len(target_shape) != len(reference_shape):
            return []
        return [
            View(f"transpose({','.join(map(str, order))})")
            for order in _ORDERS.get(len(target_shape), ())
            if tuple(target_shape[a] for a in order) == reference_shape
        ]

    def reshape_view(self, target: Slot, reference: Slot) -> View:
        """The reshape to the shape of the reference; empty if only axes of length 1 differ."""
        target_shape, reference_shape = self.shapes_of(target, reference)
        if target_shape is None or reference_shape is None:
            return View()
        if not self._have_same_count(target, reference):
            return View()
        if [n for n in target_shape if n != 1] == [n for n in reference_shape if n != 1]:
            return View()
        return View(f"reshape({','.join(map(str, reference_shape))})")

    def vote(self, target: Slot, reference: Slot) -> None:
        """Count a pair whose values are equal through exactly one order of axes."""
        if (target, reference) in self._voters:
            return
        if self._fingerprints.are_equal(target, reference):
            return
        fitting = [
            v for v in self.axis_orders(target, reference) if self._are_equal(target, reference, v)
        ]
        if len(fitting) == 1:
            self._voters.add((target, reference))
            target_shape = self.shapes_of(target, reference)[0]
            self._votes.setdefault(len(target_shape or ()), Counter())[fitting[0].text] += 1

    def proven_view(self, rank: int) -> View:
        """The order of axes that is the layout of the target for tensors of this rank."""
        votes = self._votes.get(rank)
        if not votes:
            return View()
        text, count = votes.most_common(1)[0]
        return View(text) if count >= MIN_VOTES else View()

    def choose_view(self, target: Slot, reference: Slot) -> tuple[View, str]:
        """The view of a pair, and a note about what is unusual."""
        declared = self.find_declared_view(target, reference)
        if declared:
            return declared, ""
        target_shape, reference_shape = self.shapes_of(target, reference)
        if target_shape is None or reference_shape is None:
            return View(), ""
        fits = self.axis_orders(target, reference)
        proven = self.proven_view(len(target_shape))
        reshape = self.reshape_view(target, reference)
        if proven in fits:
            # Both may fit, for example with equal axis lengths; then the values decide. Of two
            # unrelated tensors each order is as far away as the other.
            plain = self._fingerprints.distance(target, reference)
            transposed = self._fingerprints.distance(target, reference, proven)
            is_nearer = transposed < plain and self._are_related(target, reference, proven)
            if target_shape != reference_shape or is_nearer or transposed == plain == inf:
                return proven, ""
        if not reshape:
            return View(), ""
        if (of_operands := self.find_operand_order(target, reference)) in fits:
            return of_operands, ""
        if self._fingerprints.are_equal(target, reference) or self._is_product(target, reference):
            return reshape, ""
        for view in fits:
            if self._are_equal(target, reference, view):
                return View(), f"equals the reference through {view}, which no other op needs"
        return View(), ""

    def find_operand_order(self, target: Slot, reference: Slot) -> View:
        """The one order of axes through which what the target's op reads equals what the
        reference's op reads; empty if there is none or the operands are equal without it. Operands
        whose values are off do not count."""
        reads = []
        for graph, slot in zip(self._fingerprints.graphs, (target, reference), strict=True):
            position = graph.position.get(slot.op, -1)
            reads.append(graph.reads[position] if position >= 0 else [])
        if len(reads[0]) != len(reads[1]):
            return View()
        orders: set[View] = set()
        for operand, other in zip(*reads, strict=True):
            if self._fingerprints.are_equal(operand, other):
                return View()
            fits = self.axis_orders(operand, other)
            orders.update(view for view in fits if self._are_equal(operand, other, view))
        return orders.pop() if len(orders) == 1 else View()

    def _is_product(self, target: Slot, reference: Slot) -> bool:
        """Whether one is a 2-D matrix product and the other one keeps the leading axes."""
        target_shape, reference_shape = self.shapes_of(target, reference)
        classes = {
            g.class_of(s)
            for g, s in zip(self._fingerprints.graphs, (target, reference), strict=True)
        }
        return (
            bool(target_shape and reference_shape)
            and "matmul" in classes
            and target_shape is not None
            and reference_shape is not None
            and 2 in (len(target_shape), len(reference_shape))
            and target_shape[-1] == reference_shape[-1]
        )

    def _are_related(self, target: Slot, reference: Slot, view: View) -> bool:
        """Whether two tensors are correlated through a view."""
        return abs(self._fingerprints.correlation(target, reference, view)) >= _MIN_CORRELATION

    def _are_equal(self, target: Slot, reference: Slot, view: View) -> bool:
        return self._fingerprints.are_equal(target, reference, view)

    def _have_same_count(self, target: Slot, reference: Slot) -> bool:
        target_graph, reference_graph = self._fingerprints.graphs
        return target_graph.count(target) == reference_graph.count(reference) >= 0

    def shapes_of(
        self, target: Slot, reference: Slot
    ) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """The shapes of two slots; None for a slot that was not recorded."""
        graphs = self._fingerprints.graphs
        return graphs[0].shape(target), graphs[1].shape(reference)


def declared_view(target: Tensor, reference: Tensor) -> View:
    """The view that reorders the axes of the target by the axis names of both tensors."""
    if len(target.shape) == len(reference.shape) == 4 and (unblocked := _unblocked_view(target)):
        return unblocked
    target_names = axis_names_of(target)
    reference_names = axis_names_of(reference)
    if not reference_names and len(reference.shape) == 4 and target.layout == "NHWC":
        reference_names = list("nchw")
    return _reordering_view((target_names, target.shape), (reference_names, reference.shape))


def _unblocked_view(tensor: Tensor) -> View:
    """The view that restores the order of blocked channels. The shape of such a tensor is NCHW,
    only its elements are stored in blocks."""
    blocked = _BLOCKED.fullmatch(tensor.layout)
    block = int(blocked[1]) if blocked else 0
    if not block or tensor.shape[1] % block:
        return View()
    n, c, h, w = tensor.shape
    return View(
        f"reshape({n},{c // block},{h},{w},{block}) transpose(0,1,4,2,3) reshape({n},{c},{h},{w})"
    )


_Axes = tuple[list[str], tuple[int, ...]]
"""Names of axes, `1` for an axis without a name, and their lengths."""


def _reordering_view(target: _Axes, reference: _Axes) -> View:
    """The view between two orders of the same named axes; empty if the names differ."""
    target_names, reference_names = (
        [name for name in axes[0] if name != "1"] for axes in (target, reference)
    )
    if not target_names or target_names == reference_names:
        return View()
    if sorted(target_names) != sorted(reference_names):
        return View()
    steps = []
    if len(target_names) < len(target[0]):
        lengths = [n for name, n in zip(*target, strict=True) if name != "1"]
        steps.append(f"reshape({','.join(map(str, lengths))})")
    steps.append(
        f"transpose({','.join(str(target_names.index(name)) for name in reference_names)})"
    )
    if len(reference_names) < len(reference[0]):
        steps.append(f"reshape({','.join(map(str, reference[1]))})")
    return View(" ".join(steps))


def axis_names_of(tensor: Tensor) -> list[str]:
    """The axis names that a tensor declares as words or as capital letters; empty if none."""
    layout = tensor.layout
    if re.fullmatch("[A-Z]+", layout) and len(layout) == len(tensor.shape):
        return list(layout.lower()) if len(set(layout)) == len(layout) else []
    if len(tensor.shape) < 2 or not layout:
        return []
    try:
        dims = Dims.parse(layout)
        dims.check(tensor.shape)
    except InputError:
        return []  # the name of a device-specific layout
    return [axis.name.lower() for axis in dims.axes]


def add_views(matching: Matching, view_selector: ViewSelector) -> None:
    """Add the proven view to every pair that needs one and has none."""
    without_view = [p for p in matching.pairs if not p.view and _is_computed(p)]
    differing = [p for p in without_view if _have_other_shapes(matching, view_selector, p)]
    for pair in differing:
        view_selector.vote(*slots_of(pair))
    changed: dict[SyncPoint, SyncPoint] = {}
    for pair in without_view if view_selector._votes else differing:
        view, note = view_selector.choose_view(*slots_of(pair))
        if view or note:
            changed[pair] = replace(pair, view=view, note=note or pair.note)
    matching.exchange({**changed, **_declared_output_views(matching)})


def _declared_output_views(matching: Matching) -> dict[SyncPoint, SyncPoint]:
    """The views of model outputs whose axes are named on both sides."""
    tensors = [
        {t.key: t for t in side.others if t.layout}
        for side in (matching.target, matching.reference)
    ]
    changed = {}
    for pair in matching.pairs:
        target, reference = tensors[0].get(pair.target), tensors[1].get(pair.reference)
        if pair.view or target is None or reference is None:
            continue
        view = declared_view(target, reference)
        if view and pair.target.role is Role.MODEL_OUTPUT:
            changed[pair] = replace(pair, view=view)
    return changed


def _have_other_shapes(matching: Matching, view_selector: ViewSelector, pair: SyncPoint) -> bool:
    target_shape, reference_shape = view_selector.shapes_of(*slots_of(pair))
    if target_shape is None or reference_shape is None:
        return False
    tensor = next(iter(view_selector._fingerprints.graphs[0].slots[slots_of(pair)[0]]))
    long_axes = [[n for n in shape if n != 1] for shape in (target_shape, reference_shape)]
    return bool(tensor.layout) or long_axes[0] != long_axes[1]


def _is_computed(pair: SyncPoint) -> bool:
    return pair.target.role is Role.OUTPUT and pair.reference.role is Role.OUTPUT


def slots_of(pair: SyncPoint) -> tuple[Slot, Slot]:
    """The slots of a pair of computed tensors."""
    return (
        Slot(pair.target.op, pair.target.index),
        Slot(pair.reference.op, pair.reference.index),
    )
