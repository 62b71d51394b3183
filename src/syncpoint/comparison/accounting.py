"""What became of the tensors without a partner: missing, or shown by what was compared.

A tensor without a partner is not missing where an error in it would have shown: fusion hides most
tensors of a compiled graph, and what it hides flows into what is compared. A dump that lost its
values looks alike by numbers; the graphs of the two sides tell one from the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from syncpoint.comparison.coverage import REFERENCE, TARGET, Account
from syncpoint.comparison.rows import Row
from syncpoint.matching.kinds import TRANSPARENT, op_class
from syncpoint.matching.protocol import Matching, Unmatched
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import OpKey, Part, Role, TensorKey
from syncpoint.run.reader import Run

_SAME_NAMES_SHARE = 0.9
"""From this share of names that the other side has too, both were dumped by the same code."""


@dataclass(frozen=True)
class Accounts:
    """What became of every tensor without a partner, and of ops whose values were not kept."""

    of: Mapping[tuple[str, TensorKey], Account]
    unkept: Mapping[str, int]
    """By side: results that ops of the run computed and that are not in it."""
    partial: tuple[str, ...]
    """Sides that are known to lack tensors which they computed."""


def account(matching: Matching, unmatched: Sequence[Unmatched], rows: Sequence[Row]) -> Accounts:
    """Decide about each tensor without a partner, given what was compared."""
    compared = [row for row in rows if row.verdict is not Verdict.NONE]
    target, reference = _Graph(matching.target.run), _Graph(matching.reference.run)
    partners = {row.target.key: row.reference.key for row in compared}
    named = _named_by_compared(target, partners, unmatched)
    decided: dict[tuple[str, TensorKey], Account] = {}
    for side, own, other in ((TARGET, target, reference), (REFERENCE, reference, target)):
        if side == REFERENCE:
            partners = {row.reference.key: row.target.key for row in compared}
        left = [u.key for u in unmatched if u.side == side]
        shown = _shown(left, side, own, other, partners)
        for key in left:
            inside = (side, key) in matching.hidden
            if side == REFERENCE and key.role in (Role.OUTPUT, Role.INPUT):
                inside |= (key.op.op, key.part) in named
            flows = Account.DOWNSTREAM if key in shown else Account.MISSING
            decided[side, key] = Account.INSIDE if inside else flows
    unkept = {TARGET: sum(target.unkept.values()), REFERENCE: sum(reference.unkept.values())}
    partial = []
    for side, graph, other in ((TARGET, target, reference), (REFERENCE, reference, target)):
        lacking = [u.key for u in unmatched if u.side != side and u.counted]
        lacking = [key for key in lacking if key.role is Role.OUTPUT]
        alike = not matching.by_plan and _is_subset(graph, other)
        if lacking and (alike or _lost_values(graph, other, lacking)):
            partial.append(side)
    return Accounts(decided, unkept, tuple(partial))


def _lost_values(graph: _Graph, other: _Graph, lacking: Collection[TensorKey]) -> bool:
    """Whether most of what the other side has and this one lacks are results of ops that this
    side lists without their values."""
    names = {key.op for key in graph.unkept}
    names.update(
        origin for key in graph.unkept if key in graph.ops for origin in graph.ops[key].origins
    )

    def is_lost(key: OpKey) -> bool:
        op = other.ops.get(key)
        return key.op in names or (op is not None and not names.isdisjoint(op.origins))

    return 2 * sum(is_lost(key.op) for key in lacking) > len(lacking)


def _is_subset(graph: _Graph, other: _Graph) -> bool:
    """Whether a side is a dump, and the other side knows the names in it. Then both were dumped
    alike, and a name that this side lacks was not fused into another op: it is lost. A dump that
    has more than names must be of the other's format for that."""
    formats = [one.run.info.options.get("format") for one in (graph, other)]
    alike = graph.is_foreign and formats[0] == formats[1]
    if (graph.has_types or graph.has_edges) and not alike:
        return False
    names = [str(t.key) for t in graph.run.tensors if role_of_name(t.key) is Role.OUTPUT]
    others = {str(t.key) for t in other.run.tensors}
    return bool(names) and sum(n in others for n in names) >= _SAME_NAMES_SHARE * len(names)


class _Graph:
    """What the rule asks of one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ops = {op.key: op for op in run.ops}
        self.live_inputs = {
            key: [edge for edge in op.inputs if edge.role is not Role.PARAMETER]
            for key, op in self.ops.items()
        }
        self.has_edges = any(op.inputs for op in self.ops.values())
        self.has_types = any(op.type for op in self.ops.values())
        self.is_foreign = "format" in run.info.options
        """Read from the dump of another tool: it holds the ops that were dumped, whichever those
        are, and not the graph that was executed."""
        self.unkept = self._unkept()
        self._by_text: dict[str, TensorKey] = {}

    def maker(self, key: TensorKey) -> TensorKey | None:
        """The result of an op that a state or a model output is another name of."""
        if not self._by_text:
            self._by_text = {str(tensor.key): tensor.key for tensor in self.run.tensors}
        tensor = self.run.tensor(key)
        return self._by_text.get(tensor.alias_of) if tensor is not None else None

    def _unkept(self) -> Counter[OpKey]:
        """Ops that compute something of which the run has no value, with the number of parts
        that lack it; ops that are read but not listed are among them."""
        parts: set[Part] = set()
        kept: dict[OpKey, set[Part]] = {}
        for tensor in self.run.tensors:
            if tensor.key.role is Role.OUTPUT:
                parts.add(tensor.key.part)
                kept.setdefault(tensor.key.op, set()).add(tensor.key.part)
        computing = {k for k, op in self.ops.items() if op_class(op.type) not in TRANSPARENT}
        computing.update(
            edge.op
            for inputs in self.live_inputs.values()
            for edge in inputs
            if edge.role is Role.OUTPUT and edge.op not in self.ops
        )
        lacking = {op: len(parts - kept.get(op, set())) for op in computing}
        return Counter({op: count for op, count in lacking.items() if count})


def _shown(
    left: Collection[TensorKey],
    side: str,
    own: _Graph,
    other: _Graph,
    partners: Mapping[TensorKey, TensorKey],
) -> set[TensorKey]:
    """Those of the tensors whose value flows into one that was compared.

    They may have no partner because the other run computes them inside its ops, and not because
    it is a part of a dump. A target must show its graph for that: it has executed all of it. Of a
    reference it is enough that it says what its ops are: Apple's folders of intermediates hold
    only some of the ops, by design. Arrays with nothing but names say neither.
    """
    if not other.has_types or (side == REFERENCE and not other.has_edges):
        return set()
    if own.has_edges:
        flow = _Flow(own, other, partners)
        return {key for key in left if flow.shows(key)}
    return _before_compared(left, own.run, partners) if side == REFERENCE else set()


def _before_compared(
    left: Collection[TensorKey], run: Run, compared: Collection[TensorKey]
) -> set[TensorKey]:
    """Without edges the order of the recording is all there is to tell what lies downstream."""
    place = {tensor.key: index for index, tensor in enumerate(run.tensors)}
    last: dict[Part, int] = {}
    for key in compared:
        if key.role in (Role.OUTPUT, Role.MODEL_OUTPUT):
            last[key.part] = max(last.get(key.part, -1), place.get(key, -1))
    computed = (key for key in left if key.role is not Role.MODEL_OUTPUT)
    return {key for key in computed if place[key] < last.get(key.part, -1)}


class _Flow:
    """Which values of a run flow into compared tensors, through ops that were not compared."""

    def __init__(self, own: _Graph, other: _Graph, partners: Mapping[TensorKey, TensorKey]) -> None:
        self._own = own
        self._read: dict[OpKey, set[int]] = {}
        for inputs in own.live_inputs.values():
            for edge in inputs:
                self._read.setdefault(edge.op, set()).add(edge.index)
        self._reached: dict[Part, dict[OpKey, set[int]]] = {}
        self._compared: dict[Part, set[OpKey]] = {}
        starts: dict[Part, set[OpKey]] = {}
        for key, partner in partners.items():
            if key.role is Role.OUTPUT or key.role is Role.INPUT:
                self._compared.setdefault(key.part, set()).add(key.op)
                if _is_connected(own, key.op, other, partner.op):
                    starts.setdefault(key.part, set()).add(key.op)
            elif key.role is Role.STATE or key.role is Role.MODEL_OUTPUT:
                # What a state or a model output holds is the value of the op that made it.
                made = own.maker(key)
                if made is not None:
                    self._reach(key.part, made.op, made.index)
                    source = other.maker(partner) or partner
                    if _is_connected(own, made.op, other, source.op):
                        starts.setdefault(key.part, set()).add(made.op)
        for part, ops in starts.items():
            self._spread(part, ops)

    def _reach(self, part: Part, op: OpKey, index: int) -> None:
        self._reached.setdefault(part, {}).setdefault(op, set()).add(index)

    def _spread(self, part: Part, ops: set[OpKey]) -> None:
        compared = self._compared.get(part, set())
        waiting, seen = list(ops), set(ops)
        while waiting:
            for edge in self._own.live_inputs.get(waiting.pop(), ()):
                self._reach(part, edge.op, edge.index)
                if edge.op not in seen and edge.op not in compared:
                    seen.add(edge.op)
                    waiting.append(edge.op)

    def shows(self, key: TensorKey) -> bool:
        """Whether an error in this tensor would have been seen."""
        if key.role is Role.MODEL_OUTPUT:
            return False
        reached = self._reached.get(key.part, {}).get(key.op, set())
        is_op_shown = bool(reached) or key.op in self._compared.get(key.part, set())
        if key.role is Role.INPUT:
            return is_op_shown
        # What no op reads beside the op's result, such as the statistics of a norm, goes nowhere.
        is_unread = bool(key.index) and key.index not in self._read.get(key.op, set())
        return key.index in reached or (is_op_shown and is_unread)


def _is_connected(own: _Graph, op: OpKey, other: _Graph, partner: OpKey) -> bool:
    """Whether the other side shows where the partner of a compared op got its values from. Where
    an op that it read was lost with its dump, nothing was seen of what flowed through that op."""
    if not other.has_edges or op not in own.ops:
        return True
    if partner not in other.ops:
        return False
    reads, theirs = own.live_inputs[op], other.live_inputs[partner]
    if any(edge.role is Role.OUTPUT and edge.op not in other.ops for edge in theirs):
        return False
    if not other.is_foreign:
        return True
    if own.ops[op].type == other.ops[partner].type:
        return len(theirs) >= len(reads)
    return bool(theirs) or not reads


def _named_by_compared(
    target: _Graph, compared: Mapping[TensorKey, TensorKey], unmatched: Iterable[Unmatched]
) -> set[tuple[str, Part]]:
    """Ops of the reference, by name and part, that compared ops of the target were made from,
    unless another op of the target was made from them too and was not compared."""
    open_ops = {u.key.op for u in unmatched if u.side == TARGET and u.key.role is Role.OUTPUT}
    open_ops.update(target.unkept)
    claimed = {
        origin for key in open_ops if key in target.ops for origin in target.ops[key].origins
    }
    named: set[tuple[str, Part]] = set()
    for key, partner in compared.items():
        op = target.ops.get(key.op) if key.role is Role.OUTPUT else None
        if op is not None and key.op not in open_ops:
            named.update((origin, partner.part) for origin in op.origins if origin not in claimed)
    return named


_ROLE_IN_NAME = re.compile(r"!(model-input|parameter|state|input|model-output)(:\d+)?(@\S*)?$")


def role_of_name(key: TensorKey) -> Role:
    """What a tensor is to its model. In dumps of arrays, which know nothing but names, the text
    of the key tells (docs/formats.md)."""
    named = _ROLE_IN_NAME.search(key.op.op) if key.role is Role.OUTPUT else None
    return Role(named[1]) if named else key.role


def is_other_name(key: TensorKey, paired: Collection[str]) -> bool:
    """Whether such a name is that of a model output whose op has a partner: the same values."""
    named = _ROLE_IN_NAME.search(key.op.op)
    return named is not None and key.op.op[: named.start()] in paired
