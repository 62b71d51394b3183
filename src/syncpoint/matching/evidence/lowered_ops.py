"""Which of the ops that one reference op became gives what that op gives.

The tensor that completes it is paired; those inside are listed as such.
"""

from __future__ import annotations

import re
from collections.abc import Container

from syncpoint.matching.corrections.moved_biases import with_bias
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Role

_FAR = 4096
"""Ops that lie further apart are not looked at: the work must not grow with the square."""
_PASS = TRANSPARENT | {"quantize", "dequantize"}
_NUMBER = re.compile(r"(?P<stem>.+?)(?:_(?P<number>\d+))?")


class Unit:
    """Ops of one side that stand for one op of the program they were made from."""

    def __init__(self, name: str, kind: str, positions: list[int], names: set[str]) -> None:
        self.name = name
        self.kind = kind
        self.positions = positions
        self.names = names


def complete(
    work: Workspace,
    target: Unit,
    reference: Unit,
    evidence: str,
    confidence: float,
    kind: EvidenceKind = EvidenceKind.ORIGIN,
) -> None:
    """Pair the tensor that completes a reference op; the ones before it are inside it."""
    wanted = work.graphs[REFERENCE].outputs(reference.positions[-1])
    if not wanted:
        return
    if len(wanted) > 1 and len(target.positions) > 1:
        _several(work, target, reference, wanted, evidence, confidence, kind)
        return
    piece = _piece(work, target, wanted[0])
    if piece is None:
        return
    target.positions = piece
    chosen = _choose_ending(work, target, reference, wanted)
    if chosen is None:
        return
    unfinished = _unfinished(work.graphs[TARGET], chosen.at, target, reference)
    for slot in unfinished:
        work.explain(TARGET, slot, f"inside {reference.name}, before its bias", final=True)
    if not unfinished and _pair_ending(work, chosen, evidence, confidence, kind):
        inner = [position for position in target.positions if position != chosen.at]
        _explain_inner(work, reference, inner)


def _choose_ending(
    work: Workspace, target: Unit, reference: Unit, wanted: list[Slot]
) -> _Ending | None:
    """The op of a unit that completes the reference op; None where no op can."""
    mine, theirs = work.graphs
    ends = [_Ending(work, target, position, wanted) for position in target.positions]
    whole = [e for e in ends if e.fits and e.leaves]
    if not whole and len(ends) == 1 and op_class(mine.ops[ends[0].at].type) == reference.kind:
        # Copies of constants that differ in size are of different constants, such as a mask and
        # the value put there: what follows shows a wrong one.
        is_live = theirs.live[reference.positions[-1]]
        whole = [e for e in ends if e.computes or mine.live[e.at] or is_live]
    # A cast of what another end gives is not what the op made; of what nobody else reads, it is.
    ends_at = {end.at for end in whole}
    return max(
        whole,
        key=lambda end: (end.same_shape, end.computes or end.root not in ends_at, end.at),
        default=None,
    )


def _pair_ending(
    work: Workspace, ending: _Ending, evidence: str, confidence: float, kind: EvidenceKind
) -> bool:
    """Pair what the last op of a unit gives, with its bias where another op adds that; tells
    whether anything was paired."""
    pairs = [(with_bias(work, s, w), s, w) for s, w in _finished(work, ending.pairs)]
    evidence_with_bias = f"{evidence}, with its bias"
    paired = [
        work.pair(slot, w, evidence if slot == s else evidence_with_bias, confidence, kind=kind)
        for slot, s, w in pairs
        if slot is not None
    ]
    return any(paired)


def _explain_inner(
    work: Workspace, reference: Unit, positions: list[int], outputs: Container[Slot] = ()
) -> None:
    """Say of what ops give, but for the outputs of the unit, that it lies inside its op."""
    graph = work.graphs[TARGET]
    for slot in (slot for position in positions for slot in graph.outputs(position)):
        if slot not in outputs:
            work.explain_inside(TARGET, slot, reference.name, final=True)


def _finished(work: Workspace, pairs: list[tuple[Slot, Slot]]) -> list[tuple[Slot, Slot]]:
    """The pair of what completes an op; where that is not equal and the only op that reads it,
    which bears another name, makes it equal, that op's result is meant: the divisor of a mean of
    pixels, or the product at the end of a hardswish, may have got the name of another op."""
    if len(pairs) != 1:
        return pairs
    graph, (slot, wanted) = work.graphs[TARGET], pairs[0]
    reader = graph.only_reader(slot)
    if reader is None or graph.classes[reader] not in ("mul", "div"):
        return pairs
    made = graph.outputs(reader)
    if len(made) != 1 or work.prints.equal(slot, wanted) or not work.prints.equal(made[0], wanted):
        return pairs
    return [(made[0], wanted)] if work.admit(TARGET, made[0]) else pairs


def _piece(work: Workspace, target: Unit, wanted: Slot) -> list[int] | None:
    """The ops of a unit that hang together and give what is wanted. Compilers that merge equal
    constants exchange the names of steps of equal ops; a unit then lies in two places, one made
    from the other by way of ops outside. Values tell which it is; None where they do not."""
    graph = work.graphs[TARGET]
    pieces = _pieces(graph, target.positions)
    if len(pieces) < 2:
        return target.positions
    fits = []
    for piece in pieces:
        made = [s for at in piece for s in graph.outputs(at)]
        same = [s for s in made if graph.count(s) == work.graphs[REFERENCE].count(wanted)]
        if any(work.layouts.best(s, wanted)[0] <= work.prints.tolerance for s in same):
            fits.append(piece)
    return fits[0] if len(fits) == 1 else None


def _pieces(graph: Graph, positions: list[int]) -> list[list[int]]:
    """A unit, in two where its later ops depend on the earlier ones by way of others alone."""
    span = positions[-1] - positions[0]
    if len(positions) < 3 or span < len(positions) or span > _FAR:
        return [positions]
    unit = set(positions)
    early: set[int] = set()
    through: set[int] = set()
    """Casts and the like between ops of the unit, which compute nothing."""
    outside: set[int] = set()
    for at in range(positions[0], positions[-1] + 1):
        above = {graph.position.get(s.op, -1) for s in graph.reads[at] if s.role is Role.OUTPUT}
        if at in unit and not above & outside:
            early.add(at)
        elif at not in unit and above and above <= early | through and graph.classes[at] in _PASS:
            through.add(at)
        elif above & (early | through | outside):
            outside.add(at)
    late = [at for at in positions if at not in early]
    # What reads an early result and one from outside is an op with a skip, not another op.
    reads = {graph.position.get(s.op, -1) for at in late for s in graph.reads[at]}
    return [positions] if not late or reads & (early | through) else [sorted(early), late]


def _several(
    work: Workspace,
    target: Unit,
    reference: Unit,
    wanted: list[Slot],
    evidence: str,
    confidence: float,
    kind: EvidenceKind,
) -> None:
    """An op of several outputs that became several ops, as unbind becomes slices: those whose
    values leave the unit are its outputs, where there are as many of them. Their numbers tell
    which is which (`getitem`, `getitem_1`); order does not, since runtimes reorder branches."""
    mine, theirs = work.graphs
    outputs = _in_order_of_number(_leaving(mine, target))
    if len(outputs) != len(wanted):
        return
    pairs = list(zip(outputs, wanted, strict=True))
    if any(mine.count(s) != theirs.count(w) for s, w in pairs):
        return
    evidence, confidence = f"{evidence} and number", confidence - 0.05
    paired = [work.pair(s, w, evidence, confidence, kind=kind) for s, w in pairs]
    if any(paired):
        _explain_inner(work, reference, target.positions, outputs)


def _leaving(graph: Graph, unit: Unit) -> list[Slot]:
    """What a unit gives that is read outside of it, or by nobody."""
    group = set(unit.positions)
    slots = (slot for position in unit.positions for slot in graph.outputs(position))
    return [slot for slot in slots if _leaves(graph, slot, group)]


def _leaves(graph: Graph, slot: Slot, group: set[int]) -> bool:
    """Whether a value is read outside of a group of ops, or by nobody."""
    readers = graph.consumers.get(slot)
    return not readers or any(reader not in group for reader in readers)


def _in_order_of_number(slots: list[Slot]) -> list[Slot]:
    """Slots of ops that differ in the number of their name alone, by number; none where their
    names differ in more."""
    numbered = [match for slot in slots if (match := _NUMBER.fullmatch(slot.op.op))]
    if len(numbered) != len(slots) or len({match["stem"] for match in numbered}) != 1:
        return []
    numbers = [int(match["number"] or 0) for match in numbered]
    by_number = sorted(zip(numbers, slots, strict=True), key=lambda pair: pair[0])
    return [slot for _, slot in by_number]


def _unfinished(graph: Graph, at: int, target: Unit, reference: Unit) -> list[Slot]:
    """A product without its bias and the copies of it, if an op that reads them was made from the
    same op and does the rest, as one that took the bias in. A bias that nobody adds is another
    matter."""
    # A product of two results has no bias.
    if graph.classes[at] not in ("matmul", "conv") or len(graph.reads[at]) != 1:
        return []
    found = list(graph.outputs(at))
    goes_on = False
    for slot in found:
        for reader in graph.consumers.get(slot, ()):
            if graph.classes[reader] in TRANSPARENT:
                found += graph.outputs(reader)
            elif reader not in target.positions and reference.name in graph.ops[reader].origins:
                goes_on = True
    return found if goes_on else []


class _Ending:
    """An op of a unit as the one that completes the reference op."""

    def __init__(self, work: Workspace, target: Unit, at: int, wanted: list[Slot]) -> None:
        mine, theirs = work.graphs
        slots = mine.outputs(at)
        self.at = at
        if len(wanted) > 1 or len(slots) > 1:
            self.pairs = [(s, w) for s in slots for w in wanted if s.index == w.index]
        else:
            self.pairs = list(zip(slots, wanted, strict=False))
        group = set(target.positions)
        self.leaves = any(_leaves(mine, slot, group) for slot in slots)
        """Whether its value is read outside the unit, or by nobody."""
        self.fits = bool(self.pairs) and all(
            mine.count(s) == theirs.count(w) for s, w in self.pairs
        )
        self.same_shape = all(mine.shape(s) == theirs.shape(w) for s, w in self.pairs)
        self.computes = mine.classes[at] not in TRANSPARENT
        self.root = mine.position.get(mine.root(slots[0]).op, -1) if slots else -1
        """The op behind views and casts."""
