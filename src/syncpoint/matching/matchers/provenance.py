"""Provenance: what an op was made from, and the line of the user's code that called for it.

Targets made from a torch program carry the names of its nodes, the module path and the source
line. Those names may be of another form of the program than the reference's (decomposed, for
instance), where `view_1` is another op's name; so a name counts only beside the same module and
line, and where a line calls for several ops of one kind the names must account for all of them.
Where names do not help, the call does: module, line, kind, and which of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from syncpoint.matching.evidence.lowered_ops import Unit, complete
from syncpoint.matching.evidence.numbered_modules import named_modules
from syncpoint.matching.evidence.source_lines import Call, are_nested, call_of, is_located
from syncpoint.matching.graph import Graph
from syncpoint.matching.op_kinds import class_of_name, op_class
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace


class ProvenanceMatcher:
    """Pairs ops by what they were made from."""

    name = "provenance"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Calls that both sides know, then bare names where the names have proven right."""
        if not any(op.origins or op.source for op in matching.target.ops):
            return ()
        work = Workspace.of(matching)
        groups = _Groups(work)
        if _same_names(work):
            return ()
        for call, mine in groups.target.items():
            theirs = groups.reference.get(call)
            if theirs:
                _call(work, mine, theirs)
            _nested_calls(work, groups, call, mine)
        if groups.trusted:
            _bare_names(work, groups)
        return ()


class _Groups:
    """The units of both sides by the call they belong to."""

    def __init__(self, work: Workspace) -> None:
        self.target = _units(work.graphs[TARGET], several=True, modules=named_modules(work))
        self.reference = _units(work.graphs[REFERENCE], several=False)
        self.by_name: dict[str, Unit | None] = {}
        self.where: dict[str, Call] = {}
        for call, units in self.reference.items():
            for unit in units:
                for name in unit.names:
                    # A name that several ops bear tells nothing.
                    self.by_name[name] = None if name in self.by_name else unit
                    self.where[name] = call
        agree = differ = 0
        for call, units in self.target.items():
            if not is_located(call):
                continue
            for name in {n for unit in units for n in unit.names} & self.where.keys():
                if is_located(self.where[name]):
                    same = self.where[name] == call or are_nested(self.where[name], call)
                    agree += same
                    differ += not same
        self.trusted = differ == 0
        """Whether every name that can be checked is the same op's on both sides."""
        self.checked = agree


def _units(
    graph: Graph, several: bool, modules: Mapping[str, str] = MappingProxyType({})
) -> dict[Call, list[Unit]]:
    found: dict[Call, list[Unit]] = {}
    last: dict[tuple[Call, str], Unit] = {}
    for at, op in enumerate(graph.ops):
        call = call_of(op, modules)
        name = op.origins[-1] if op.origins and several else op.key.op
        names = {*op.origins} if several else {op.key.op, *op.origins}
        unit = last.get((call, name)) if several else None
        if unit is None:
            kind = (class_of_name(name) if several else "") or op_class(op.type)
            unit = last[call, name] = Unit(name, kind, [], set())
            found.setdefault(call, []).append(unit)
        unit.positions.append(at)
        unit.names |= names
    return found


def _nested_calls(work: Workspace, groups: _Groups, call: Call, units: list[Unit]) -> None:
    """What was drawn into an op of the module around it or of one inside, as the activation of a
    sum or of a batch norm is, and is known by that op's call."""
    for unit in units:
        # Its own name says nothing of what it was made from.
        whole = groups.by_name.get(unit.name) if unit.name in unit.names else None
        if whole is not None and are_nested(groups.where[unit.name], call):
            complete(work, unit, whole, f"made from {whole.name}, same source line", 0.95)


def _same_names(work: Workspace) -> bool:
    """Two captures of one program, op for op: what they are called says it all, and is said
    better by the matcher of names."""
    mine, theirs = work.graphs
    return len(mine.ops) == len(theirs.ops) and all(
        a.key == b.key and a.type == b.type and a.module == b.module
        for a, b in zip(mine.ops, theirs.ops, strict=True)
    )


def _call(work: Workspace, mine: list[Unit], theirs: list[Unit]) -> None:
    """Pair what one line of one module called for, kind by kind."""
    if not is_located(call_of(work.graphs[TARGET].ops[mine[0].positions[0]])):
        return
    _same_form(work, mine, theirs)
    for kind in dict.fromkeys(unit.kind for unit in mine):
        targets = [u for u in mine if u.kind == kind]
        references = [u for u in theirs if u.kind == kind]
        if not references:
            continue
        named = _by_name(targets, references)
        if named is not None:
            for t, r in named:
                complete(work, t, r, f"made from {r.name}, same source line", 0.97)
        elif len(targets) == len(references):
            single = len(targets) == 1
            evidence = "source line and kind" + ("" if single else " and order")
            for t, r in zip(targets, references, strict=True):
                complete(work, t, r, evidence, 0.95 if single else 0.85, EvidenceKind.OTHER)


def _same_form(work: Workspace, mine: list[Unit], theirs: list[Unit]) -> None:
    """Where the reference was made from that program too, several of its ops stand for one of
    the program's: the target's then pair with those, kind for kind, whose names they bear."""
    graph = work.graphs[REFERENCE]
    candidates = [position for unit in theirs for position in unit.positions]
    origins = [origin for at in candidates for origin in graph.ops[at].origins[-1:]]
    if len(set(origins)) == len(origins):
        return
    by_name = {graph.ops[position].key.op: position for position in candidates}
    targets: dict[int, list[int]] = {}
    for position in (position for unit in mine for position in unit.positions):
        reference = _same_op(work, position, by_name)
        if reference is not None:
            targets.setdefault(reference, []).append(position)
    for reference, positions in targets.items():
        if len(positions) == 1:
            _pair_outputs(work, positions[0], reference)


def _same_op(work: Workspace, position: int, by_name: dict[str, int]) -> int | None:
    """The one reference op of its kind whose name a target op bears, unless only one of the two
    has the bias in it."""
    target, reference = work.graphs
    op = target.ops[position]
    if op.type.endswith("Gemm"):
        return None  # The bias is in it: it is more than the product it bears the name of.
    kind = target.classes[position]
    namesakes = [by_name[name] for name in {op.key.op, *op.origins} & by_name.keys()]
    same_kind = [namesake for namesake in namesakes if reference.classes[namesake] == kind]
    if len(same_kind) != 1:
        return None
    # Nor is a product whose bias comes later the op that has it in it.
    is_bare = position in target.completed
    return None if is_bare and same_kind[0] not in reference.completed else same_kind[0]


def _pair_outputs(work: Workspace, target: int, reference: int) -> None:
    """Pair the outputs of two ops by their index."""
    evidence = f"made from {work.graphs[REFERENCE].ops[reference].key.op}, same source line"
    for mine in work.graphs[TARGET].outputs(target):
        for theirs in work.graphs[REFERENCE].outputs(reference):
            if mine.index == theirs.index:
                work.pair(mine, theirs, evidence, 0.97, kind=EvidenceKind.ORIGIN)


def _by_name(targets: list[Unit], references: list[Unit]) -> list[tuple[Unit, Unit]] | None:
    """Pairs by name, if each target bears the name of one reference and no two of the same."""
    by_name = {name: unit for unit in references for name in unit.names}
    found = []
    for unit in targets:
        hits = {id(by_name[n]): by_name[n] for n in unit.names if n in by_name}
        if len(hits) != 1:
            return None
        found.append((unit, next(iter(hits.values()))))
    return found if len({id(r) for _, r in found}) == len(found) else None


def _bare_names(work: Workspace, groups: _Groups) -> None:
    """Origins of ops that say neither module nor line. The last of several is what the op
    completes; the others were fused into it."""
    wholes: dict[int, list[int]] = {}
    units: dict[int, Unit] = {}
    for call, mine in groups.target.items():
        if is_located(call) and groups.checked:
            continue
        for unit in mine:
            for at in unit.positions:
                names = work.graphs[TARGET].ops[at].origins
                hits = [u for n in names if (u := groups.by_name.get(n)) is not None]
                if not hits:
                    continue
                last = max(hits, key=lambda u: u.positions[-1])
                wholes.setdefault(id(last), []).append(at)
                units[id(last)] = last
    for which, positions in wholes.items():
        whole = units[which]
        made = Unit(whole.name, whole.kind, sorted(positions), set())
        complete(work, made, whole, f"made from {whole.name}", 0.95)
