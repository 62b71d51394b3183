"""Quantization that is done right and still costs more than the output can bear: which ops to leave
in higher precision."""

from __future__ import annotations

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.op_cost import Cost, costs
from syncpoint.diagnosis.finding_text import finding_at
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

COARSE = ("int8", "int4", "fp8")
"""Presets of what has so few bits that every op is heard."""
_NAMED = 3
_WORTH = 0.5
"""An op is worth leaving in higher precision if the outputs gain so many decibels by it."""


def noise(case: Case, outputs: list[Row]) -> Finding:
    """As good as the bits allow, and not good enough: the ops that cost the outputs most, by
    experiment where the reference can be run so, else by what each adds."""
    lossy = _find_lossy(case)
    measured = costs(case, lossy)
    worth = [cost for cost in measured if cost.gain >= _WORTH][:_NAMED]
    worst = [cost.row for cost in worth] or lossy[:_NAMED]
    named = worst or outputs
    is_moderate = all(row.verdict is Verdict.MODERATE for row in outputs)
    return finding_at(
        case,
        named[0],
        "precision",
        "noise",
        "quantization costs more than the output can bear",
        0.8,
        [
            "every op loses what its integers cost, and no more",
            *_loss(lossy[:_NAMED]),
            *_cost(measured, worth),
            *_share_of_compression(case),
        ],
        _next(worst, measured, worth),
        missing=() if measured else (_MISSING,),
        level=Level.NOTE if is_moderate else Level.CAUSE,
        ops=[row.target.label for row in named],
        reference_ops=[row.reference.label for row in named],
        rows={row.target.key: row for row in (*outputs, *worst)}.values(),
    )


def _find_lossy(case: Case) -> list[Row]:
    """The ops that lose something to few bits, the worst first."""
    known = [row for row in case.computed if row.target.key.role is Role.OUTPUT]
    return sorted((row for row in known if _is_lossy(row)), key=_decibels)


def _is_lossy(row: Row) -> bool:
    made = row.introduced
    return made is not None and made.preset in COARSE and made.sqnr is not None and made.rmse > 0


def _share_of_compression(case: Case) -> list[str]:
    """Whether an output's error is mostly compression, where a run in between tells."""
    through = case.result.through
    parts = [p for p in through.parts if p.output and p.mostly] if through is not None else []
    return [f"{p.target}: the error is mostly {p.mostly}" for p in parts[:1]]


_MISSING = "the reference's model, to measure what each op costs the output (--reference-model)"


def _loss(worst: list[Row]) -> list[str]:
    if not worst:
        return []
    names = ", ".join(f"{row.target.label} {_decibels(row):.1f} dB" for row in worst)
    return [f"signal over noise of what each adds: {names}"]


def _cost(measured: list[Cost], worth: list[Cost]) -> list[str]:
    if worth:
        said = ", ".join(f"{c.row.target.label} {c.gain:.1f} dB" for c in worth)
        return [f"what the outputs gain with one op, and what it reads, in float: {said}"]
    if measured:
        return [f"with any one of {len(measured)} ops in float the outputs gain less than 0.5 dB"]
    return []


def _next(worst: list[Row], measured: list[Cost], worth: list[Cost]) -> str:
    names = ", ".join(row.target.label for row in worst)
    if measured and not worth:
        return "no few ops are to blame: quantize finer (by channel, more bits), or fewer layers"
    if worth:
        return f"leave {names} in float"
    return f"leave {names or 'the worst ops'} in float, and see what the output gains"


def _decibels(row: Row) -> float:
    return (row.introduced.sqnr or 0.0) if row.introduced is not None else 0.0
