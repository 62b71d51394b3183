"""Matcher: pairs model inputs, model outputs, parameters and states by name (also without a
wrapper's prefix), by path, else by position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from syncpoint.errors import SyncpointError
from syncpoint.matching.evidence.wrapper_prefixes import unwrap_names
from syncpoint.matching.protocol import Matching, Side, SyncPoint
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Part, Role, Tensor

_MAX_ROUNDING = 2e-2
"""Relative difference of two tensors that are one in two precisions."""
_REALS = (Kind.FLOAT, Kind.INT, Kind.BOOL)
_BEFORE = (Role.STATE, 1)
"""Role and index of a state before the execution."""
_HIDDEN_STATE = "one side passes the state that the other one keeps"


class BoundaryMatcher:
    """Pairs the tensors at the boundary of the model."""

    name = "boundary"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair by name; all but parameters also by position if the counts agree."""
        for role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT, Role.PARAMETER, Role.STATE):
            target = [t for t in matching.target.others if t.key.role is role]
            reference = [t for t in matching.reference.others if t.key.role is role]
            if role in (Role.PARAMETER, Role.STATE):
                yield from _pair_by_inner_name(target, reference, role)
            if role is not Role.MODEL_OUTPUT:
                yield from _pair_by_name(target, reference, role)
            if role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT):
                yield from _pair_by_path(*_free_tensors(matching, target, reference), role)
            if role is Role.PARAMETER:
                continue
            free_targets, free_references = _free_tensors(matching, target, reference)
            if role is Role.STATE:
                yield from _pair_by_exported_name(free_targets, free_references)
                free_targets, free_references = _free_tensors(matching, target, reference)
            yield from _pair_by_position(matching, free_targets, free_references, role)
        yield from _pair_hidden_states(matching)


def _pair_by_name(target: list[Tensor], reference: list[Tensor], role: Role) -> Iterator[SyncPoint]:
    by_name = {(str(r.key.op), r.key.index, r.key.part): r for r in reference}
    if len(_numbered_constants(target)) != len(_numbered_constants(reference)):
        # Constants are numbered: one more or less shifts all names.
        target = [t for t in target if t not in _numbered_constants(target)]
    for tensor in target:
        partner = by_name.get((str(tensor.key.op), tensor.key.index, tensor.key.part))
        if partner is not None:
            yield SyncPoint(tensor.key, partner.key, f"{role} of the same name", confidence=1.0)


def _pair_by_inner_name(
    target: list[Tensor], reference: list[Tensor], role: Role
) -> Iterator[SyncPoint]:
    """Pair tensors of the same shape by name without the prefix of a wrapper on one side."""
    constants = {t.key for t in (*_numbered_constants(target), *_numbered_constants(reference))}
    by_name = {(r.key.op.op, r.key.index, r.key.part): r for r in reference}
    names = unwrap_names(
        {t.key.op.op for t in target if t.key not in constants},
        {r.key.op.op for r in reference if r.key not in constants},
        bare=False,
    )
    for tensor in target:
        name = names.get(tensor.key.op.op)
        partner = by_name.get((name, tensor.key.index, tensor.key.part)) if name else None
        if partner is not None and partner.shape == tensor.shape:
            yield SyncPoint(
                tensor.key, partner.key, f"{role} of the same name in a wrapper", confidence=0.97
            )


def _free_tensors(
    matching: Matching, target: list[Tensor], reference: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors of both sides that are not paired yet."""
    return (
        [t for t in target if matching.free_target(t.key)],
        [r for r in reference if matching.free_reference(r.key)],
    )


def _pair_by_exported_name(target: list[Tensor], reference: list[Tensor]) -> Iterator[SyncPoint]:
    """Pair states if one side has the buffer names of torch.export: `b_layers_0_cache` is
    `layers.0.cache`."""
    by_name: dict[tuple[str, int, Part], list[Tensor]] = {}
    for tensor in reference:
        plain = re.sub(r"\W", "_", tensor.key.op.op)
        by_name.setdefault((plain, tensor.key.index, tensor.key.part), []).append(tensor)
    for tensor in target:
        plain = re.sub(r"\W", "_", tensor.key.op.op)
        for name in (plain, plain.removeprefix("b_"), f"b_{plain}"):
            candidates = by_name.get((name, tensor.key.index, tensor.key.part), [])
            if len(candidates) == 1:
                evidence = "state of the same name, as torch.export writes it"
                yield SyncPoint(tensor.key, candidates[0].key, evidence, confidence=1.0)
                break


def _numbered_constants(tensors: list[Tensor]) -> list[Tensor]:
    """The constants that torch.export names by number."""
    return [t for t in tensors if t.key.op.op.startswith(("lifted_tensor_", "_tensor_constant"))]


def _pair_by_path(target: list[Tensor], reference: list[Tensor], role: Role) -> Iterator[SyncPoint]:
    """Pair model inputs or outputs by their path, such as `args[1]` or `out["logits"]`. A compiled
    graph may list them in another order."""
    by_path = {(r.name, r.key.part): r for r in reference if r.name}
    for tensor in target:
        partner = by_path.get((tensor.name, tensor.key.part))
        if partner is None or (role is Role.MODEL_INPUT and partner.shape != tensor.shape):
            continue  # `args[1]` is a position: without its first argument a side counts on
        yield SyncPoint(tensor.key, partner.key, f"{role} of the same path", confidence=1.0)


def _pair_by_position(
    matching: Matching, target: list[Tensor], reference: list[Tensor], role: Role
) -> Iterator[SyncPoint]:
    """Pair by position if both sides have as many tensors: one more or less would shift them all.
    States must also have the same shapes in the same order, since many are alike."""
    parts = {t.key.part for t in target} & {r.key.part for r in reference}
    for part in sorted(parts):
        targets = [t for t in target if t.key.part == part]
        references = [r for r in reference if r.key.part == part]
        if role in (Role.MODEL_OUTPUT, Role.STATE):
            targets.sort(key=lambda t: t.key.index)
            references.sort(key=lambda t: t.key.index)
        has_other_order = role is not Role.STATE and not _are_alike_by_position(targets, references)
        if role is Role.MODEL_OUTPUT and _have_same_sizes(targets, references):
            # Callers take outputs by their position: the same outputs in another order are wrong.
            has_other_order = False
        if has_other_order:
            yield from _pair_by_size(matching, targets, references, role)
        if has_other_order or len(targets) != len(references):
            continue
        shapes = [[(t.key.index, t.shape) for t in side] for side in (targets, references)]
        if role is Role.STATE and shapes[0] != shapes[1]:
            continue
        for t, r in zip(targets, references, strict=True):
            yield SyncPoint(t.key, r.key, f"{role} at the same position", confidence=0.95)


def _are_alike_by_position(targets: list[Tensor], references: list[Tensor]) -> bool:
    """Whether both sides have as many tensors, and those at one position as many elements or as
    many axes. If one side passes a state in two tensors or not at all, they have not."""
    return len(targets) == len(references) and all(
        t.count == r.count or len(t.shape) == len(r.shape)
        for t, r in zip(targets, references, strict=True)
    )


def _have_same_sizes(targets: list[Tensor], references: list[Tensor]) -> bool:
    """Whether both sides have tensors of the same sizes, in any order."""
    return sorted(t.count for t in targets) == sorted(r.count for r in references)


def _pair_by_size(
    matching: Matching, targets: list[Tensor], references: list[Tensor], role: Role
) -> Iterator[SyncPoint]:
    """Pair the tensors of one size: those with equal values, then outputs in order if both sides
    have as many. An input of one side need not be an input of the other one."""
    targets, references = list(targets), list(references)
    for target in list(targets):
        equals = [r for r in references if _hold_equal_values(matching, target, r)]
        rivals = [t for t in targets if equals and _hold_equal_values(matching, t, equals[0])]
        if len(equals) == len(rivals) == 1:
            yield SyncPoint(target.key, equals[0].key, f"{role} with equal values", confidence=0.95)
            targets.remove(target)
            references.remove(equals[0])
    for count in dict.fromkeys(t.count for t in targets):
        same_size = [[t for t in side if t.count == count] for side in (targets, references)]
        if role is Role.MODEL_OUTPUT and len(same_size[0]) == len(same_size[1]):
            for t, r in zip(*same_size, strict=True):
                evidence = f"{role} of the same size, in order"
                yield SyncPoint(t.key, r.key, evidence, confidence=0.9)


def _pair_hidden_states(matching: Matching) -> Iterator[SyncPoint]:
    """Pair outputs of one side with states that the other side keeps: by size if only one has it,
    else by values."""
    roles = ((Role.MODEL_OUTPUT, Role.STATE), (Role.STATE, Role.MODEL_OUTPUT))
    for target_role, reference_role in roles:
        targets, references = _free_tensors(
            matching,
            _results_of_role(matching.target, target_role),
            _results_of_role(matching.reference, reference_role),
        )
        for target in targets:
            partner = _only_partner(matching, target, targets, references)
            if partner is not None:
                yield SyncPoint(target.key, partner.key, _HIDDEN_STATE, confidence=0.9)


def _results_of_role(side: Side, role: Role) -> list[Tensor]:
    """The tensors of a role; of states those after the execution."""
    return [t for t in side.others if t.key.role is role and (role, t.key.index) != _BEFORE]


def _only_partner(
    matching: Matching, target: Tensor, targets: list[Tensor], references: list[Tensor]
) -> Tensor | None:
    """The only reference of the size of a target, if no other target has it; else the only one that
    holds equal values."""
    size = (target.key.part, target.count)
    partners = [r for r in references if (r.key.part, r.count) == size]
    rivals = [t for t in targets if (t.key.part, t.count) == size]
    if len(partners) != 1 or len(rivals) != 1:
        partners = [r for r in partners if _hold_equal_values(matching, target, r)]
        rivals = [t for t in rivals if partners and _hold_equal_values(matching, t, partners[0])]
    return partners[0] if len(partners) == len(rivals) == 1 else None


def _hold_equal_values(matching: Matching, target: Tensor, reference: Tensor) -> bool:
    """Whether two tensors of one size hold the same numbers, up to the rounding of their types."""
    if target.count != reference.count:
        return False
    tensors = ((matching.target, target), (matching.reference, reference))
    if not all(t.kept is Kept.VALUES and DTYPES[t.dtype].kind in _REALS for _, t in tensors):
        return False
    try:
        values, others = (
            np.asarray(side.run.values(tensor)).astype(np.float64).ravel()
            for side, tensor in tensors
        )
    except SyncpointError:
        return False  # It cannot be read; the comparison says so.
    return bool(np.allclose(values, others, rtol=_MAX_ROUNDING, atol=0, equal_nan=True))
