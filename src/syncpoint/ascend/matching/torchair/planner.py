"""Base of both planners for GE dumps: walk graphs and tokens, build entries, note tensors to
derive, list what stays unmatched in the reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.folder_listing import unreadable_tensor
from syncpoint.ascend.dumps.graph_text import DynamoGraph
from syncpoint.ascend.dumps.torchair_run import TreeRun, op_facts
from syncpoint.ascend.matching.device_views import graph_view
from syncpoint.ascend.matching.plan import ComparisonPlan, PlanEntry
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames
from syncpoint.matching.views import View
from syncpoint.metrics.statistics_bounds import ENDS_ONLY_NOTE
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Op, OpKey, Part, Role, Tensor, TensorKey

MOVES_ONLY = ("Cast", "TransData")
"""Parts of the types of ops that only change the dtype or layout of a value."""
SHAPE_MISMATCH = "data shape doesn't match."
OWN_INPUT_PATH = "own input"
"""The path of a reference tensor that is an input of the target's own op."""
_SUPERSEDED = "an earlier execution; the last one is compared"


@dataclass(frozen=True, kw_only=True)
class TensorLookup:
    """A tensor of the reference, or why there is none."""

    tensor: Tensor | None = None
    why: str = ""
    damage: str = ""
    note: str = ""
    extra: bool = False
    """Whether msProbe would not find it."""
    sure: bool = True
    """Whether different shapes mean an error of the model, and not of the pairing."""


@dataclass
class ReferenceOps:
    """The ops of the reference in one graph and token, by name; the last execution of each."""

    ops: dict[str, Op]
    tensors: dict[OpKey, dict[tuple[Role, int], Tensor]]
    part: Part
    used: set[TensorKey] = field(default_factory=set)
    why_unused: dict[str, str] = field(default_factory=dict)
    """Why an op is not compared, where that is known."""

    def __post_init__(self) -> None:
        # Names as in files, for a dump whose headers do not have the true names.
        self._op_by_file_name: dict[str, Op | None] = {}
        for name, op in self.ops.items():
            file_name = escape_name(name)
            is_ambiguous = file_name in self._op_by_file_name
            self._op_by_file_name[file_name] = None if is_ambiguous else op

    def op(self, name: str) -> Op | None:
        """The op of this name."""
        return self.ops.get(name) or self._op_by_file_name.get(escape_name(name))

    def find(self, name: str, role: Role, index: int) -> TensorLookup:
        """One tensor of an op."""
        op = self.op(name)
        if op is None:
            return TensorLookup(why=f"the golden dump has no {name}")
        tensor = self.tensors.get(op.key, {}).get((role, index))
        damage = str(op_facts(op, self.part).get("damage", ""))
        if tensor is None:
            if damage:
                return TensorLookup(damage=damage)
            return TensorLookup(why=f"the golden dump has no {role} {index} of {name}")
        return TensorLookup(tensor=tensor, note=last_execution_note(op.key.call))

    def count(self, name: str, role: Role) -> int:
        """The number of inputs or outputs of an op."""
        op = self.op(name)
        if op is None:
            return 0
        return sum(tensor_role is role for tensor_role, _ in self.tensors.get(op.key, ()))


def last_execution_note(call: int) -> str:
    """A note that the last of several executions is compared; "" for the only execution."""
    return f"the last of {call + 1} executions is compared" if call else ""


@dataclass(frozen=True, kw_only=True)
class GraphEntry(PlanEntry):
    """One line of the report."""

    graph: str = ""
    call: int = 0
    """Which execution of the op in its part."""
    time: int = 0
    """When the device wrote it."""
    extra: bool = False
    """Whether the report of msProbe has no such line."""
    file: str = ""
    """For a line without a tensor: the file of the op, or its name."""

    @property
    def key(self) -> OpKey:
        """The device op; it exists also if the dump has none of its tensors."""
        return OpKey(self.op, self.call, self.graph)


@dataclass(frozen=True)
class DerivedTensor:
    """A tensor that is computed from another one before it is compared."""

    tensor: Tensor
    source: Tensor
    from_target: bool = False
    """Whether its source is a tensor of the target; otherwise of the reference."""
    is_min_max: bool = False
    """Whether it holds the least and the greatest value of its source."""
    is_cast: bool = False
    """Whether its values are truncated to integers, as by a cast to its dtype."""


@dataclass(frozen=True)
class GraphPlan:
    """The plan, and the tensors to derive for it."""

    plan: ComparisonPlan
    entries: tuple[GraphEntry, ...]
    derived: tuple[DerivedTensor, ...] = ()
    """Tensors to add to the reference."""
    min_max_only: frozenset[TensorKey] = frozenset()
    """Tensors of the target to compare by their least and greatest value."""


class GraphPlanner(ABC):
    """Pairs the ops of one rank, graph by graph and token by token."""

    evidence: str

    def __init__(
        self,
        target: TreeRun,
        reference: TreeRun,
        graphs: dict[str, DynamoGraph],
        partners: dict[str, str | None],
    ) -> None:
        """`graphs` has the graph file, `partners` the graph of the reference, by target graph."""
        self._target, self._reference = target, reference
        self._names = {graph: GraphNames(graph_file) for graph, graph_file in graphs.items()}
        self._partners = partners
        self._target_tensors = _tensors_by_op(target)
        self._reference_tensors = _tensors_by_op(reference)
        self._target_ops, self._reference_ops = _ops_by_part(target), _ops_by_part(reference)
        self._derived: list[DerivedTensor] = []
        self._min_max_only: set[TensorKey] = set()
        self._excluded: list[tuple[TensorKey, str]] = []

    def plan(self) -> GraphPlan:
        """Plan which tensors to compare, and say why the others are not."""
        entries: list[GraphEntry] = []
        references: dict[tuple[str, Part], ReferenceOps] = {}
        partner_counts = Counter(self._partners.values())
        for graph, partner in self._partners.items():
            for part in graph_parts(self._target, graph):
                reference = None
                if partner is not None:
                    reference = references.get((partner, part))
                    reference = reference or self._collect_reference(partner, part)
                entries += self._plan_token(graph, part, reference)
                if reference is not None and partner is not None:
                    references[partner, part] = reference
                    if partner_counts[partner] == 1:
                        entries += unmatched_ops(graph, reference)
        for (partner, _), reference in references.items():
            if partner_counts[partner] > 1:
                entries += unmatched_ops(partner, reference)
        entries += unmatched_tokens(self._reference, references)
        plan = ComparisonPlan(tuple(entries), self.evidence, tuple(self._excluded))
        return GraphPlan(plan, tuple(entries), tuple(self._derived), frozenset(self._min_max_only))

    @abstractmethod
    def _pair_op(self, entry: GraphEntry, op: Op, reference: ReferenceOps) -> Iterator[GraphEntry]:
        """The entries of one op that has tensors."""

    def _collect_reference(self, graph: str, part: Part) -> ReferenceOps | None:
        """The last executions of the ops of the reference in one graph and token."""
        ops: dict[str, Op] = {}
        for op in self._reference_ops.get((graph, str(part)), ()):
            earlier = ops.get(op.key.op)
            if earlier is None or earlier.key.call < op.key.call:
                ops[op.key.op] = op
        tensors = {op.key: self._reference_tensors.get((op.key, part), {}) for op in ops.values()}
        return ReferenceOps(ops, tensors, part) if ops else None

    def _plan_token(
        self, graph: str, part: Part, reference: ReferenceOps | None
    ) -> Iterator[GraphEntry]:
        last: dict[str, Op] = {}
        for op in self._target_ops.get((graph, str(part)), ()):
            earlier = last.get(op.key.op)
            if earlier is not None:
                self._exclude(earlier, part)
            last[op.key.op] = op
        for op in sorted(last.values(), key=lambda op: (_timestamp(op, part), op.key.op)):
            yield from self._op_entries(graph, part, op, reference)

    def _exclude(self, op: Op, part: Part) -> None:
        tensors = self._target_tensors.get((op.key, part), {}).values()
        self._excluded += [(tensor.key, _SUPERSEDED) for tensor in tensors]

    def _op_entries(
        self, graph: str, part: Part, op: Op, reference: ReferenceOps | None
    ) -> Iterator[GraphEntry]:
        """The entries of one op of the device: damage, missing reference, or its pairs."""
        facts = op_facts(op, part)
        entry = GraphEntry(
            index=0,
            type=op.type,
            target_names=(op.key.op,),
            reference_names=(),
            op=op.key.op,
            note=last_execution_note(op.key.call),
            part=part,
            graph=graph,
            call=op.key.call,
            time=_timestamp(op, part),
            file=str(facts.get("file", "")),
        )
        damage = str(facts.get("damage", ""))
        if damage:
            yield replace(
                entry,
                reason=ReasonCode.UNREADABLE,
                report_text=f"the dump file cannot be used: {damage}",
                unreadable=unreadable_tensor(facts),
                extra=True,
            )
        if not self._target_tensors.get((op.key, part)):
            if not damage:
                text = "the dump file has no tensors"
                yield replace(entry, reason=ReasonCode.EMPTY, report_text=text, extra=True)
            return
        if reference is None:
            text = f"the golden dump has no token {part.step}"
            if self._partners.get(graph) is None:
                text = "the golden dump has no graph that belongs to it"
            for tensor in self._tensors(entry, op):
                yield self._unpaired(entry, tensor, text)
            return
        yield from self._pair_op(entry, op, reference)

    def _tensors(self, entry: GraphEntry, op: Op) -> list[Tensor]:
        """All tensors of an op of the device, inputs first, in the order of their indices."""
        tensors = self._target_tensors.get((op.key, entry.part), {}).values()
        return sorted(tensors, key=lambda t: (t.key.role is not Role.INPUT, t.key.index))

    def _unpaired(self, entry: GraphEntry, tensor: Tensor, text: str) -> GraphEntry:
        reason = ReasonCode.NO_COUNTERPART
        return replace(entry, target=tensor, reason=reason, report_text=text, extra=True)

    def _pair_with_own_input(self, entry: GraphEntry, op: Op, extra: bool) -> Iterator[GraphEntry]:
        """Pair the outputs of a cast or a change of layout with the inputs of the same op."""
        tensors = {(t.key.role, t.key.index): t for t in self._tensors(entry, op)}
        for (role, index), tensor in tensors.items():
            if role is Role.INPUT:
                if (Role.OUTPUT, index) in tensors:
                    self._excluded.append((tensor.key, "what its own output is compared with"))
                else:
                    yield self._unpaired(entry, tensor, "no output of the same number")
                continue
            source = tensors.get((Role.INPUT, index))
            if source is None:
                yield self._unpaired(entry, tensor, "no input of the same number")
                continue
            own_key = replace(source.key, op=replace(source.key.op, path=OWN_INPUT_PATH))
            own_input = replace(source, key=own_key)
            pair = replace(entry, target=tensor, extra=extra, reference_names=(op.key.op,))
            # A cast of 1.7 to an integer gives 1, which is not an error.
            is_cast = _is_float(source) and not _is_float(tensor)
            if is_cast:
                own_input = replace(own_input, dtype=tensor.dtype)
                note = f"compared with its input as {DTYPES[tensor.dtype].name}"
                pair = replace(pair, note=_join(pair.note, note))
            self._derived.append(
                DerivedTensor(own_input, source, from_target=True, is_cast=is_cast)
            )
            yield self._add_reference(pair, own_input, is_own_input=True)

    def _pair_tensor(
        self, entry: GraphEntry, tensor: Tensor, lookup: TensorLookup, reference: ReferenceOps
    ) -> GraphEntry:
        """The entry of a tensor and the reference tensor that was looked up for it."""
        entry = replace(entry, extra=lookup.extra)
        if lookup.damage:
            return replace(
                entry,
                target=tensor,
                reason=ReasonCode.UNREADABLE,
                report_text=f"the golden file cannot be used: {lookup.damage}",
                extra=True,
            )
        if lookup.tensor is None:
            return self._unpaired(entry, tensor, lookup.why)
        reference.used.add(lookup.tensor.key)
        entry = replace(
            entry,
            target=tensor,
            note=_join(entry.note, lookup.note),
            reference_names=(lookup.tensor.key.op.op,),
        )
        pair = self._add_reference(entry, lookup.tensor)
        if pair.reason is ReasonCode.SHAPE and not lookup.sure:
            text = f"{pair.report_text} the numbers of inputs differ"
            return self._unpaired(entry, tensor, text)
        return pair

    def _add_reference(
        self, entry: GraphEntry, reference: Tensor, is_own_input: bool = False
    ) -> GraphEntry:
        """The entry with its reference tensor, and the view or the reason why there is none."""
        assert entry.target is not None
        target, reference, ends_only = self._reduce_alike(entry.target, reference)
        if ends_only:
            entry = replace(entry, note=_join(entry.note, ENDS_ONLY_NOTE), ends_only=True)
        entry = replace(entry, target=target, reference=reference)
        if not is_own_input and (target.dtype == "i8") != (reference.dtype == "i8"):
            text = "int8 on one side only: integers whose scale is in no file"
            return replace(entry, reason=ReasonCode.EXCLUDED, report_text=text)
        view = graph_view(self._target.run, target, reference)
        if isinstance(view, View):
            return replace(entry, view=view)
        return replace(entry, reason=ReasonCode.SHAPE, report_text=f"{SHAPE_MISMATCH} {view}")

    def _reduce_alike(self, target: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Both tensors with all values; or both as min and max, if one has no more. The bool says
        which."""
        target_reduced = target.key in self._target.reduced
        reference_reduced = reference.key in self._reference.reduced
        if reference.key.op.path == OWN_INPUT_PATH:
            reference_reduced = target_reduced
        if target_reduced and not reference_reduced:
            op_key = replace(reference.key.op, path=f"min max of {target.key.op.op}")
            key = replace(reference.key, op=op_key)
            min_max = replace(reference, key=key, shape=(2,), layout="")
            self._derived.append(DerivedTensor(min_max, reference, is_min_max=True))
            reference = min_max
        elif reference_reduced and not target_reduced:
            self._min_max_only.add(target.key)
            target = replace(target, shape=(2,), layout="")
        return target, reference, target_reduced or reference_reduced


def _join(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


def _is_float(tensor: Tensor) -> bool:
    return DTYPES[tensor.dtype].kind in (Kind.FLOAT, Kind.COMPLEX)


def _timestamp(op: Op, part: Part) -> int:
    return int(op_facts(op, part).get("timestamp", 0))


def _ops_by_part(dump: TreeRun) -> dict[tuple[str, str], list[Op]]:
    """The ops that were executed in each graph and token."""
    ops: dict[tuple[str, str], list[Op]] = {}
    for op in dump.run.ops:
        for part in op.attributes["parts"]:
            ops.setdefault((op.key.graph, part), []).append(op)
    return ops


def _tensors_by_op(dump: TreeRun) -> dict[tuple[OpKey, Part], dict[tuple[Role, int], Tensor]]:
    tensors: dict[tuple[OpKey, Part], dict[tuple[Role, int], Tensor]] = {}
    for tensor in dump.run.tensors:
        key = tensor.key
        tensors.setdefault((key.op, key.part), {})[key.role, key.index] = tensor
    return tensors


def unmatched_ops(graph: str, reference: ReferenceOps) -> Iterator[GraphEntry]:
    """Entries for the ops of which no tensor is compared."""
    for name, op in reference.ops.items():
        tensors = reference.tensors.get(op.key, {})
        if any(tensor.key in reference.used for tensor in tensors.values()):
            continue
        text = reference.why_unused.get(name, "the device's dump has no op for it")
        yield _op_entry(graph, reference.part, name, op, text)


def unmatched_tensors(
    graph: str, reference: ReferenceOps, name: str, role: Role
) -> Iterator[GraphEntry]:
    """Entries for the tensors of an op that the device op does not have."""
    op = reference.op(name)
    if op is None:
        return
    for (tensor_role, index), tensor in reference.tensors.get(op.key, {}).items():
        if tensor_role is role and tensor.key not in reference.used:
            reference.used.add(tensor.key)
            text = f"the device's op has no {role} {index}"
            entry = _op_entry(graph, reference.part, name, op, text)
            yield replace(entry, reference=tensor)


def unmatched_tokens(
    reference: TreeRun, compared: Container[tuple[str, Part]]
) -> Iterator[GraphEntry]:
    """Entries for the tokens that the dump of the device does not have."""
    graphs = dict.fromkeys(op.key.graph for op in reference.run.ops)
    for graph in graphs:
        for part in graph_parts(reference, graph):
            if (graph, part) not in compared:
                token = f"graph {graph}, token {part.step}" if graph else f"token {part.step}"
                yield GraphEntry(
                    index=0,
                    type="",
                    target_names=(),
                    reference_names=(graph or "graph",),
                    reason=ReasonCode.NO_TARGET_VALUE,
                    report_text=f"the device's dump has no {token}",
                    part=part,
                    graph=graph,
                    extra=True,
                )


def _op_entry(graph: str, part: Part, name: str, op: Op, report_text: str) -> GraphEntry:
    return GraphEntry(
        index=0,
        type=op.type,
        target_names=(),
        reference_names=(name,),
        reason=ReasonCode.NO_TARGET_VALUE,
        report_text=report_text,
        part=part,
        graph=graph,
        extra=True,
        file=name,
    )


def graph_parts(dump: TreeRun, graph: str) -> list[Part]:
    """The tokens of a graph, in order."""
    has_graphs = len({op.key.graph for op in dump.run.ops}) > 1
    return sorted(
        {
            Part(step=leaf.token, rank=leaf.rank)
            for leaf in dump.tree.leaves
            if not has_graphs or leaf.graph == graph
        }
    )
