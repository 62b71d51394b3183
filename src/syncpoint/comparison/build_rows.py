"""Build the rows of a comparison before anything is measured: their basis (values, digest or
statistics), random ops, or why they cannot be measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from syncpoint.comparison.measuring.digest_and_statistics_pairs import why_bytes_incomparable
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.sides import Sides
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Kept, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_RANDOM = Reason(ReasonCode.RANDOM, "draws random numbers")


def build_rows(
    sides: Sides, sync_points: Iterable[SyncPoint], outputs: set[TensorKey]
) -> list[Row]:
    """Rows without numbers; a row that cannot be measured has the reason.

    `outputs` are target tensors that are compared in place of a model output.
    """
    rows = []
    for sync_point in sync_points:
        target = sides.target.tensor(sync_point.target)
        reference = sides.reference.tensor(sync_point.reference)
        if target is None or reference is None:
            raise KeyError(sync_point)
        basis = basis_of(target, reference, sync_point.view)
        presets = [p.of(t) for p, t in zip(sides.precisions, (target, reference), strict=True)]
        row = Row(
            target=sides.build_end(0, target),
            reference=sides.build_end(1, reference),
            evidence=sync_point.evidence,
            confidence=sync_point.confidence,
            view=str(sync_point.view),
            basis=basis,
            preset=coarsest(presets),
            output=sync_point.target.role is Role.MODEL_OUTPUT or sync_point.target in outputs,
            ends_only=sync_point.ends_only,
            notes=(sync_point.note,) if sync_point.note else (),
            unmeasured=sync_point.unmeasured,
        )
        if not basis and not row.unmeasured:
            why = why_bytes_incomparable(target, reference, sync_point.view)
            row = replace(row, unmeasured=Reason(ReasonCode.INCOMPARABLE, why))
        if _is_random(sides.target, row.target) and _is_random(sides.reference, row.reference):
            row = replace(row, unmeasured=_RANDOM)
        rows.append(row)
    return rows


def _is_random(run: Run, end: End) -> bool:
    """Whether an op draws random numbers.

    If only one side does, for example a target in training mode, the row is measured as usual.
    """
    return end.order >= 0 and run.ops[end.order].random


def basis_of(target: Tensor, reference: Tensor, view: View) -> str:
    """The best basis that both sides offer: values, digest or statistics; "" if none."""
    kept_forms = {target.kept, reference.kept}
    if kept_forms == {Kept.VALUES}:
        return Kept.VALUES
    if Kept.DIGEST in kept_forms:
        if not why_bytes_incomparable(target, reference, view):
            return Kept.DIGEST
        # Tools that keep digests may also keep a few statistics.
        have_statistics = all(t.statistics or t.kept is Kept.VALUES for t in (target, reference))
        return Kept.STATISTICS if have_statistics else ""
    return Kept.STATISTICS
