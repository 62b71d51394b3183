"""What became of the tensors without a partner: missing, or shown by what was compared.

A tensor without a partner is not missing where an error in it would have shown: fusion hides most
tensors of a compiled graph, and what it hides flows into what is compared. A dump that lost its
values looks alike by numbers; the graphs of the two sides tell one from the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from syncpoint.comparison.coverage import REFERENCE, TARGET, Account, count_missing
from syncpoint.comparison.rows import Row
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.matching.protocol import JUDGED_ROLES, Matching, Side, Unmatched
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict
from syncpoint.run.model import Edge, OpKey, Part, Role, TensorKey
from syncpoint.run.reader import Run

_SAME_NAMES_SHARE = 0.9
"""From this share of names that the other side has too, both were dumped by the same code."""
_MODEL_INPUT, _UNLISTED = -2, -1
"""In place of a position: what the model was given, and an op that the run does not list."""


@dataclass(frozen=True)
class Accounts:
    """What became of every tensor without a partner, and of ops whose values were not kept."""

    by_tensor: Mapping[tuple[str, TensorKey], Account]
    unkept: Mapping[str, int]
    """By side: results that ops of the run computed and that are not in it."""
    partial: tuple[str, ...]
    """Sides that are known to lack tensors which they computed."""


def decide_accounts(
    matching: Matching, unmatched: Sequence[Unmatched], rows: Sequence[Row]
) -> Accounts:
    """Decide about each counted tensor without a partner, given what was compared."""
    left: dict[str, list[TensorKey]] = {TARGET: [], REFERENCE: []}
    for one in unmatched:
        if one.counted and role_of_name(one.key) in JUDGED_ROLES:
            left[one.side].append(one.key)
    if not left[TARGET] and not left[REFERENCE]:
        return Accounts({}, {TARGET: 0, REFERENCE: 0}, ())
    compared = [row for row in rows if row.verdict is not Verdict.NONE]
    graphs = {TARGET: _Graph(matching.target.run), REFERENCE: _Graph(matching.reference.run)}
    inside = set(matching.hidden)
    if left[REFERENCE]:
        inside |= _find_inside_compared(graphs[TARGET], compared, left)
    decided: dict[tuple[str, TensorKey], Account] = {}
    unkept, partial = {TARGET: 0, REFERENCE: 0}, []
    for side, other in ((TARGET, REFERENCE), (REFERENCE, TARGET)):
        if not left[side]:
            continue
        decided |= _decide_side(side, graphs, compared, left[side], inside)
        unkept[other] = sum(graphs[other].unkept.values())
        lacking = [key for key in left[side] if key.role is Role.OUTPUT]
        accounts = (decided[side, key] for key in lacking)
        missing = count_missing(accounts, len(left[other]) + unkept[other])
        alike = not matching.by_plan and _is_subset(graphs[other], graphs[side])
        if missing and (alike or _has_lost_values(graphs[other], graphs[side], lacking, missing)):
            partial.append(other)
    return Accounts(decided, unkept, tuple(partial))


def _decide_side(
    side: str,
    graphs: Mapping[str, _Graph],
    compared: Iterable[Row],
    keys: Collection[TensorKey],
    inside: Collection[tuple[str, TensorKey]],
) -> dict[tuple[str, TensorKey], Account]:
    """What became of the tensors of one side; `inside` are those that compared ops stand for."""
    ends = [(row.target.key, row.reference.key) for row in compared]
    if side == REFERENCE:
        ends = [(theirs, mine) for mine, theirs in ends]
    other = graphs[REFERENCE if side == TARGET else TARGET]
    shown = _find_shown(keys, side, graphs[side], other, ends)
    decided = {}
    for key in keys:
        flows = Account.DOWNSTREAM if key in shown else Account.MISSING
        decided[side, key] = Account.INSIDE if (side, key) in inside else flows
    return decided


def _has_lost_values(
    graph: _Graph, other: _Graph, lacking: Iterable[TensorKey], missing: int
) -> bool:
    """Whether a side lost tensors: its ops read others that are not listed, or most of what is
    missing are results of ops that it lists without their values."""
    if graph.unlisted:
        return True
    names = {key.op for key in graph.unkept}
    for key in graph.unkept:
        names.update(graph.origins(key))
    if not names:
        return False
    lost = (key.op.op in names or not names.isdisjoint(other.origins(key.op)) for key in lacking)
    return 2 * sum(lost) > missing


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
    """What the rule asks of one run. Ops are known by their positions: keys are slow to hash."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ops = list(run.ops)
        self.position = {op.key: place for place, op in enumerate(self.ops)}
        self.has_edges = any(op.inputs for op in self.ops)
        self.has_types = any(op.type for op in self.ops)
        self.is_foreign = "format" in run.info.options
        """Read from the dump of another tool: it holds the ops that were dumped, whichever those
        are, and not the graph that was executed."""

    @cached_property
    def reads(self) -> list[list[tuple[int, int]]]:
        """By position: which op each input comes from, and which of its outputs it is; parameters
        are left out. Model inputs and states are at _GIVEN, unlisted ops at _UNLISTED."""
        return [
            [(self._place(e), e.index) for e in op.inputs if e.role is not Role.PARAMETER]
            for op in self.ops
        ]

    def _place(self, edge: Edge) -> int:
        return self.position.get(edge.op, _UNLISTED) if edge.role is Role.OUTPUT else _MODEL_INPUT

    @cached_property
    def unlisted(self) -> set[OpKey]:
        """Ops that others read and the run does not list."""
        if not any(place == _UNLISTED for reads in self.reads for place, _ in reads):
            return set()
        edges = (edge for op in self.ops for edge in op.inputs if edge.role is Role.OUTPUT)
        return {edge.op for edge in edges if edge.op not in self.position}

    def origins(self, key: OpKey) -> tuple[str, ...]:
        """The ops in earlier forms of the model that an op was made from."""
        place = self.position.get(key)
        return () if place is None else self.ops[place].origins

    def maker(self, key: TensorKey) -> TensorKey | None:
        """The result of an op that a state or a model output is another name of."""
        tensor = self.run.tensor(key)
        return (
            self._by_text.get(tensor.alias_of) if tensor is not None and tensor.alias_of else None
        )

    @cached_property
    def _by_text(self) -> dict[str, TensorKey]:
        wanted = {tensor.alias_of for tensor in self.run.tensors if tensor.alias_of}
        texts = ((str(tensor.key), tensor.key) for tensor in self.run.tensors) if wanted else ()
        return {text: key for text, key in texts if text in wanted}

    @cached_property
    def unkept(self) -> Counter[OpKey]:
        """Ops that compute something of which the run has no value, with the number of parts
        that lack it; unlisted ops are among them."""
        parts: dict[Part, int] = {}
        kept = [0] * len(self.ops)
        for tensor in self.run.tensors:
            place = self.position.get(tensor.key.op) if tensor.key.role is Role.OUTPUT else None
            if place is not None:
                kept[place] |= 1 << parts.setdefault(tensor.key.part, len(parts))
        lacking: Counter[OpKey] = Counter()
        for op, bits in zip(self.ops, kept, strict=True):
            count = len(parts) - bits.bit_count()
            if count and op_class(op.type) not in TRANSPARENT:
                lacking[op.key] = count
        lacking.update(dict.fromkeys(self.unlisted, len(parts)))
        return lacking


def _find_shown(
    left: Collection[TensorKey],
    side: str,
    own: _Graph,
    other: _Graph,
    ends: Sequence[tuple[TensorKey, TensorKey]],
) -> set[TensorKey]:
    """Those of the tensors whose value flows into one that was compared; `ends` are the compared
    tensors of this side with their partners.

    They may have no partner because the other run computes them inside its ops, and not because
    it is a part of a dump. A target must show its graph for that: it has executed all of it. Of a
    reference it is enough that it says what its ops are: Apple's folders of intermediates hold
    only some of the ops, by design. Arrays with nothing but names say neither.
    """
    if not other.has_types or (side == REFERENCE and not other.has_edges):
        return set()
    if own.has_edges:
        flow = _Flow(own, other, ends)
        return {key for key in left if flow.shows(key)}
    return _before_compared(left, own.run, [key for key, _ in ends]) if side == REFERENCE else set()


def _before_compared(
    left: Collection[TensorKey], run: Run, compared: Iterable[TensorKey]
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

    def __init__(
        self, own: _Graph, other: _Graph, ends: Iterable[tuple[TensorKey, TensorKey]]
    ) -> None:
        self._own, self._other = own, other
        self._read = {read for reads in own.reads for read in reads}
        self._reached: dict[Part, dict[int, set[int]]] = {}
        self._compared: dict[Part, set[int]] = {}
        starts: dict[Part, set[int]] = {}
        for key, partner in ends:
            source = partner
            if key.role is Role.STATE or key.role is Role.MODEL_OUTPUT:
                # What a state or a model output holds is the value of the op that made it.
                made = own.maker(key)
                if made is None:
                    continue
                place = own.position.get(made.op, _UNLISTED)
                self._reached.setdefault(key.part, {}).setdefault(place, set()).add(made.index)
                source = other.maker(partner) or partner
            elif key.role is Role.OUTPUT or key.role is Role.INPUT:
                place = own.position.get(key.op, _UNLISTED)
                self._compared.setdefault(key.part, set()).add(place)
            else:
                continue
            if place >= 0 and self._is_connected(place, source.op):
                starts.setdefault(key.part, set()).add(place)
        for part, places in starts.items():
            self._spread(part, places)

    def _is_connected(self, place: int, partner: OpKey) -> bool:
        """Whether the other side shows where the partner of a compared op got its values from.
        Where an op that it read was lost with its dump, nothing was seen of what flowed through
        that op."""
        if not self._other.has_edges:
            return True
        found = self._other.position.get(partner)
        if found is None:
            return False
        reads, theirs = self._own.reads[place], self._other.reads[found]
        if any(producer == _UNLISTED for producer, _ in theirs):
            return False
        if not self._other.is_foreign:
            return True
        if self._own.ops[place].type == self._other.ops[found].type:
            return len(theirs) >= len(reads)
        return bool(theirs) or not reads

    def _spread(self, part: Part, places: set[int]) -> None:
        compared = self._compared.get(part, set())
        reached = self._reached.setdefault(part, {})
        waiting, seen = list(places), set(places)
        while waiting:
            for producer, index in self._own.reads[waiting.pop()]:
                reached.setdefault(producer, set()).add(index)
                if producer >= 0 and producer not in seen and producer not in compared:
                    seen.add(producer)
                    waiting.append(producer)

    def shows(self, key: TensorKey) -> bool:
        """Whether an error in this tensor would have been seen."""
        place = self._own.position.get(key.op)
        if key.role is Role.MODEL_OUTPUT or place is None:
            return False
        reached = self._reached.get(key.part, {}).get(place, set())
        is_op_shown = bool(reached) or place in self._compared.get(key.part, set())
        if key.role is Role.INPUT:
            return is_op_shown
        # What no op reads beside the op's result, such as the statistics of a norm, goes nowhere.
        is_unread = bool(key.index) and (place, key.index) not in self._read
        return key.index in reached or (is_op_shown and is_unread)


def _find_inside_compared(
    target: _Graph, compared: Iterable[Row], left: Mapping[str, Collection[TensorKey]]
) -> set[tuple[str, TensorKey]]:
    """Tensors of the reference that compared ops of the target were made from, unless another op
    of the target was made from them too and was not compared."""
    open_ops = {key.op for key in left[TARGET] if key.role is Role.OUTPUT}
    open_ops.update(target.unkept)
    claimed = {origin for key in open_ops for origin in target.origins(key)}
    named: set[tuple[str, Part]] = set()
    for row in compared:
        key = row.target.key
        if key.role is Role.OUTPUT and key.op not in open_ops:
            part = row.reference.key.part
            names = (name for name in target.origins(key.op) if name not in claimed)
            named.update((name, part) for name in names)
    return {
        (REFERENCE, key)
        for key in left[REFERENCE]
        if key.role in (Role.OUTPUT, Role.INPUT) and (key.op.op, key.part) in named
    }


_ROLE_IN_NAME = re.compile(r"!(model-input|parameter|state|input|model-output)(:\d+)?(@\S*)?$")


def role_of_name(key: TensorKey) -> Role:
    """What a tensor is to its model. In dumps of arrays, which know nothing but names, the text
    of the key tells (docs/formats.md)."""
    named = _ROLE_IN_NAME.search(key.op.op) if key.role is Role.OUTPUT else None
    return Role(named[1]) if named else key.role


def is_output_alias(key: TensorKey, paired: Collection[str]) -> bool:
    """Whether such a name is that of a model output whose op has a partner: the same values."""
    named = _ROLE_IN_NAME.search(key.op.op)
    return named is not None and key.op.op[: named.start()] in paired


def list_unmatched(
    matching: Matching,
    without_partner: list[Unmatched],
    accounts: Accounts,
    damaged: AbstractSet[tuple[str, TensorKey]] = frozenset(),
) -> list[UnmatchedTensor]:
    """What has no partner; `damaged` are tensors of which that may be the reason."""
    left = []
    runs = {"target": matching.target.run, "reference": matching.reference.run}
    orders = {side: {op.key: op for op in run.ops} for side, run in runs.items()}
    seen_through = find_stand_ins(matching)
    paired = {
        "target": {str(pair.target) for pair in matching.pairs},
        "reference": {str(pair.reference) for pair in matching.pairs},
    }
    for unmatched in without_partner:
        key = unmatched.key
        op = orders[unmatched.side].get(key.op)
        code = unmatched.reason.code
        if op is not None and op.random and code is ReasonCode.NO_COUNTERPART:
            code = ReasonCode.RANDOM
        if (unmatched.side, key) in damaged:
            code = ReasonCode.DAMAGED
        role = role_of_name(key)
        counted = role in JUDGED_ROLES and code not in (ReasonCode.EXCLUDED, ReasonCode.RANDOM)
        counted = counted and unmatched.counted
        counted = counted and not is_output_alias(key, paired[unmatched.side])
        other = matching.reference if unmatched.side == "target" else matching.target
        if (unmatched.side, key) in seen_through and not _names_outputs(other):
            # A dump of intermediates has no model outputs of its own; a model that has some,
            # but not this one, is another matter.
            counted = False
        left.append(
            UnmatchedTensor(
                side=unmatched.side,
                op=str(key.op),
                role=role,
                index=key.index,
                type=op.type if op else "",
                module=op.module if op else "",
                why=replace(unmatched.reason, code=code),
                counted=counted,
                account=accounts.by_tensor.get((unmatched.side, key), Account.UNKNOWN)
                if counted
                else "",
                inside=unmatched.inside,
            )
        )
    return left


def find_stand_ins(matching: Matching) -> dict[tuple[str, TensorKey], TensorKey]:
    """Model outputs without a partner, each with the target tensor that is compared in its
    place, at the op that made it."""
    found = {}
    by_reference = {pair.reference: pair.target for pair in matching.pairs}
    by_target = {pair.target: pair.target for pair in matching.pairs}
    for name, side, paired in (
        ("target", matching.target, by_target),
        ("reference", matching.reference, by_reference),
    ):
        by_text = {str(key): at for key, at in paired.items()}
        for tensor in side.others:
            unpaired = tensor.key.role is Role.MODEL_OUTPUT and tensor.key not in paired
            if unpaired and tensor.alias_of in by_text:
                found[name, tensor.key] = by_text[tensor.alias_of]
    return found


def _names_outputs(side: Side) -> bool:
    return any(tensor.key.role is Role.MODEL_OUTPUT for tensor in side.others)


@dataclass(frozen=True, kw_only=True)
class UnmatchedTensor:
    """A tensor without a partner, as it is shown."""

    side: str
    op: str
    role: str
    index: int
    type: str
    module: str
    why: Reason
    """Why it has no partner."""
    counted: bool = True
    """Whether it carries a value that could have been compared."""
    account: str = Account.UNKNOWN
    """Whether it is missing, or an error in it would have shown elsewhere."""
    inside: str = ""
    """The op that it is a piece of, where that is known."""

    @property
    def reason(self) -> str:
        """Why it has no partner, in one word: the code."""
        return self.why.code or ""

    @property
    def detail(self) -> str:
        """The rest of the reason in words."""
        return str(replace(self.why, code=None))
