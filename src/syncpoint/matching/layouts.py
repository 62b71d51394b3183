"""Which view lays a target tensor over its reference, and what proves it.

A view comes from a layout that the target declares, from the definition of the op (a product of
matrices is 2-D where a linear layer keeps its axes), or from values that agree through it. An
order of axes is proven when several sync points need the same one; needed at one op only it is
a finding about that op, and the op is compared as it stands.
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
"""Orders of axes that are tried; all of them would be too many, and find accidents."""
PROOF = 3
"""Sync points that must need the same order of axes before it counts as the target's layout."""
_BLOCKED = re.compile(r"NCHW(\d+)c")


class Layouts:
    """Views between the slots of two runs."""

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._prints = fingerprints
        self._votes: dict[int, Counter[str]] = {}
        self._voters: set[tuple[Slot, Slot]] = set()

    def declared(self, target: Slot, reference: Slot) -> View:
        """The view that the layouts which the runs name themselves ask for."""
        graphs = self._prints.graphs
        mine = next(iter(graphs[0].slots.get(target, ())), None)
        theirs = next(iter(graphs[1].slots.get(reference, ())), None)
        return declared_view(mine, theirs) if mine is not None and theirs is not None else View()

    def best(self, target: Slot, reference: Slot) -> tuple[float, View]:
        """The smallest distance under any view that fits, and that view. The order of elements
        in memory is tried first: a reshape alone never moves a value."""
        declared = self.declared(target, reference)
        plain = self._prints.distance(target, reference, declared)
        if plain <= self._prints.tolerance:
            return plain, declared or self.reshape(target, reference)
        if plain == inf and not self._same_count(target, reference):
            return inf, View()
        found = (plain, declared or self.reshape(target, reference))
        for view in self.orders(target, reference):
            distance = self._prints.distance(target, reference, view)
            if distance < found[0]:
                found = (distance, view)
        return found

    def orders(self, target: Slot, reference: Slot) -> list[View]:
        """Orders of axes that would give the target the reference's shape."""
        mine, theirs = self._shapes(target, reference)
        if mine is None or theirs is None or len(mine) != len(theirs):
            return []
        return [
            View(f"transpose({','.join(map(str, order))})")
            for order in _ORDERS.get(len(mine), ())
            if tuple(mine[a] for a in order) == theirs
        ]

    def reshape(self, target: Slot, reference: Slot) -> View:
        """The view between two shapes of one order of elements; axes of length one need none."""
        mine, theirs = self._shapes(target, reference)
        if mine is None or theirs is None or not self._same_count(target, reference):
            return View()
        if [n for n in mine if n != 1] == [n for n in theirs if n != 1]:
            return View()
        return View(f"reshape({','.join(map(str, theirs))})")

    def vote(self, target: Slot, reference: Slot) -> None:
        """Count a pair whose values agree through one order of axes and through no other."""
        if (target, reference) in self._voters:
            return
        if self._prints.equal(target, reference):
            return
        fitting = [v for v in self.orders(target, reference) if self._agree(target, reference, v)]
        if len(fitting) == 1:
            self._voters.add((target, reference))
            mine = self._shapes(target, reference)[0]
            self._votes.setdefault(len(mine or ()), Counter())[fitting[0].text] += 1

    def proven(self, rank: int) -> View:
        """The order of axes that is the target's own for tensors of this rank."""
        votes = self._votes.get(rank)
        if not votes:
            return View()
        text, count = votes.most_common(1)[0]
        return View(text) if count >= PROOF else View()

    def view(self, target: Slot, reference: Slot) -> tuple[View, str]:
        """The view of a pair, and what is odd about it."""
        declared = self.declared(target, reference)
        if declared:
            return declared, ""
        mine, theirs = self._shapes(target, reference)
        if mine is None or theirs is None:
            return View(), ""
        fits = self.orders(target, reference)
        proven = self.proven(len(mine))
        reshape = self.reshape(target, reference)
        if proven in fits:
            # Where both fit, as for a square, the values say which of the two it is.
            plain = self._prints.distance(target, reference)
            turned = self._prints.distance(target, reference, proven)
            if mine != theirs or turned < plain or turned == plain == inf:
                return proven, ""
        if not reshape:
            return View(), ""
        if self._prints.equal(target, reference) or self._is_product(target, reference):
            return reshape, ""
        for view in fits:
            if self._agree(target, reference, view):
                return View(), f"equals the reference through {view}, which no other op needs"
        return View(), ""

    def _is_product(self, target: Slot, reference: Slot) -> bool:
        """A matrix product that merges the axes before the last, and one that keeps them."""
        mine, theirs = self._shapes(target, reference)
        classes = {
            g.class_of(s) for g, s in zip(self._prints.graphs, (target, reference), strict=True)
        }
        return (
            bool(mine and theirs)
            and "matmul" in classes
            and mine is not None
            and theirs is not None
            and 2 in (len(mine), len(theirs))
            and mine[-1] == theirs[-1]
        )

    def _agree(self, target: Slot, reference: Slot, view: View) -> bool:
        return self._prints.equal(target, reference, view)

    def _same_count(self, target: Slot, reference: Slot) -> bool:
        counts = self._prints.graphs[0].count(target), self._prints.graphs[1].count(reference)
        return counts[0] == counts[1] >= 0

    def _shapes(
        self, target: Slot, reference: Slot
    ) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        graphs = self._prints.graphs
        return graphs[0].shape(target), graphs[1].shape(reference)


def declared_view(mine: Tensor, theirs: Tensor) -> View:
    """The view that the names of the axes of two tensors ask for."""
    if len(mine.shape) == len(theirs.shape) == 4 and (unblocked := _unblocked_view(mine)):
        return unblocked
    names = axes_of(mine)
    wanted = axes_of(theirs)
    if not wanted and len(theirs.shape) == 4 and mine.layout == "NHWC":
        wanted = list("nchw")
    return _reordering_view((names, mine.shape), (wanted, theirs.shape))


def _unblocked_view(tensor: Tensor) -> View:
    """The view that puts channels that lie in blocks in their plain order. Such a tensor has the
    shape of a plain one; only its numbers lie in blocks."""
    blocked = _BLOCKED.fullmatch(tensor.layout)
    block = int(blocked[1]) if blocked else 0
    if not block or tensor.shape[1] % block:
        return View()
    n, c, h, w = tensor.shape
    return View(
        f"reshape({n},{c // block},{h},{w},{block}) transpose(0,1,4,2,3) reshape({n},{c},{h},{w})"
    )


_Axes = tuple[list[str], tuple[int, ...]]
"""Names of axes, `1` for one that has no name, and their lengths."""


def _reordering_view(mine: _Axes, theirs: _Axes) -> View:
    """The view between two orders of the same named axes; none where they differ in more."""
    names, wanted = ([name for name in axes[0] if name != "1"] for axes in (mine, theirs))
    if not names or not wanted or names == wanted or sorted(names) != sorted(wanted):
        return View()
    steps = []
    if len(names) < len(mine[0]):
        lengths = [n for name, n in zip(*mine, strict=True) if name != "1"]
        steps.append(f"reshape({','.join(map(str, lengths))})")
    steps.append(f"transpose({','.join(str(names.index(name)) for name in wanted)})")
    if len(wanted) < len(theirs[0]):
        steps.append(f"reshape({','.join(map(str, theirs[1]))})")
    return View(" ".join(steps))


def axes_of(tensor: Tensor) -> list[str]:
    """The names of a tensor's axes where it says them: words, or one capital letter each."""
    layout = tensor.layout
    if re.fullmatch("[A-Z]+", layout) and len(layout) == len(tensor.shape):
        return list(layout.lower()) if len(set(layout)) == len(layout) else []
    if len(tensor.shape) < 2 or not layout:
        return []
    try:
        dims = Dims.parse(layout)
        dims.check(tensor.shape)
    except InputError:
        return []  # a device's own word for its layout
    return [axis.name.lower() for axis in dims.axes]


def add_views(matching: Matching, layouts: Layouts) -> None:
    """Give every pair that has none the view it needs and that is proven."""
    plain = [p for p in matching.pairs if not p.view and _computed(p)]
    apart = [p for p in plain if _differ(matching, layouts, p)]
    for pair in apart:
        layouts.vote(*slots_of(pair))
    changed: dict[SyncPoint, SyncPoint] = {}
    for pair in plain if layouts._votes else apart:
        view, note = layouts.view(*slots_of(pair))
        if view or note:
            changed[pair] = replace(pair, view=view, note=note or pair.note)
    matching.exchange({**changed, **_outputs(matching)})


def _outputs(matching: Matching) -> dict[SyncPoint, SyncPoint]:
    """Model outputs whose axes are named on both sides."""
    sides = [
        {t.key: t for t in side.others if t.layout}
        for side in (matching.target, matching.reference)
    ]
    found = {}
    for pair in matching.pairs:
        mine, theirs = sides[0].get(pair.target), sides[1].get(pair.reference)
        if pair.view or mine is None or theirs is None:
            continue
        view = declared_view(mine, theirs)
        if view and pair.target.role is Role.MODEL_OUTPUT:
            found[pair] = replace(pair, view=view)
    return found


def _differ(matching: Matching, layouts: Layouts, pair: SyncPoint) -> bool:
    mine, theirs = layouts._shapes(*slots_of(pair))
    if mine is None or theirs is None:
        return False
    tensor = next(iter(layouts._prints.graphs[0].slots[slots_of(pair)[0]]))
    return bool(tensor.layout) or [n for n in mine if n != 1] != [n for n in theirs if n != 1]


def _computed(pair: SyncPoint) -> bool:
    return pair.target.role is Role.OUTPUT and pair.reference.role is Role.OUTPUT


def slots_of(pair: SyncPoint) -> tuple[Slot, Slot]:
    """The slots of a pair of computed tensors."""
    return (
        Slot(pair.target.op, pair.target.index),
        Slot(pair.reference.op, pair.reference.index),
    )
