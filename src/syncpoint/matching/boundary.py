"""Model inputs, model outputs, parameters and states: paired by name, else by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.run.model import Role, Tensor


class BoundaryMatcher:
    """Pairs what crosses the boundary of the model."""

    name = "boundary"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """By name; inputs and outputs also by position where the counts agree."""
        for role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT, Role.PARAMETER, Role.STATE):
            target = [t for t in matching.target.others if t.key.role is role]
            reference = [t for t in matching.reference.others if t.key.role is role]
            if role is Role.MODEL_OUTPUT:
                yield from _by_path(target, reference)
            else:
                yield from _by_name(target, reference, role)
            if role in (Role.MODEL_INPUT, Role.MODEL_OUTPUT):
                yield from _by_position(
                    [t for t in target if matching.free_target(t.key)],
                    [r for r in reference if matching.free_reference(r.key)],
                    role,
                )


def _by_name(target: list[Tensor], reference: list[Tensor], role: Role) -> Iterator[SyncPoint]:
    named = {(str(r.key.op), r.key.index, r.key.part): r for r in reference}
    if len(_constants(target)) != len(_constants(reference)):
        # Constants have numbers for names: one more or less shifts them all.
        target = [t for t in target if t not in _constants(target)]
    for tensor in target:
        other = named.get((str(tensor.key.op), tensor.key.index, tensor.key.part))
        if other is not None:
            yield SyncPoint(tensor.key, other.key, f"{role} of the same name", 1.0)


def _constants(tensors: list[Tensor]) -> list[Tensor]:
    return [t for t in tensors if t.key.op.op.startswith(("lifted_tensor_", "_tensor_constant"))]


def _by_path(target: list[Tensor], reference: list[Tensor]) -> Iterator[SyncPoint]:
    """Outputs by the path a user knows, such as `out["logits"]`."""
    named = {(r.name, r.key.part): r for r in reference if r.name}
    for tensor in target:
        other = named.get((tensor.name, tensor.key.part))
        if other is not None:
            yield SyncPoint(tensor.key, other.key, "model-output of the same path", 1.0)


def _by_position(target: list[Tensor], reference: list[Tensor], role: Role) -> Iterator[SyncPoint]:
    """Only where both sides have as many: one more or less would shift them all."""
    parts = {t.key.part for t in target} & {r.key.part for r in reference}
    for part in sorted(parts):
        mine = [t for t in target if t.key.part == part]
        theirs = [r for r in reference if r.key.part == part]
        if role is Role.MODEL_OUTPUT:
            mine.sort(key=lambda t: t.key.index)
            theirs.sort(key=lambda t: t.key.index)
        if len(mine) != len(theirs):
            continue
        for t, r in zip(mine, theirs, strict=True):
            yield SyncPoint(t.key, r.key, f"{role} at the same position", 0.95)
