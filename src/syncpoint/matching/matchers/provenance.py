"""Matcher: pairs ops by recorded provenance (original node names, module and source line of the
call), checked by operands, order and equal values.

Targets that were made from a torch program record the names of its nodes, the module path and the
source line. The names may come from another form of the program (for example decomposed), in which
`view_1` is another op. So a name counts only with the same module and line, and if a line calls
several ops of one kind, the names must cover all of them. If names do not help, the call does:
module, line, kind, and order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from syncpoint.matching.evidence.lowered_ops import LoweredOp, pair_completed_op
from syncpoint.matching.evidence.numbered_modules import find_module_names
from syncpoint.matching.evidence.source_lines import Call, are_nested, is_located, source_call_of
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import ACTIVATIONS, TRANSPARENT, class_of_name, op_class
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace

_MAX_NAME_CHECKS = 256
"""Maximum number of names with other values that are looked for elsewhere."""
_MAX_NAMESAKES = 64
_MIN_SHIFTED_NAMES = 3
"""Names of two ops may be exchanged; more are names of another form of the program."""


_Group = tuple[list[LoweredOp], list[LoweredOp]]
"""Ops of one kind that one line calls, of the target and of the reference."""


class ProvenanceMatcher:
    """Pairs ops by their origins and source lines."""

    name = "provenance"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair calls that both sides record, then bare names if no checked name was wrong."""
        if not any(op.origins or op.source for op in matching.target.ops):
            return ()
        work = Workspace.of(matching)
        groups = _OpsByCall(work)
        if _have_same_ops(work):
            return ()
        views: list[_Group] = []
        for call, targets in groups.target.items():
            references = groups.reference.get(call)
            if references:
                views += _pair_call(work, targets, references)
            _pair_nested_calls(work, groups, call, targets)
        root_partners = {
            work.graphs[TARGET].root(slot): work.graphs[REFERENCE].root(other)
            for slot, other in work.to_reference.items()
        }
        for group in views:
            if not _do_operands_contradict(work, *group, root_partners):
                _pair_in_order(work, *group)
        if groups.trusted:
            _pair_bare_names(work, groups)
        return ()


class _OpsByCall:
    """The lowered ops of both sides by their source call."""

    def __init__(self, work: Workspace) -> None:
        self.target = _group_by_call(
            work.graphs[TARGET], merges=True, modules=find_module_names(work)
        )
        self.reference = _group_by_call(work.graphs[REFERENCE], merges=False)
        self.by_name: dict[str, LoweredOp | None] = {}
        self.calls: dict[str, Call] = {}
        for call, lowered_ops in self.reference.items():
            for lowered in lowered_ops:
                for name in lowered.names:
                    # A name of several ops is no evidence.
                    self.by_name[name] = None if name in self.by_name else lowered
                    self.calls[name] = call
        agreeing = differing = 0
        for call, lowered_ops in self.target.items():
            if not is_located(call):
                continue
            for name in {n for lowered in lowered_ops for n in lowered.names} & self.calls.keys():
                if is_located(self.calls[name]):
                    is_same = self.calls[name] == call or are_nested(self.calls[name], call)
                    agreeing += is_same
                    differing += not is_same
        self.trusted = differing == 0
        """Whether every name that can be checked is that of the same op on both sides."""
        self.checked = agreeing


def _group_by_call(
    graph: SlotGraph, merges: bool, modules: Mapping[str, str] = MappingProxyType({})
) -> dict[Call, list[LoweredOp]]:
    """Group ops by call. With `merges`, ops of one call and origin are one lowered op."""
    by_call: dict[Call, list[LoweredOp]] = {}
    last: dict[tuple[Call, str], LoweredOp] = {}
    for position, op in enumerate(graph.ops):
        call = source_call_of(op, modules)
        name = op.origins[-1] if op.origins and merges else op.key.op
        names = {*op.origins} if merges else {op.key.op, *op.origins}
        lowered = last.get((call, name)) if merges else None
        if lowered is None:
            kind = (class_of_name(name) if merges else "") or op_class(op.type)
            lowered = last[call, name] = LoweredOp(name, kind, [], set())
            by_call.setdefault(call, []).append(lowered)
        lowered.positions.append(position)
        lowered.names |= names
    return by_call


def _pair_nested_calls(
    work: Workspace, groups: _OpsByCall, call: Call, lowered_ops: list[LoweredOp]
) -> None:
    """Pair ops that were fused into an op of an enclosing or inner module, such as the activation
    of a sum or of a batch norm, and record the call of that op."""
    for lowered in lowered_ops:
        # Its own name is no origin.
        reference = groups.by_name.get(lowered.name) if lowered.name in lowered.names else None
        if reference is not None and are_nested(groups.calls[lowered.name], call):
            pair_completed_op(
                work, lowered, reference, f"made from {reference.name}, same source line", 0.95
            )


def _have_same_ops(work: Workspace) -> bool:
    """Whether two captures have the same ops; then the matcher of names pairs them better."""
    target_graph, reference_graph = work.graphs
    return len(target_graph.ops) == len(reference_graph.ops) and all(
        a.key == b.key and a.type == b.type and a.module == b.module
        for a, b in zip(target_graph.ops, reference_graph.ops, strict=True)
    )


def _pair_call(
    work: Workspace, targets: list[LoweredOp], references: list[LoweredOp]
) -> list[_Group]:
    """Pair the ops that one line of one module calls, kind by kind. Return the groups of views that
    only their order tells apart: what they read must be paired first."""
    views: list[_Group] = []
    if not is_located(source_call_of(work.graphs[TARGET].ops[targets[0].positions[0]])):
        return views
    _pair_same_form(work, targets, references)
    for kind in dict.fromkeys(lowered.kind for lowered in targets):
        targets_of_kind = [lowered for lowered in targets if lowered.kind == kind]
        references_of_kind = [lowered for lowered in references if lowered.kind == kind]
        if not references_of_kind:
            continue
        named = _match_by_name(targets_of_kind, references_of_kind)
        if named is not None:
            for t, r in named:
                pair_completed_op(work, t, r, f"made from {r.name}, same source line", 0.97)
        elif len(targets_of_kind) == len(references_of_kind):
            if len(targets_of_kind) > 1 and kind in TRANSPARENT and _have_edges(work):
                views.append((targets_of_kind, references_of_kind))
            else:
                _pair_in_order(work, targets_of_kind, references_of_kind)
    return views


def _pair_in_order(work: Workspace, targets: list[LoweredOp], references: list[LoweredOp]) -> None:
    """Pair equally many ops of one kind that one line calls, in their order."""
    is_single = len(targets) == 1
    evidence = "source line and kind" + ("" if is_single else " and order")
    for t, r in zip(targets, references, strict=True):
        pair_completed_op(work, t, r, evidence, 0.95 if is_single else 0.85, EvidenceKind.OTHER)


def _do_operands_contradict(
    work: Workspace,
    targets: list[LoweredOp],
    references: list[LoweredOp],
    root_partners: Mapping[Slot, Slot],
) -> bool:
    """Whether a view reads a tensor that is paired with another than its partner in order reads."""
    target_graph, reference_graph = work.graphs
    for target, reference in zip(targets, references, strict=True):
        reads = target_graph.reads[target.positions[0]][:1]
        roots = (target_graph.root(slot) for slot in reads)
        expected = {root_partners[root] for root in roots if root in root_partners}
        other_reads = reference_graph.reads[reference.positions[-1]][:1]
        if expected and not expected & {reference_graph.root(slot) for slot in other_reads}:
            return True
    return False


def _have_edges(work: Workspace) -> bool:
    return all(graph.has_edges for graph in work.graphs)


def _pair_same_form(
    work: Workspace, target_ops: list[LoweredOp], reference_ops: list[LoweredOp]
) -> None:
    """Pair ops of one kind by name if the reference was lowered from the same program, so that
    several of its ops have one origin."""
    graph = work.graphs[REFERENCE]
    candidates = [position for lowered in reference_ops for position in lowered.positions]
    origins = [origin for position in candidates for origin in graph.ops[position].origins[-1:]]
    if len(set(origins)) == len(origins):
        return
    by_name = {graph.ops[position].key.op: position for position in candidates}
    targets: dict[int, list[int]] = {}
    for position in (position for lowered in target_ops for position in lowered.positions):
        reference = _find_same_op(work, position, by_name)
        if reference is not None:
            targets.setdefault(reference, []).append(position)
    for reference, positions in targets.items():
        if len(positions) == 1:
            _pair_outputs(work, positions[0], reference)


def _find_same_op(work: Workspace, position: int, by_name: dict[str, int]) -> int | None:
    """The only reference op of the same kind whose name a target op has, unless only one of the
    two includes the bias."""
    target, reference = work.graphs
    op = target.ops[position]
    if op.type.endswith("Gemm"):
        return None  # It includes the bias: it is more than the product whose name it has.
    kind = target.classes[position]
    namesakes = [by_name[name] for name in {op.key.op, *op.origins} & by_name.keys()]
    same_kind = [namesake for namesake in namesakes if reference.classes[namesake] == kind]
    if len(same_kind) != 1:
        return None
    # A product whose bias is added later is not the op that includes the bias.
    is_bare = position in target.completed
    return None if is_bare and same_kind[0] not in reference.completed else same_kind[0]


def _pair_outputs(work: Workspace, target: int, reference: int) -> None:
    """Pair the outputs of two ops by their index."""
    evidence = f"made from {work.graphs[REFERENCE].ops[reference].key.op}, same source line"
    for target_slot in work.graphs[TARGET].outputs(target):
        for reference_slot in work.graphs[REFERENCE].outputs(reference):
            if target_slot.index == reference_slot.index:
                work.pair(target_slot, reference_slot, evidence, 0.97, kind=EvidenceKind.ORIGIN)


def _match_by_name(
    targets: list[LoweredOp], references: list[LoweredOp]
) -> list[tuple[LoweredOp, LoweredOp]] | None:
    """Pairs by name if each target has the name of exactly one reference, all different.

    An op that was fused from several references, such as one split for three slices, has no partner
    if each of these is the partner of another target.
    """
    by_name = {name: lowered for lowered in references for name in lowered.names}
    matched, fused_from = [], []
    for lowered in targets:
        candidates = {id(by_name[name]): by_name[name] for name in lowered.names if name in by_name}
        own = by_name.get(lowered.name) if lowered.name in lowered.names else None
        if own is not None or len(candidates) == 1:
            matched.append((lowered, own or next(iter(candidates.values()))))
        else:
            fused_from.append(set(candidates))
    partners = {id(reference) for _, reference in matched}
    is_accounted = all(candidates and candidates <= partners for candidates in fused_from)
    return matched if len(partners) == len(matched) and is_accounted else None


def _pair_bare_names(work: Workspace, groups: _OpsByCall) -> None:
    """Pair ops by origin if they record neither module nor line. The last of several origins is
    the op that is completed; the others were fused into it.

    If no name can be checked by module and line, values check them: names of another form of the
    program, in which numbers are shifted, count only where the values are equal.
    """
    positions_by_reference: dict[int, list[int]] = {}
    references: dict[int, LoweredOp] = {}
    for call, lowered_ops in groups.target.items():
        if is_located(call) and groups.checked:
            continue
        for lowered in lowered_ops:
            for position in lowered.positions:
                names = work.graphs[TARGET].ops[position].origins
                candidates = [
                    candidate
                    for name in names
                    if (candidate := groups.by_name.get(name)) is not None
                ]
                if not candidates:
                    continue
                last = max(candidates, key=lambda candidate: candidate.positions[-1])
                positions_by_reference.setdefault(id(last), []).append(position)
                references[id(last)] = last
    merged_ops = [
        (
            LoweredOp(references[key].name, references[key].kind, sorted(positions), set()),
            references[key],
        )
        for key, positions in positions_by_reference.items()
    ]
    needs_equal_values = not groups.checked and _are_names_shifted(work, merged_ops)
    for target, reference in merged_ops:
        if not groups.checked and _are_other_ops(work, target, reference):
            continue
        if not needs_equal_values or _have_equal_values(work, target, reference):
            pair_completed_op(work, target, reference, f"made from {reference.name}", 0.95)


def _are_other_ops(work: Workspace, target: LoweredOp, reference: LoweredOp) -> bool:
    """Whether two ops of one name, which nothing checks, have results of different size although
    ops of their kind are never merged: then they have the number of each other's name."""
    slots = [s for p in target.positions for s in work.graphs[TARGET].outputs(p)]
    others = work.graphs[REFERENCE].outputs(reference.positions[-1])
    counts = {work.graphs[REFERENCE].count(other) for other in others}
    return reference.kind in ACTIVATIONS | TRANSPARENT and not any(
        work.graphs[TARGET].count(slot) in counts for slot in slots
    )


def _are_names_shifted(work: Workspace, named_ops: list[tuple[LoweredOp, LoweredOp]]) -> bool:
    """Whether several target ops hold the values of another reference op of their kind than their
    names say. After an error values are those of no op, and names stay the best evidence."""
    by_kind: dict[tuple[str, int], list[Slot]] = {}
    graph = work.graphs[REFERENCE]
    for _, reference in named_ops:
        for slot in graph.outputs(reference.positions[-1])[:1]:
            by_kind.setdefault((reference.kind, graph.count(slot)), []).append(slot)
    shifted_count = 0
    checks_left = _MAX_NAME_CHECKS
    for target, reference in named_ops:
        if _have_equal_values(work, target, reference):
            continue
        outputs = [s for p in target.positions for s in work.graphs[TARGET].outputs(p)]
        for slot in outputs[-1:]:
            key = (reference.kind, work.graphs[TARGET].count(slot))
            namesakes = by_kind.get(key, ())[:_MAX_NAMESAKES]
            shifted_count += any(work.fingerprints.are_equal(slot, other) for other in namesakes)
        checks_left -= 1
        if shifted_count >= _MIN_SHIFTED_NAMES or not checks_left:
            break
    return shifted_count >= _MIN_SHIFTED_NAMES


def _have_equal_values(work: Workspace, target: LoweredOp, reference: LoweredOp) -> bool:
    """Whether an output of the target equals the output of the reference, as far as known."""
    outputs = [s for p in target.positions for s in work.graphs[TARGET].outputs(p)]
    references = work.graphs[REFERENCE].outputs(reference.positions[-1])
    return any(
        work.view_selector.find_best_view(slot, other)[0] <= work.fingerprints.tolerance
        for slot in outputs
        for other in references[:1]
        if work.graphs[TARGET].count(slot) == work.graphs[REFERENCE].count(other)
    )
