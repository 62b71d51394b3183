"""Names: module path, op type and the order of calls.

An op is known by the module that made it and by its type. Where that is said of one op on each
side, they are a pair. Where it is said of several, their order between surer pairs decides, and
only as far as order can: an auto-numbered name such as `relu_1` is no more than order, since one
missing op shifts all that follow. What two equally good alignments pair differently is ambiguous
and stays unpaired.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from syncpoint.matching.evidence.wrapper_prefixes import unwrapped
from syncpoint.matching.op_kinds import op_kind
from syncpoint.matching.protocol import Matching, Side, SyncPoint
from syncpoint.matching.sequence_alignment import align, longest_rising_chain
from syncpoint.matching.workspace import Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Op, OpKey, Role

_SEVERAL = Reason(
    ReasonCode.AMBIGUOUS,
    "several ops of this kind, and order does not tell which",
    cure="pin them with a map",
)
_NUMBERED = re.compile(r"(.+?)_\d+")

Token = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Known:
    """An op as this matcher sees it."""

    key: OpKey
    token: Token
    shape: tuple[int, ...]
    typed: bool
    """Whether it is known by module and type; else its name is all there is."""
    said: OpKey
    """Its key, named as the reference would."""
    wrapped: bool
    """Whether that is another name than its own: one side has the model inside another."""


Pairs = list[tuple[_Known, _Known]]
_OpsBySide = tuple[set[OpKey], set[OpKey]]
"""Ops of the target and of the reference."""


class NameMatcher:
    """Pairs ops by module path, type and order."""

    name = "names"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Unique names first, then order between them; first with equal shapes, then without."""
        if _has_modules_on_one_side(matching) and _has_edges(matching):
            # One side does not know its modules: there "" is not the top, and an op that is the
            # only one of its kind at the top of the other side is nobody's twin. Edges tell more.
            for key in _named_by_one_tool(matching):
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
    """Whether the ops of both sides say what they read."""
    sides = (matching.target, matching.reference)
    return all(any(op.inputs for op in side.ops) for side in sides)


def _unpaired_ops(matching: Matching) -> tuple[list[_Known], list[_Known]]:
    """The ops of both sides with outputs that no matcher has paired yet."""
    sides = (matching.target, matching.reference)
    # A dump knows neither modules nor types: against it, names are all that both have.
    typed = all(any(op.type for op in side.ops) for side in sides)
    mine, theirs = ({_place(op, typed) for op in side.ops} for side in sides)
    inner = unwrapped(mine, theirs)
    target = [_known(op, matching.target, typed, inner) for op in matching.target.ops]
    reference = [_known(op, matching.reference, typed, {}) for op in matching.reference.ops]
    return (
        [k for k in target if _free(matching, k, "target")],
        [k for k in reference if _free(matching, k, "reference")],
    )


def _pair_by_name_and_order(
    matching: Matching, target: list[_Known], reference: list[_Known]
) -> tuple[Pairs, _OpsBySide]:
    """Pair unique names and what lies in order between them; also gives what stays ambiguous."""
    pairs = _unique(target, reference) + _same_names(target, reference)
    # Without modules the order of ops of one type is all there is: not enough for a pair of
    # tensors that cannot be equal.
    has_modules = _has_modules(matching.target) or _has_modules(matching.reference)
    loosest = _by_token if has_modules or not _has_edges(matching) else _by_size
    for label in (_by_shape, loosest):
        pairs, ambiguous = _between(target, reference, pairs, label)
    pairs, doubtful = _unless_names_disagree(pairs, target, reference)
    return pairs, (ambiguous[0] | doubtful[0], ambiguous[1] | doubtful[1])


def _explain_ambiguous(matching: Matching, ambiguous: _OpsBySide) -> None:
    """Say why ops that could be paired in several ways stay unpaired."""
    runs = (("target", matching.target), ("reference", matching.reference))
    for (side, run), keys in zip(runs, ambiguous, strict=True):
        for tensor in (tensor for key in keys for tensor in run.outputs[key]):
            matching.explain(side, tensor.key, _SEVERAL)


def _sync_points(matching: Matching, target: list[_Known], pairs: Pairs) -> Iterator[SyncPoint]:
    """Pair the tensors of paired ops, as surely as names and operands allow."""
    by_target = {t.key: r.key for t, r in pairs}
    by_reference = {r.key: t.key for t, r in pairs}
    counts = Counter(k.token for k in target)
    work = Workspace.of(matching)
    for t, r in pairs:
        if t.typed and work.denied(t.key, r.key):
            continue
        is_unique = counts[t.token] == 1 or (not t.typed and t.said == r.said)
        evidence, confidence = _evidence_of(t, is_unique)
        if not is_unique and _operands_disagree(t.key, r.key, matching, by_target, by_reference):
            evidence += "; operands disagree"
            confidence = 0.5
        yield from matching.pair_ops(t.key, r.key, evidence, confidence)


def _evidence_of(target: _Known, is_unique: bool) -> tuple[str, float]:
    """What speaks for a pair by name, and how surely."""
    evidence = "module path and type" if target.typed else "name"
    if not is_unique:
        evidence += " and order"
    if target.wrapped:
        evidence += ", in a wrapper"
    return evidence, 0.98 if is_unique else 0.9


def _named_by_one_tool(matching: Matching) -> list[OpKey]:
    """Ops that the tool which wrote both sides calls alike, where it calls all of their type so:
    then none is missing whose number the others could have taken."""
    sides = (matching.target, matching.reference)
    formats = [side.run.info.options.get("format") for side in sides]
    if formats[0] is None or formats[0] != formats[1]:
        return []
    names: list[dict[str, list[OpKey]]] = [{}, {}]
    for side, found in zip(sides, names, strict=True):
        for op in side.ops:
            found.setdefault(op.type, []).append(op.key)
    mine, theirs = names
    return [key for type, keys in mine.items() if keys == theirs.get(type) for key in keys]


def _free(matching: Matching, known: _Known, side: str) -> bool:
    if side == "target":
        return any(matching.free_target(t.key) for t in matching.target.outputs[known.key])
    return any(matching.free_reference(t.key) for t in matching.reference.outputs[known.key])


def _place(op: Op, typed: bool) -> str:
    """By what an op is known: its module, or its name where that is all there is."""
    return op.module if typed and op.type else op.key.op


def _known(op: Op, side: Side, typed: bool, inner: Mapping[str, str]) -> _Known:
    first = side.outputs[op.key][0]
    if typed and op.type:
        module = inner.get(op.module, op.module)
        token = (op.key.graph, op.key.path, module, op_kind(op.type))
        return _Known(
            key=op.key,
            token=token,
            shape=first.shape,
            typed=True,
            said=op.key,
            wrapped=module != op.module,
        )
    # The name is all there is. Its number is order, not identity.
    whole = inner.get(op.key.op, op.key.op)
    numbered = _NUMBERED.fullmatch(whole)
    name = numbered[1] if numbered else whole
    said = replace(op.key, op=whole)
    token = (op.key.graph, op.key.path, "", name)
    return _Known(
        key=op.key,
        token=token,
        shape=first.shape,
        typed=False,
        said=said,
        wrapped=whole != op.key.op,
    )


def _unique(target: list[_Known], reference: list[_Known]) -> Pairs:
    mine = Counter(k.token for k in target)
    theirs = Counter(k.token for k in reference)
    once = {k.token: k for k in reference if theirs[k.token] == 1}
    return [(k, once[k.token]) for k in target if mine[k.token] == 1 and k.token in once]


def _same_names(target: list[_Known], reference: list[_Known]) -> Pairs:
    """Numbered names of dumps, where both sides have exactly the same: containers may keep
    them in another order than they were made in, and nothing is missing that could shift them."""
    groups: dict[Token, tuple[dict[str, _Known], dict[str, _Known]]] = {}
    for side, known in enumerate((target, reference)):
        for k in known:
            if not k.typed:
                groups.setdefault(k.token, ({}, {}))[side][str(k.said)] = k
    pairs = []
    for mine, theirs in groups.values():
        if len(mine) > 1 and mine.keys() == theirs.keys():
            pairs += [(mine[name], theirs[name]) for name in mine]
    return pairs


def _unless_names_disagree(
    pairs: Pairs, target: list[_Known], reference: list[_Known]
) -> tuple[Pairs, _OpsBySide]:
    """Pairs of dumps by order whose names speak against it are no pairs: `act_1` with `act_0`
    while there is an `act_1` on the other side too."""
    mine, theirs = {k.said for k in target}, {k.said for k in reference}
    kept, doubtful = [], (set[OpKey](), set[OpKey]())
    for t, r in pairs:
        said = t.said, r.said
        known = said[0] in theirs or said[1] in mine
        if not t.typed and not r.typed and said[0] != said[1] and known:
            doubtful[0].add(t.key)
            doubtful[1].add(r.key)
        else:
            kept.append((t, r))
    return kept, doubtful


def _between(
    target: list[_Known],
    reference: list[_Known],
    pairs: Pairs,
    label: Callable[[_Known], Token],
) -> tuple[Pairs, _OpsBySide]:
    """Align what lies between the pairs found so far; also tells what stays ambiguous."""
    position_t = {k.key: i for i, k in enumerate(target)}
    position_r = {k.key: i for i, k in enumerate(reference)}
    anchors = longest_rising_chain(sorted((position_t[t.key], position_r[r.key]) for t, r in pairs))
    paired_t = {t.key for t, _ in pairs}
    paired_r = {r.key for _, r in pairs}
    found = list(pairs)
    ambiguous: _OpsBySide = (set(), set())
    last = (-1, -1)
    for anchor in [*anchors, (len(target), len(reference))]:
        mine = [k for k in target[last[0] + 1 : anchor[0]] if k.key not in paired_t]
        theirs = [k for k in reference[last[1] + 1 : anchor[1]] if k.key not in paired_r]
        last = anchor
        if not mine or not theirs:
            continue
        sure, unsure = align([label(k) for k in mine], [label(k) for k in theirs])
        found.extend((mine[i], theirs[j]) for i, j in sure)
        for i, j in unsure:
            ambiguous[0].add(mine[i].key)
            ambiguous[1].add(theirs[j].key)
    now_t = {t.key for t, _ in found}
    now_r = {r.key for _, r in found}
    return found, (ambiguous[0] - now_t, ambiguous[1] - now_r)


def _by_shape(known: _Known) -> Token:
    return (*known.token, str(known.shape))


def _by_size(known: _Known) -> Token:
    return (*known.token, str(prod(known.shape)))


def _by_token(known: _Known) -> Token:
    return known.token


def _operands_disagree(
    target: OpKey,
    reference: OpKey,
    matching: Matching,
    by_target: dict[OpKey, OpKey],
    by_reference: dict[OpKey, OpKey],
) -> bool:
    """Whether both read tensors that are paired, but not with each other."""
    mine = matching.target.run.op(target)
    theirs = matching.reference.run.op(reference)
    if mine is None or theirs is None:
        return False
    for a, b in zip(mine.inputs, theirs.inputs, strict=False):
        if a.role is not Role.OUTPUT or b.role is not Role.OUTPUT:
            continue
        if a.op in by_target and b.op in by_reference and by_target[a.op] != b.op:
            return True
    return False
