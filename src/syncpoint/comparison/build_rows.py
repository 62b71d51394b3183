"""Sync points -> rows without numbers; a row that cannot be measured says why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from syncpoint.comparison.digest_pairs import why_bytes_incomparable
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.sides import Sides
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Kept, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_RANDOM = Reason(ReasonCode.RANDOM, "draws random numbers")


def build_rows(sides: Sides, points: Iterable[SyncPoint], outputs: set[TensorKey]) -> list[Row]:
    """Rows without numbers yet; those that cannot be measured say why. `outputs` are target
    tensors that stand for a model output, besides those recorded as one."""
    made = []
    for point in points:
        target = sides.target.tensor(point.target)
        reference = sides.reference.tensor(point.reference)
        if target is None or reference is None:
            raise KeyError(point)
        basis = basis_of(target, reference, point.view)
        presets = [p.of(t) for p, t in zip(sides.precisions, (target, reference), strict=True)]
        row = Row(
            target=sides.build_end(0, target),
            reference=sides.build_end(1, reference),
            evidence=point.evidence,
            confidence=point.confidence,
            view=str(point.view),
            basis=basis,
            preset=coarsest(presets),
            output=point.target.role is Role.MODEL_OUTPUT or point.target in outputs,
            ends_only=point.ends_only,
            notes=(point.note,) if point.note else (),
            unmeasured=point.unmeasured,
        )
        if not basis and not row.unmeasured:
            why = why_bytes_incomparable(target, reference, point.view)
            row = replace(row, unmeasured=Reason(ReasonCode.INCOMPARABLE, why))
        if _is_random(sides.target, row.target) and _is_random(sides.reference, row.reference):
            row = replace(row, unmeasured=_RANDOM)
        made.append(row)
    return made


def _is_random(run: Run, end: End) -> bool:
    """Whether an op draws random numbers. On one side only, as when a target was left in
    training mode, it is measured like any other."""
    return end.order >= 0 and run.ops[end.order].random


def basis_of(target: Tensor, reference: Tensor, view: View) -> str:
    """The best form that both sides can be brought to; "" if there is none."""
    kept = {target.kept, reference.kept}
    if kept == {Kept.VALUES}:
        return Kept.VALUES
    if Kept.DIGEST in kept:
        if not why_bytes_incomparable(target, reference, view):
            return Kept.DIGEST
        # Tools that keep digests may keep a few figures beside them.
        told = all(t.statistics or t.kept is Kept.VALUES for t in (target, reference))
        return Kept.STATISTICS if told else ""
    return Kept.STATISTICS
