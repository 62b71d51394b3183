"""Matcher: pairs ops by module path and type, repeated ones by order between certain pairs; ops of
dumps by identical sets of numbered names.

An op is identified by its module and its type. If one op on each side has them, the two are a pair.
If several have them, their order between certain pairs decides. A generated name such as `relu_1`
says no more than the order, since one missing op shifts all that follow. Ops that two equally good
alignments pair differently are ambiguous and stay unpaired.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from syncpoint.matching.evidence.wrapper_prefixes import unwrap_names
from syncpoint.matching.op_kinds import TRANSPARENT, op_class, op_kind
from syncpoint.matching.protocol import Matching, Side, SyncPoint
from syncpoint.matching.sequence_alignment import align, longest_rising_chain
from syncpoint.matching.workspace import Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Op, OpKey, Role

_AMBIGUOUS_ORDER = Reason(
    ReasonCode.AMBIGUOUS,
    "several ops of this kind, and order does not tell which",
    cure="pin them with a map",
)
_NUMBERED = re.compile(r"(.+?)_\d+")

Token = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _NamedOp:
    """An op with the token by which it is aligned."""

    key: OpKey
    token: Token
    shape: tuple[int, ...]
    has_type: bool
    """Whether its module and type are known; if not, there is only its name."""
    reference_key: OpKey
    """Its key with the name that the reference uses."""
    is_wrapped: bool
    """Whether that name differs from its own, since one side wraps the model in another."""


Pairs = list[tuple[_NamedOp, _NamedOp]]
_OpsBySide = tuple[set[OpKey], set[OpKey]]
"""Ops of the target and of the reference."""


class NameMatcher:
    """Pairs ops by module path, type and order."""

    name = "names"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair unique names first, then by order between them: first equal shapes, then any."""
        if _has_modules_on_one_side(matching) and _has_edges(matching):
            # One side records no modules: there "" is not the top module, and the only op of a kind
            # in the top module of the other side is no partner. Edges are better evidence.
            for key in _ops_with_equal_names(matching):
                yield from matching.pair_ops(key, key, "name and type", 0.9)
            return
        target, reference = _unpaired_ops(matching)
        pairs, ambiguous = _pair_by_name_and_order(matching, target, reference)
        _explain_ambiguous(matching, ambiguous)
        yield from _sync_points(matching, target, pairs)


def _has_modules(side: Side) -> bool:
    return any(op.module for op in side.ops)


def _has_modules_on_one_side(matching: Matching) -> bool:
    return _has_modules(matching.target) != _has_modules(matching.reference)


def _has_edges(matching: Matching) -> bool:
    """Whether the ops of both sides record their inputs."""
    sides = (matching.target, matching.reference)
    return all(any(op.inputs for op in side.ops) for side in sides)


def _unpaired_ops(matching: Matching) -> tuple[list[_NamedOp], list[_NamedOp]]:
    """The ops of both sides with outputs that no matcher has paired yet."""
    sides = (matching.target, matching.reference)
    # A dump has neither modules nor types: then both sides have only names.
    have_types = all(any(op.type for op in side.ops) for side in sides)
    target_locations, reference_locations = (
        {_location(op, have_types) for op in side.ops} for side in sides
    )
    names = unwrap_names(target_locations, reference_locations)
    target = [_identify_op(op, matching.target, have_types, names) for op in matching.target.ops]
    reference = [
        _identify_op(op, matching.reference, have_types, {}) for op in matching.reference.ops
    ]
    return (
        [op for op in target if _is_free(matching, op, "target")],
        [op for op in reference if _is_free(matching, op, "reference")],
    )


def _pair_by_name_and_order(
    matching: Matching, target: list[_NamedOp], reference: list[_NamedOp]
) -> tuple[Pairs, _OpsBySide]:
    """Pair unique names and the ops in order between them; return also the ambiguous ops."""
    pairs = _pair_unique_tokens(target, reference) + _pair_equal_names(target, reference)
    # Without modules there is only the order of ops of one type, which is not enough for a pair of
    # tensors of different size.
    has_modules = _has_modules(matching.target) or _has_modules(matching.reference)
    last_label = _token_of if has_modules or not _has_edges(matching) else _token_with_size
    for label in (_token_with_shape, last_label):
        pairs, ambiguous = _align_between_pairs(target, reference, pairs, label)
    pairs, doubtful = _drop_conflicting_names(pairs, target, reference)
    return pairs, (ambiguous[0] | doubtful[0], ambiguous[1] | doubtful[1])


def _explain_ambiguous(matching: Matching, ambiguous: _OpsBySide) -> None:
    """Set the reason of ops that could be paired in several ways."""
    runs = (("target", matching.target), ("reference", matching.reference))
    for (side, run), keys in zip(runs, ambiguous, strict=True):
        for tensor in (tensor for key in keys for tensor in run.outputs[key]):
            matching.explain(side, tensor.key, _AMBIGUOUS_ORDER)


def _sync_points(matching: Matching, target: list[_NamedOp], pairs: Pairs) -> Iterator[SyncPoint]:
    """Pair the tensors of paired ops, with a confidence from names and operands."""
    by_target = {t.key: r.key for t, r in pairs}
    by_reference = {r.key: t.key for t, r in pairs}
    counts = Counter(op.token for op in target)
    work = Workspace.of(matching)
    has_edges = _has_edges(matching)
    for t, r in pairs:
        if t.has_type and work.is_denied(t.key, r.key):
            continue
        if has_edges and t.has_type and t.key != r.key and op_class(t.token[-1]) in TRANSPARENT:
            continue  # what views read tells them apart better than their order
        is_unique = counts[t.token] == 1 or (not t.has_type and t.reference_key == r.reference_key)
        evidence, confidence = _evidence_of(t, is_unique)
        if not is_unique and _operands_disagree(t.key, r.key, matching, by_target, by_reference):
            evidence += "; operands disagree"
            confidence = 0.5
        yield from matching.pair_ops(t.key, r.key, evidence, confidence)


def _evidence_of(target: _NamedOp, is_unique: bool) -> tuple[str, float]:
    """The evidence for a pair by name, and the confidence."""
    evidence = "module path and type" if target.has_type else "name"
    if not is_unique:
        evidence += " and order"
    if target.is_wrapped:
        evidence += ", in a wrapper"
    return evidence, 0.98 if is_unique else 0.9


def _ops_with_equal_names(matching: Matching) -> list[OpKey]:
    """Ops with equal names if one tool wrote both sides and all ops of their type have equal names:
    then no op is missing whose number another could have."""
    sides = (matching.target, matching.reference)
    formats = [side.run.info.options.get("format") for side in sides]
    if formats[0] is None or formats[0] != formats[1]:
        return []
    keys_by_type: list[dict[str, list[OpKey]]] = [{}, {}]
    for side, by_type in zip(sides, keys_by_type, strict=True):
        for op in side.ops:
            by_type.setdefault(op.type, []).append(op.key)
    target_keys, reference_keys = keys_by_type
    return [
        key
        for op_type, keys in target_keys.items()
        if keys == reference_keys.get(op_type)
        for key in keys
    ]


def _is_free(matching: Matching, op: _NamedOp, side: str) -> bool:
    if side == "target":
        return any(matching.free_target(t.key) for t in matching.target.outputs[op.key])
    return any(matching.free_reference(t.key) for t in matching.reference.outputs[op.key])


def _location(op: Op, have_types: bool) -> str:
    """The module of an op, or its name if module and type are unknown."""
    return op.module if have_types and op.type else op.key.op


def _identify_op(op: Op, side: Side, have_types: bool, names: Mapping[str, str]) -> _NamedOp:
    first = side.outputs[op.key][0]
    if have_types and op.type:
        module = names.get(op.module, op.module)
        token = (op.key.graph, op.key.path, module, op_kind(op.type))
        return _NamedOp(
            key=op.key,
            token=token,
            shape=first.shape,
            has_type=True,
            reference_key=op.key,
            is_wrapped=module != op.module,
        )
    # There is only the name. Its number is an order, not an identity.
    full_name = names.get(op.key.op, op.key.op)
    numbered = _NUMBERED.fullmatch(full_name)
    name = numbered[1] if numbered else full_name
    reference_key = replace(op.key, op=full_name)
    token = (op.key.graph, op.key.path, "", name)
    return _NamedOp(
        key=op.key,
        token=token,
        shape=first.shape,
        has_type=False,
        reference_key=reference_key,
        is_wrapped=full_name != op.key.op,
    )


def _pair_unique_tokens(target: list[_NamedOp], reference: list[_NamedOp]) -> Pairs:
    target_counts = Counter(op.token for op in target)
    reference_counts = Counter(op.token for op in reference)
    unique = {op.token: op for op in reference if reference_counts[op.token] == 1}
    return [
        (op, unique[op.token])
        for op in target
        if target_counts[op.token] == 1 and op.token in unique
    ]


def _pair_equal_names(target: list[_NamedOp], reference: list[_NamedOp]) -> Pairs:
    """Pair numbered names of dumps if both sides have exactly the same: a container may store them
    in another order than that of execution, and no name is missing."""
    groups: dict[Token, tuple[dict[str, _NamedOp], dict[str, _NamedOp]]] = {}
    for side, ops in enumerate((target, reference)):
        for op in ops:
            if not op.has_type:
                groups.setdefault(op.token, ({}, {}))[side][str(op.reference_key)] = op
    pairs = []
    for targets, references in groups.values():
        if len(targets) > 1 and targets.keys() == references.keys():
            pairs += [(targets[name], references[name]) for name in targets]
    return pairs


def _drop_conflicting_names(
    pairs: Pairs, target: list[_NamedOp], reference: list[_NamedOp]
) -> tuple[Pairs, _OpsBySide]:
    """Drop pairs of dumps by order that their names contradict: `act_1` with `act_0` while the
    other side has an `act_1` too."""
    target_keys = {op.reference_key for op in target}
    reference_keys = {op.reference_key for op in reference}
    consistent, doubtful = [], (set[OpKey](), set[OpKey]())
    for t, r in pairs:
        has_namesake = t.reference_key in reference_keys or r.reference_key in target_keys
        has_types = t.has_type or r.has_type
        if not has_types and t.reference_key != r.reference_key and has_namesake:
            doubtful[0].add(t.key)
            doubtful[1].add(r.key)
        else:
            consistent.append((t, r))
    return consistent, doubtful


def _align_between_pairs(
    target: list[_NamedOp],
    reference: list[_NamedOp],
    pairs: Pairs,
    label: Callable[[_NamedOp], Token],
) -> tuple[Pairs, _OpsBySide]:
    """Align the ops between the pairs so far; return also the ambiguous ops."""
    position_t = {op.key: i for i, op in enumerate(target)}
    position_r = {op.key: i for i, op in enumerate(reference)}
    anchors = longest_rising_chain(sorted((position_t[t.key], position_r[r.key]) for t, r in pairs))
    paired_t = {t.key for t, _ in pairs}
    paired_r = {r.key for _, r in pairs}
    aligned = list(pairs)
    ambiguous: _OpsBySide = (set(), set())
    last = (-1, -1)
    for anchor in [*anchors, (len(target), len(reference))]:
        targets = [op for op in target[last[0] + 1 : anchor[0]] if op.key not in paired_t]
        references = [op for op in reference[last[1] + 1 : anchor[1]] if op.key not in paired_r]
        last = anchor
        if not targets or not references:
            continue
        sure, unsure = align([label(op) for op in targets], [label(op) for op in references])
        aligned.extend((targets[i], references[j]) for i, j in sure)
        for i, j in unsure:
            ambiguous[0].add(targets[i].key)
            ambiguous[1].add(references[j].key)
    aligned_t = {t.key for t, _ in aligned}
    aligned_r = {r.key for _, r in aligned}
    return aligned, (ambiguous[0] - aligned_t, ambiguous[1] - aligned_r)


def _token_with_shape(op: _NamedOp) -> Token:
    return (*op.token, str(op.shape))


def _token_with_size(op: _NamedOp) -> Token:
    return (*op.token, str(prod(op.shape)))


def _token_of(op: _NamedOp) -> Token:
    return op.token


def _operands_disagree(
    target: OpKey,
    reference: OpKey,
    matching: Matching,
    by_target: dict[OpKey, OpKey],
    by_reference: dict[OpKey, OpKey],
) -> bool:
    """Whether two ops read, at one index, tensors that are paired with others."""
    target_op = matching.target.run.op(target)
    reference_op = matching.reference.run.op(reference)
    if target_op is None or reference_op is None:
        return False
    for target_edge, reference_edge in zip(target_op.inputs, reference_op.inputs, strict=False):
        if target_edge.role is not Role.OUTPUT or reference_edge.role is not Role.OUTPUT:
            continue
        if (
            target_edge.op in by_target
            and reference_edge.op in by_reference
            and by_target[target_edge.op] != reference_edge.op
        ):
            return True
    return False
