"""The plan for a GE dump of TorchAir: what both of its comparisons share.

Every tensor of the device has an entry, whether it is compared or not, and so has every op of the
other side that nothing was compared with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from syncpoint.ascend.dumps.folder_files import unreadable_tensor
from syncpoint.ascend.dumps.graph_text import DynamoGraph
from syncpoint.ascend.dumps.torchair_run import TreeRun, op_facts
from syncpoint.ascend.matching.device_views import graph_view
from syncpoint.ascend.matching.plan import Plan
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames
from syncpoint.ascend.matching.torchair.graph_plan import (
    Derived,
    GraphEntry,
    GraphPlan,
)
from syncpoint.ascend.matching.torchair.reference_lookup import Found, Others
from syncpoint.ascend.matching.torchair.unmatched_reference import (
    graph_parts,
    unmatched_ops,
    unmatched_tokens,
)
from syncpoint.matching.views import View
from syncpoint.metrics.statistics_bounds import ENDS_ONLY_NOTE
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Op, OpKey, Part, Role, Tensor, TensorKey

MOVES_ONLY = ("Cast", "TransData")
"""In the types of ops that pass a value on in another type or layout."""
SHAPES = "data shape doesn't match."
OWN = "own input"
"""The path of a reference tensor that is an input of the target's own op."""
_LATER = "an earlier execution; the last one is compared"


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
        """`graphs` and `partners`, the graph of the other side, are by the target's graph."""
        self._target, self._reference = target, reference
        self._names = {graph: GraphNames(said) for graph, said in graphs.items()}
        self._partners = partners
        self._mine = _by_op(target)
        self._theirs = _by_op(reference)
        self._executed = (_by_part(target), _by_part(reference))
        self._derived: list[Derived] = []
        self._shrunk: set[TensorKey] = set()
        self._excluded: list[tuple[TensorKey, str]] = []

    def plan(self) -> GraphPlan:
        """Everything that is to be compared, and why the rest is not."""
        entries: list[GraphEntry] = []
        seen: dict[tuple[str, Part], Others] = {}
        asked = Counter(self._partners.values())
        for graph, partner in self._partners.items():
            for part in graph_parts(self._target, graph):
                others = None
                if partner is not None:
                    others = seen.get((partner, part)) or self._others(partner, part)
                entries += self._token(graph, part, others)
                if others is not None and partner is not None:
                    seen[partner, part] = others
                    if asked[partner] == 1:
                        entries += unmatched_ops(graph, others)
        for (partner, _), others in seen.items():
            if asked[partner] > 1:
                entries += unmatched_ops(partner, others)
        entries += unmatched_tokens(self._reference, seen)
        plan = Plan(tuple(entries), self.evidence, tuple(self._excluded))
        return GraphPlan(plan, tuple(entries), tuple(self._derived), frozenset(self._shrunk))

    @abstractmethod
    def _op(self, line: GraphEntry, op: Op, others: Others) -> Iterator[GraphEntry]:
        """The entries of one op that has tensors."""

    def _others(self, graph: str, part: Part) -> Others | None:
        ops: dict[str, Op] = {}
        for op in self._executed[1].get((graph, str(part)), ()):
            known = ops.get(op.key.op)
            if known is None or known.key.call < op.key.call:
                ops[op.key.op] = op
        tensors = {op.key: self._theirs.get((op.key, part), {}) for op in ops.values()}
        return Others(ops, tensors, part) if ops else None

    def _token(self, graph: str, part: Part, others: Others | None) -> Iterator[GraphEntry]:
        last: dict[str, Op] = {}
        for op in self._executed[0].get((graph, str(part)), ()):
            before = last.get(op.key.op)
            if before is not None:
                self._leave_out(before, part)
            last[op.key.op] = op
        for op in sorted(last.values(), key=lambda op: (_time(op, part), op.key.op)):
            yield from self._entries(graph, part, op, others)

    def _leave_out(self, op: Op, part: Part) -> None:
        self._excluded += [(t.key, _LATER) for t in self._mine.get((op.key, part), {}).values()]

    def _entries(
        self, graph: str, part: Part, op: Op, others: Others | None
    ) -> Iterator[GraphEntry]:
        facts = op_facts(op, part)
        again = f"the last of {op.key.call + 1} executions is compared" if op.key.call else ""
        line = GraphEntry(
            index=0,
            type=op.type,
            target_names=(op.key.op,),
            reference_names=(),
            op=op.key.op,
            note=again,
            part=part,
            graph=graph,
            call=op.key.call,
            time=_time(op, part),
            place=str(facts.get("file", "")),
        )
        damage = str(facts.get("damage", ""))
        if damage:
            words = f"the dump file cannot be used: {damage}"
            place = unreadable_tensor(facts)
            yield replace(
                line, reason=ReasonCode.UNREADABLE, words=words, unreadable=place, extra=True
            )
        if not self._mine.get((op.key, part)):
            if not damage:
                words = "the dump file has no tensors"
                yield replace(line, reason=ReasonCode.EMPTY, words=words, extra=True)
            return
        if others is None:
            words = f"the golden dump has no token {part.step}"
            if self._partners.get(graph) is None:
                words = "the golden dump has no graph that belongs to it"
            for tensor in self._tensors(line, op):
                yield self._lonely(line, tensor, words)
            return
        yield from self._op(line, op, others)

    def _tensors(self, line: GraphEntry, op: Op) -> list[Tensor]:
        """All of an op, inputs first, in the order of their numbers."""
        found = self._mine.get((op.key, line.part), {}).values()
        return sorted(found, key=lambda t: (t.key.role is not Role.INPUT, t.key.index))

    def _lonely(self, line: GraphEntry, tensor: Tensor, words: str) -> GraphEntry:
        reason = ReasonCode.NO_COUNTERPART
        return replace(line, target=tensor, reason=reason, words=words, extra=True)

    def _moved(self, line: GraphEntry, op: Op, extra: bool) -> Iterator[GraphEntry]:
        """A cast or a change of layout: what comes out must be what went in."""
        tensors = {(t.key.role, t.key.index): t for t in self._tensors(line, op)}
        for (role, index), tensor in tensors.items():
            if role is Role.INPUT:
                if (Role.OUTPUT, index) in tensors:
                    self._excluded.append((tensor.key, "what its own output is compared with"))
                else:
                    yield self._lonely(line, tensor, "no output of the same number")
                continue
            source = tensors.get((Role.INPUT, index))
            if source is None:
                yield self._lonely(line, tensor, "no input of the same number")
                continue
            key = source.key
            own = replace(source, key=replace(key, op=replace(key.op, path=OWN)))
            made = replace(line, target=tensor, extra=extra, reference_names=(op.key.op,))
            # A cast of 1.7 to an integer gives 1, and that is no error.
            cut = _is_float(source) and not _is_float(tensor)
            if cut:
                own = replace(own, dtype=tensor.dtype)
                note = f"compared with its input as {DTYPES[tensor.dtype].name}"
                made = replace(made, note="; ".join(n for n in (made.note, note) if n))
            self._derived.append(Derived(own, source, own=True, cast=cut))
            yield self._paired(made, own, moved=True)

    def _with(self, line: GraphEntry, tensor: Tensor, found: Found, others: Others) -> GraphEntry:
        """The entry of a tensor and what was found for it."""
        line = replace(line, extra=found.extra)
        if found.damage:
            words = f"the golden file cannot be used: {found.damage}"
            return replace(
                line, target=tensor, reason=ReasonCode.UNREADABLE, words=words, extra=True
            )
        if found.tensor is None:
            return self._lonely(line, tensor, found.why)
        others.used.add(found.tensor.key)
        note = "; ".join(n for n in (line.note, found.note) if n)
        names = (found.tensor.key.op.op,)
        made = replace(line, target=tensor, note=note, reference_names=names)
        paired = self._paired(made, found.tensor)
        if paired.reason is ReasonCode.SHAPE and not found.sure:
            return self._lonely(made, tensor, f"{paired.words} the numbers of inputs differ")
        return paired

    def _paired(self, line: GraphEntry, theirs: Tensor, moved: bool = False) -> GraphEntry:
        mine = line.target
        assert mine is not None
        theirs, mine, ends_only = self._alike(mine, theirs)
        if ends_only:
            note = "; ".join(n for n in (line.note, ENDS_ONLY_NOTE) if n)
            line = replace(line, note=note, ends_only=True)
        line = replace(line, target=mine, reference=theirs)
        if not moved and (mine.dtype == "i8") != (theirs.dtype == "i8"):
            words = "int8 on one side only: integers whose scale no file tells"
            return replace(line, reason=ReasonCode.EXCLUDED, words=words)
        view = graph_view(self._target.run, mine, theirs)
        if isinstance(view, View):
            return replace(line, view=view)
        return replace(line, reason=ReasonCode.SHAPE, words=f"{SHAPES} {view}")

    def _alike(self, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Both whole, or both as their least and greatest value where one has no more; and whether
        it is so."""
        small = [mine.key in self._target.reduced, theirs.key in self._reference.reduced]
        if theirs.key.op.path == OWN:
            small[1] = small[0]
        if small[0] and not small[1]:
            key = replace(
                theirs.key, op=replace(theirs.key.op, path=f"min max of {mine.key.op.op}")
            )
            made = replace(theirs, key=key, shape=(2,), layout="")
            self._derived.append(Derived(made, theirs, shrunk=True))
            theirs = made
        elif small[1] and not small[0]:
            self._shrunk.add(mine.key)
            mine = replace(mine, shape=(2,), layout="")
        return theirs, mine, any(small)


def _is_float(tensor: Tensor) -> bool:
    return DTYPES[tensor.dtype].kind in (Kind.FLOAT, Kind.COMPLEX)


def _time(op: Op, part: Part) -> int:
    return int(op_facts(op, part).get("timestamp", 0))


def _by_part(side: TreeRun) -> dict[tuple[str, str], list[Op]]:
    """The ops that were executed in each graph and token."""
    found: dict[tuple[str, str], list[Op]] = {}
    for op in side.run.ops:
        for part in op.attributes["parts"]:
            found.setdefault((op.key.graph, part), []).append(op)
    return found


def _by_op(side: TreeRun) -> dict[tuple[OpKey, Part], dict[tuple[Role, int], Tensor]]:
    found: dict[tuple[OpKey, Part], dict[tuple[Role, int], Tensor]] = {}
    for tensor in side.run.tensors:
        key = tensor.key
        found.setdefault((key.op, key.part), {})[key.role, key.index] = tensor
    return found
