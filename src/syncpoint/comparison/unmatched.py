"""List tensors without a partner (`UnmatchedTensor`), ops that are read but not recorded, aliases,
stand-ins; whether an error in each would show.

Fusion hides most tensors of a compiled graph, but their values flow into tensors that are compared,
so that an error in them shows there. A dump that lost files has just as few tensors. The graphs of
the two sides tell the two cases apart.
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
"""Minimum share of common names from which both sides count as dumped by the same code."""
_MODEL_INPUT, _UNLISTED = -2, -1
"""Positions of model inputs or states, and of ops that the run does not list."""
_ROLE_IN_NAME = re.compile(r"!(model-input|parameter|state|input|model-output)(:\d+)?(@\S*)?$")
"""The role at the end of a name in dumps of arrays (docs/formats.md)."""


@dataclass(frozen=True, kw_only=True)
class UnmatchedTensor:
    """A tensor without a partner, as the reports show it."""

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
    """Whether an error in it would be visible; see `Account`."""
    inside: str = ""
    """The op that contains it, where that is known."""

    @property
    def reason(self) -> str:
        """The code of the reason."""
        return self.why.code or ""

    @property
    def detail(self) -> str:
        """The reason without its code, with the cure."""
        return str(replace(self.why, code=None))


def role_of_name(key: TensorKey) -> Role:
    """The role of a tensor; in dumps of arrays it is part of the name (docs/formats.md)."""
    named = _ROLE_IN_NAME.search(key.op.op) if key.role is Role.OUTPUT else None
    return Role(named[1]) if named else key.role


def is_output_alias(key: TensorKey, paired: Collection[str]) -> bool:
    """Whether a name is a second name of an op output that has a partner."""
    named = _ROLE_IN_NAME.search(key.op.op)
    return named is not None and key.op.op[: named.start()] in paired


def list_unmatched(
    matching: Matching,
    unmatched_keys: list[Unmatched],
    accounts: Accounts,
    damaged: AbstractSet[tuple[str, TensorKey]] = frozenset(),
) -> list[UnmatchedTensor]:
    """The tensors without a partner; for those in `damaged` the damage is the reason."""
    tensors = []
    runs = {"target": matching.target.run, "reference": matching.reference.run}
    op_by_key = {side: {op.key: op for op in run.ops} for side, run in runs.items()}
    stand_ins = find_stand_ins(matching)
    paired = {
        "target": {str(pair.target) for pair in matching.pairs},
        "reference": {str(pair.reference) for pair in matching.pairs},
    }
    for entry in unmatched_keys:
        key = entry.key
        op = op_by_key[entry.side].get(key.op)
        code = entry.reason.code
        if op is not None and op.random and code is ReasonCode.NO_COUNTERPART:
            code = ReasonCode.RANDOM
        if (entry.side, key) in damaged:
            code = ReasonCode.DAMAGED
        role = role_of_name(key)
        counted = role in JUDGED_ROLES and code not in (ReasonCode.EXCLUDED, ReasonCode.RANDOM)
        counted = counted and entry.counted
        counted = counted and not is_output_alias(key, paired[entry.side])
        other = matching.reference if entry.side == "target" else matching.target
        if (entry.side, key) in stand_ins and not _has_model_outputs(other):
            # A dump of intermediates has no model outputs of its own. If the other side has some
            # but lacks this one, it counts.
            counted = False
        tensors.append(
            UnmatchedTensor(
                side=entry.side,
                op=str(key.op),
                role=role,
                index=key.index,
                type=op.type if op else "",
                module=op.module if op else "",
                why=replace(entry.reason, code=code),
                counted=counted,
                account=accounts.by_tensor.get((entry.side, key), Account.UNKNOWN)
                if counted
                else "",
                inside=entry.inside,
            )
        )
    return tensors


def find_stand_ins(matching: Matching) -> dict[tuple[str, TensorKey], TensorKey]:
    """Model outputs without a partner, each with the target tensor that is compared instead.

    That tensor is the output of the op that computes the model output.
    """
    stand_ins = {}
    by_reference = {pair.reference: pair.target for pair in matching.pairs}
    by_target = {pair.target: pair.target for pair in matching.pairs}
    for side_name, side, paired in (
        ("target", matching.target, by_target),
        ("reference", matching.reference, by_reference),
    ):
        by_text = {str(key): target_key for key, target_key in paired.items()}
        for tensor in side.others:
            unpaired = tensor.key.role is Role.MODEL_OUTPUT and tensor.key not in paired
            if unpaired and tensor.alias_of in by_text:
                stand_ins[side_name, tensor.key] = by_text[tensor.alias_of]
    return stand_ins


def _has_model_outputs(side: Side) -> bool:
    return any(tensor.key.role is Role.MODEL_OUTPUT for tensor in side.others)


@dataclass(frozen=True)
class Accounts:
    """Accounts of all unmatched tensors, and counts of values that were not kept."""

    by_tensor: Mapping[tuple[str, TensorKey], Account]
    unkept: Mapping[str, int]
    """By side: op outputs that are not in the run."""
    partial: tuple[str, ...]
    """Sides that are known to lack tensors that they computed."""


def decide_accounts(
    matching: Matching, unmatched: Sequence[Unmatched], rows: Sequence[Row]
) -> Accounts:
    """Decide for each counted unmatched tensor whether an error in it would be visible."""
    uncompared: dict[str, list[TensorKey]] = {TARGET: [], REFERENCE: []}
    for tensor in unmatched:
        if tensor.counted and role_of_name(tensor.key) in JUDGED_ROLES:
            uncompared[tensor.side].append(tensor.key)
    if not uncompared[TARGET] and not uncompared[REFERENCE]:
        return Accounts({}, {TARGET: 0, REFERENCE: 0}, ())
    compared = [row for row in rows if row.verdict is not Verdict.NONE]
    graphs = {TARGET: _Graph(matching.target.run), REFERENCE: _Graph(matching.reference.run)}
    inside = set(matching.hidden)
    if uncompared[REFERENCE]:
        inside |= _find_inside_compared(graphs[TARGET], compared, uncompared)
    account_of: dict[tuple[str, TensorKey], Account] = {}
    unkept, partial = {TARGET: 0, REFERENCE: 0}, []
    for side, other in ((TARGET, REFERENCE), (REFERENCE, TARGET)):
        if not uncompared[side]:
            continue
        account_of |= _decide_side(side, graphs, compared, uncompared[side], inside)
        unkept[other] = sum(graphs[other].unkept.values())
        lacking = [key for key in uncompared[side] if key.role is Role.OUTPUT]
        accounts = (account_of[side, key] for key in lacking)
        missing = count_missing(accounts, len(uncompared[other]) + unkept[other])
        is_subset = not matching.by_plan and _is_subset(graphs[other], graphs[side])
        if missing and (
            is_subset or _has_lost_values(graphs[other], graphs[side], lacking, missing)
        ):
            partial.append(other)
    return Accounts(account_of, unkept, tuple(partial))


def _decide_side(
    side: str,
    graphs: Mapping[str, _Graph],
    compared: Iterable[Row],
    keys: Collection[TensorKey],
    inside: Collection[tuple[str, TensorKey]],
) -> dict[tuple[str, TensorKey], Account]:
    """The accounts of one side; `inside` are tensors that compared ops contain."""
    ends = [(row.target.key, row.reference.key) for row in compared]
    if side == REFERENCE:
        ends = [(reference_key, target_key) for target_key, reference_key in ends]
    other = graphs[REFERENCE if side == TARGET else TARGET]
    shown = _find_shown(keys, side, graphs[side], other, ends)
    account_of = {}
    for key in keys:
        by_flow = Account.DOWNSTREAM if key in shown else Account.MISSING
        account_of[side, key] = Account.INSIDE if (side, key) in inside else by_flow
    return account_of


def _has_lost_values(
    graph: _Graph, other: _Graph, lacking: Iterable[TensorKey], missing: int
) -> bool:
    """Whether a side lost tensors.

    Either its ops read ops that are not listed, or most missing tensors are outputs of ops that it
    lists without values.
    """
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
    """Whether a side is a dump whose names the other side has too.

    Then both were dumped by the same code, and a name that this side lacks is lost, not fused into
    another op. A dump with types or edges must also have the format of the other side.
    """
    formats = [each.run.info.options.get("format") for each in (graph, other)]
    has_same_format = graph.is_foreign and formats[0] == formats[1]
    if (graph.has_types or graph.has_edges) and not has_same_format:
        return False
    names = [
        str(tensor.key) for tensor in graph.run.tensors if role_of_name(tensor.key) is Role.OUTPUT
    ]
    others = {str(tensor.key) for tensor in other.run.tensors}
    return bool(names) and sum(name in others for name in names) >= _SAME_NAMES_SHARE * len(names)


class _Graph:
    """The graph of one run. Ops are identified by position, because keys are slow to hash."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ops = list(run.ops)
        self.position = {op.key: position for position, op in enumerate(self.ops)}
        self.has_edges = any(op.inputs for op in self.ops)
        self.has_types = any(op.type for op in self.ops)
        self.is_foreign = "format" in run.info.options
        """Whether it is the dump of another tool, which may contain only some of the ops."""

    @cached_property
    def reads(self) -> list[list[tuple[int, int]]]:
        """By position: the producer of each input and its output index, without parameters.

        The producer of model inputs and states is _MODEL_INPUT, that of unlisted ops _UNLISTED.
        """
        return [
            [(self._position_of(e), e.index) for e in op.inputs if e.role is not Role.PARAMETER]
            for op in self.ops
        ]

    def _position_of(self, edge: Edge) -> int:
        return self.position.get(edge.op, _UNLISTED) if edge.role is Role.OUTPUT else _MODEL_INPUT

    @cached_property
    def unlisted(self) -> set[OpKey]:
        """Ops that other ops read and that the run does not list."""
        if not any(position == _UNLISTED for reads in self.reads for position, _ in reads):
            return set()
        edges = (edge for op in self.ops for edge in op.inputs if edge.role is Role.OUTPUT)
        return {edge.op for edge in edges if edge.op not in self.position}

    def origins(self, key: OpKey) -> tuple[str, ...]:
        """The origins of an op: its names in earlier forms of the model."""
        position = self.position.get(key)
        return () if position is None else self.ops[position].origins

    def aliased_output(self, key: TensorKey) -> TensorKey | None:
        """The op output that a state or a model output is an alias of."""
        tensor = self.run.tensor(key)
        return (
            self._by_text.get(tensor.alias_of) if tensor is not None and tensor.alias_of else None
        )

    @cached_property
    def _by_text(self) -> dict[str, TensorKey]:
        alias_texts = {tensor.alias_of for tensor in self.run.tensors if tensor.alias_of}
        texts = (
            ((str(tensor.key), tensor.key) for tensor in self.run.tensors) if alias_texts else ()
        )
        return {text: key for text, key in texts if text in alias_texts}

    @cached_property
    def unkept(self) -> Counter[OpKey]:
        """Ops whose output is not in the run, unlisted ops included, with the number of parts."""
        parts: dict[Part, int] = {}
        kept_parts = [0] * len(self.ops)
        for tensor in self.run.tensors:
            position = self.position.get(tensor.key.op) if tensor.key.role is Role.OUTPUT else None
            if position is not None:
                kept_parts[position] |= 1 << parts.setdefault(tensor.key.part, len(parts))
        lacking: Counter[OpKey] = Counter()
        for op, bits in zip(self.ops, kept_parts, strict=True):
            count = len(parts) - bits.bit_count()
            if count and op_class(op.type) not in TRANSPARENT:
                lacking[op.key] = count
        lacking.update(dict.fromkeys(self.unlisted, len(parts)))
        return lacking


def _find_shown(
    uncompared: Collection[TensorKey],
    side: str,
    own: _Graph,
    other: _Graph,
    ends: Sequence[tuple[TensorKey, TensorKey]],
) -> set[TensorKey]:
    """The unmatched tensors whose values flow into a compared tensor.

    `ends` are the compared tensors of this side with their partners. A tensor may be unmatched
    because the other run computes it inside one of its ops. A target must have a graph to prove
    that, since it executed all of it. A reference needs only op types: Apple's folders of
    intermediates contain some of the ops by design. Arrays with only names prove nothing.
    """
    if not other.has_types or (side == REFERENCE and not other.has_edges):
        return set()
    if own.has_edges:
        flow = _Flow(own, other, ends)
        return {key for key in uncompared if flow.shows(key)}
    return (
        _before_compared(uncompared, own.run, [key for key, _ in ends])
        if side == REFERENCE
        else set()
    )


def _before_compared(
    uncompared: Collection[TensorKey], run: Run, compared: Iterable[TensorKey]
) -> set[TensorKey]:
    """The tensors recorded before a compared one; without edges only the order is known."""
    position = {tensor.key: index for index, tensor in enumerate(run.tensors)}
    last_compared: dict[Part, int] = {}
    for key in compared:
        if key.role in (Role.OUTPUT, Role.MODEL_OUTPUT):
            last_compared[key.part] = max(last_compared.get(key.part, -1), position.get(key, -1))
    computed = (key for key in uncompared if key.role is not Role.MODEL_OUTPUT)
    return {key for key in computed if position[key] < last_compared.get(key.part, -1)}


class _Flow:
    """Finds the values of a run that flow into compared tensors through other ops."""

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
                # A state or a model output has the value of the op that computes it.
                output = own.aliased_output(key)
                if output is None:
                    continue
                position = own.position.get(output.op, _UNLISTED)
                self._reached.setdefault(key.part, {}).setdefault(position, set()).add(output.index)
                source = other.aliased_output(partner) or partner
            elif key.role is Role.OUTPUT or key.role is Role.INPUT:
                position = own.position.get(key.op, _UNLISTED)
                self._compared.setdefault(key.part, set()).add(position)
            else:
                continue
            if position >= 0 and self._is_connected(position, source.op):
                starts.setdefault(key.part, set()).add(position)
        for part, positions in starts.items():
            self._mark_upstream(part, positions)

    def _is_connected(self, position: int, partner: OpKey) -> bool:
        """Whether the other side has the inputs of the partner of a compared op.

        If it lost an op that the partner reads, values that flow through that op are not covered.
        """
        if not self._other.has_edges:
            return True
        partner_position = self._other.position.get(partner)
        if partner_position is None:
            return False
        reads, partner_reads = self._own.reads[position], self._other.reads[partner_position]
        if any(producer == _UNLISTED for producer, _ in partner_reads):
            return False
        if not self._other.is_foreign:
            return True
        if self._own.ops[position].type == self._other.ops[partner_position].type:
            return len(partner_reads) >= len(reads)
        return bool(partner_reads) or not reads

    def _mark_upstream(self, part: Part, positions: set[int]) -> None:
        compared = self._compared.get(part, set())
        reached = self._reached.setdefault(part, {})
        waiting, visited = list(positions), set(positions)
        while waiting:
            for producer, index in self._own.reads[waiting.pop()]:
                reached.setdefault(producer, set()).add(index)
                if producer >= 0 and producer not in visited and producer not in compared:
                    visited.add(producer)
                    waiting.append(producer)

    def shows(self, key: TensorKey) -> bool:
        """Whether an error in this tensor would show in a compared one."""
        position = self._own.position.get(key.op)
        if key.role is Role.MODEL_OUTPUT or position is None:
            return False
        reached = self._reached.get(key.part, {}).get(position, set())
        is_op_shown = bool(reached) or position in self._compared.get(key.part, set())
        if key.role is Role.INPUT:
            return is_op_shown
        # A further output that no op reads, such as the statistics of a norm, flows nowhere.
        is_unread = bool(key.index) and (position, key.index) not in self._read
        return key.index in reached or (is_op_shown and is_unread)


def _find_inside_compared(
    target: _Graph, compared: Iterable[Row], uncompared: Mapping[str, Collection[TensorKey]]
) -> set[tuple[str, TensorKey]]:
    """Reference tensors that are origins of compared target ops only.

    A tensor that is also an origin of a target op that was not compared is left out.
    """
    open_ops = {key.op for key in uncompared[TARGET] if key.role is Role.OUTPUT}
    open_ops.update(target.unkept)
    claimed = {origin for key in open_ops for origin in target.origins(key)}
    inside: set[tuple[str, Part]] = set()
    for row in compared:
        key = row.target.key
        if key.role is Role.OUTPUT and key.op not in open_ops:
            part = row.reference.key.part
            names = (name for name in target.origins(key.op) if name not in claimed)
            inside.update((name, part) for name in names)
    return {
        (REFERENCE, key)
        for key in uncompared[REFERENCE]
        if key.role in (Role.OUTPUT, Role.INPUT) and (key.op.op, key.part) in inside
    }
