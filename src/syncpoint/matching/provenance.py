"""Provenance: what an op was made from, and the line of the user's code that called for it.

Targets made from a torch program carry the names of its nodes, the module path and the source
line. Those names may be of another form of the program than the reference's (decomposed, for
instance), where `view_1` is another op's name; so a name counts only beside the same module and
line, and where a line calls for several ops of one kind the names must account for all of them.
Where names do not help, the call does: module, line, kind, and which of several.

One reference op may have become several target ops. The tensor that completes it is paired;
those inside are listed as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from types import MappingProxyType

from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.instances import named_modules
from syncpoint.matching.kinds import TRANSPARENT, class_of_name, op_class
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Op

Call = tuple[str, str, int, str, str, int]
"""Graph, path and round, module, file and line: where the user's code calls for an op."""


_NUMBER = re.compile(r"(?P<stem>.+?)(?:_(?P<number>\d+))?")


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
        if groups.trusted:
            _bare_names(work, groups)
        return ()


class _Unit:
    """Ops of one side that stand for one op of the program they were made from."""

    def __init__(self, name: str, kind: str, positions: list[int], names: set[str]) -> None:
        self.name = name
        self.kind = kind
        self.positions = positions
        self.names = names


class _Groups:
    """The units of both sides by the call they belong to."""

    def __init__(self, work: Workspace) -> None:
        self.target = _units(work.graphs[TARGET], several=True, modules=named_modules(work))
        self.reference = _units(work.graphs[REFERENCE], several=False)
        self.by_name: dict[str, _Unit | None] = {}
        where: dict[str, Call] = {}
        for call, units in self.reference.items():
            for unit in units:
                for name in unit.names:
                    # A name that several ops bear tells nothing.
                    self.by_name[name] = None if name in self.by_name else unit
                    where[name] = call
        agree = differ = 0
        for call, units in self.target.items():
            if not _known(call):
                continue
            for name in {n for unit in units for n in unit.names} & where.keys():
                if _known(where[name]):
                    agree += where[name] == call
                    differ += where[name] != call
        self.trusted = differ == 0
        """Whether every name that can be checked is the same op's on both sides."""
        self.checked = agree


def _units(
    graph: Graph, several: bool, modules: Mapping[str, str] = MappingProxyType({})
) -> dict[Call, list[_Unit]]:
    found: dict[Call, list[_Unit]] = {}
    last: dict[tuple[Call, str], _Unit] = {}
    for at, op in enumerate(graph.ops):
        call = call_of(op, modules)
        name = op.origins[-1] if op.origins and several else op.key.op
        names = {*op.origins} if several else {op.key.op, *op.origins}
        unit = last.get((call, name)) if several else None
        if unit is None:
            kind = (class_of_name(name) if several else "") or op_class(op.type)
            unit = last[call, name] = _Unit(name, kind, [], set())
            found.setdefault(call, []).append(unit)
        unit.positions.append(at)
        unit.names |= names
    return found


def call_of(op: Op, modules: Mapping[str, str] = MappingProxyType({})) -> Call:
    """Where the user's code calls for an op; without module and file where it is not known."""
    key = op.key
    module = modules.get(op.module, op.module)
    if not op.source:
        return (key.graph, key.path, key.iteration, module, "", 0)
    frame = op.source[-1]
    return (key.graph, key.path, key.iteration, module, PurePath(frame.file).name, frame.line)


def _known(call: Call) -> bool:
    return bool(call[3] or call[4])


def _same_names(work: Workspace) -> bool:
    """Two captures of one program, op for op: what they are called says it all, and is said
    better by the matcher of names."""
    mine, theirs = work.graphs
    return len(mine.ops) == len(theirs.ops) and all(
        a.key == b.key and a.type == b.type and a.module == b.module
        for a, b in zip(mine.ops, theirs.ops, strict=True)
    )


def _call(work: Workspace, mine: list[_Unit], theirs: list[_Unit]) -> None:
    """Pair what one line of one module called for, kind by kind."""
    if not _known(call_of(work.graphs[TARGET].ops[mine[0].positions[0]])):
        return
    for kind in dict.fromkeys(unit.kind for unit in mine):
        targets = [u for u in mine if u.kind == kind]
        references = [u for u in theirs if u.kind == kind]
        if not references:
            continue
        named = _by_name(targets, references)
        if named is not None:
            for t, r in named:
                _complete(work, t, r, f"made from {r.name}, same source line", 0.97)
        elif len(targets) == len(references):
            single = len(targets) == 1
            evidence = "source line and kind" + ("" if single else " and order")
            for t, r in zip(targets, references, strict=True):
                _complete(work, t, r, evidence, 0.95 if single else 0.85)


def _by_name(targets: list[_Unit], references: list[_Unit]) -> list[tuple[_Unit, _Unit]] | None:
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
    units: dict[int, _Unit] = {}
    for call, mine in groups.target.items():
        if _known(call) and groups.checked:
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
        made = _Unit(whole.name, whole.kind, sorted(positions), set())
        _complete(work, made, whole, f"made from {whole.name}", 0.95)


def _complete(
    work: Workspace, target: _Unit, reference: _Unit, evidence: str, confidence: float
) -> None:
    """Pair the tensor that completes a reference op; the ones before it are inside it."""
    mine, theirs = work.graphs
    wanted = theirs.outputs(reference.positions[-1])
    if not wanted:
        return
    if len(wanted) > 1 and len(target.positions) > 1:
        _several(work, target, reference, wanted, evidence, confidence)
        return
    ends = [_Ending(work, target, reference, at, wanted) for at in target.positions]
    whole = [e for e in ends if e.fits and e.leaves]
    if not whole and len(ends) == 1 and op_class(mine.ops[ends[0].at].type) == reference.kind:
        whole = ends
    if not whole:
        return
    chosen = max(whole, key=lambda end: (end.same_shape, end.computes, end.at))
    if sum(work.pair(s, w, evidence, confidence) for s, w in chosen.pairs):
        for inner in target.positions:
            if inner != chosen.at:
                for slot in mine.outputs(inner):
                    work.explain(TARGET, slot, f"inside {reference.name}", final=True)


def _several(
    work: Workspace,
    target: _Unit,
    reference: _Unit,
    wanted: list[Slot],
    evidence: str,
    confidence: float,
) -> None:
    """An op of several outputs that became several ops, as unbind becomes slices: those whose
    values leave the unit are its outputs, where there are as many of them. Their numbers tell
    which is which (`getitem`, `getitem_1`); order does not, since runtimes reorder branches."""
    mine, theirs = work.graphs
    group = set(target.positions)
    leaving = [
        slot
        for at in target.positions
        for slot in mine.outputs(at)
        if any(c not in group for c in mine.consumers.get(slot, ())) or not mine.consumers.get(slot)
    ]
    numbered = [_NUMBER.fullmatch(slot.op.op) for slot in leaving]
    stems = {found["stem"] for found in numbered if found}
    if len(leaving) != len(wanted) or len(stems) != 1 or None in numbered:
        return
    order = [int(found["number"] or 0) if found else 0 for found in numbered]
    leaving = [slot for _, slot in sorted(zip(order, leaving, strict=True), key=lambda p: p[0])]
    pairs = list(zip(leaving, wanted, strict=True))
    if any(mine.count(s) != theirs.count(w) for s, w in pairs):
        return
    paired = [work.pair(s, w, f"{evidence} and number", confidence - 0.05) for s, w in pairs]
    if any(paired):
        for at in target.positions:
            for slot in mine.outputs(at):
                if slot not in leaving:
                    work.explain(TARGET, slot, f"inside {reference.name}", final=True)


class _Ending:
    """An op of a unit as the one that completes the reference op."""

    def __init__(
        self, work: Workspace, target: _Unit, reference: _Unit, at: int, wanted: list[Slot]
    ) -> None:
        mine, theirs = work.graphs
        slots = mine.outputs(at)
        self.at = at
        if len(wanted) > 1 or len(slots) > 1:
            self.pairs = [(s, w) for s in slots for w in wanted if s.index == w.index]
        else:
            self.pairs = list(zip(slots, wanted, strict=False))
        group = set(target.positions)
        readers = [mine.consumers.get(s, []) for s in slots]
        self.leaves = any(not r or any(c not in group for c in r) for r in readers)
        """Whether its value is read outside the unit, or by nobody."""
        self.fits = bool(self.pairs) and all(
            mine.count(s) == theirs.count(w) for s, w in self.pairs
        )
        self.same_shape = all(mine.shape(s) == theirs.shape(w) for s, w in self.pairs)
        self.computes = mine.classes[at] not in TRANSPARENT
        """A cast at the end that others do not read is not what the op made."""
