"""Model inputs, model outputs, parameters and states: paired by name, else by position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from syncpoint.matching.evidence.wrapper_prefixes import unwrapped
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.run.model import Part, Role, Tensor


class BoundaryMatcher:
    """Pairs what crosses the boundary of the model."""

    name = "boundary"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """By name; all but parameters also by position where the counts agree."""
        for role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT, Role.PARAMETER, Role.STATE):
            target = [t for t in matching.target.others if t.key.role is role]
            reference = [t for t in matching.reference.others if t.key.role is role]
            if role in (Role.PARAMETER, Role.STATE):
                yield from _by_inner_name(target, reference, role)
            if role is Role.MODEL_OUTPUT:
                yield from _by_path(target, reference)
            else:
                yield from _by_name(target, reference, role)
            if role is Role.PARAMETER:
                continue
            mine, theirs = _left(matching, target, reference)
            if role is Role.STATE:
                yield from _by_exported_name(mine, theirs)
                mine, theirs = _left(matching, target, reference)
            yield from _by_position(mine, theirs, role)


def _by_name(target: list[Tensor], reference: list[Tensor], role: Role) -> Iterator[SyncPoint]:
    named = {(str(r.key.op), r.key.index, r.key.part): r for r in reference}
    if len(_constants(target)) != len(_constants(reference)):
        # Constants have numbers for names: one more or less shifts them all.
        target = [t for t in target if t not in _constants(target)]
    for tensor in target:
        other = named.get((str(tensor.key.op), tensor.key.index, tensor.key.part))
        if other is not None:
            yield SyncPoint(tensor.key, other.key, f"{role} of the same name", confidence=1.0)


def _by_inner_name(
    target: list[Tensor], reference: list[Tensor], role: Role
) -> Iterator[SyncPoint]:
    """Where one model stands inside another on one side; only tensors of the same shape."""
    constants = {t.key for t in (*_constants(target), *_constants(reference))}
    named = {(r.key.op.op, r.key.index, r.key.part): r for r in reference}
    names = unwrapped(
        {t.key.op.op for t in target if t.key not in constants},
        {r.key.op.op for r in reference if r.key not in constants},
        bare=False,
    )
    for tensor in target:
        name = names.get(tensor.key.op.op)
        other = named.get((name, tensor.key.index, tensor.key.part)) if name else None
        if other is not None and other.shape == tensor.shape:
            yield SyncPoint(
                tensor.key, other.key, f"{role} of the same name in a wrapper", confidence=0.97
            )


def _left(
    matching: Matching, target: list[Tensor], reference: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    return (
        [t for t in target if matching.free_target(t.key)],
        [r for r in reference if matching.free_reference(r.key)],
    )


def _by_exported_name(target: list[Tensor], reference: list[Tensor]) -> Iterator[SyncPoint]:
    """States of which one side has the names that torch.export gives to buffers:
    `b_layers_0_cache` is `layers.0.cache`."""
    named: dict[tuple[str, int, Part], list[Tensor]] = {}
    for tensor in reference:
        plain = re.sub(r"\W", "_", tensor.key.op.op)
        named.setdefault((plain, tensor.key.index, tensor.key.part), []).append(tensor)
    for tensor in target:
        plain = re.sub(r"\W", "_", tensor.key.op.op)
        for name in (plain, plain.removeprefix("b_"), f"b_{plain}"):
            found = named.get((name, tensor.key.index, tensor.key.part), [])
            if len(found) == 1:
                evidence = "state of the same name, but for how export writes it"
                yield SyncPoint(tensor.key, found[0].key, evidence, confidence=1.0)
                break


def _constants(tensors: list[Tensor]) -> list[Tensor]:
    return [t for t in tensors if t.key.op.op.startswith(("lifted_tensor_", "_tensor_constant"))]


def _by_path(target: list[Tensor], reference: list[Tensor]) -> Iterator[SyncPoint]:
    """Outputs by the path a user knows, such as `out["logits"]`."""
    named = {(r.name, r.key.part): r for r in reference if r.name}
    for tensor in target:
        other = named.get((tensor.name, tensor.key.part))
        if other is not None:
            yield SyncPoint(tensor.key, other.key, "model-output of the same path", confidence=1.0)


def _by_position(target: list[Tensor], reference: list[Tensor], role: Role) -> Iterator[SyncPoint]:
    """Only where both sides have as many: one more or less would shift them all. States, many
    of which are alike, must also be of the same shapes in the same order."""
    parts = {t.key.part for t in target} & {r.key.part for r in reference}
    for part in sorted(parts):
        mine = [t for t in target if t.key.part == part]
        theirs = [r for r in reference if r.key.part == part]
        if role is Role.MODEL_OUTPUT:
            mine.sort(key=lambda t: t.key.index)
            theirs.sort(key=lambda t: t.key.index)
        if role is Role.STATE:
            mine.sort(key=lambda t: t.key.index)
            theirs.sort(key=lambda t: t.key.index)
        if len(mine) != len(theirs):
            continue
        shapes = [[(t.key.index, t.shape) for t in side] for side in (mine, theirs)]
        if role is Role.STATE and shapes[0] != shapes[1]:
            continue
        for t, r in zip(mine, theirs, strict=True):
            yield SyncPoint(t.key, r.key, f"{role} at the same position", confidence=0.95)
