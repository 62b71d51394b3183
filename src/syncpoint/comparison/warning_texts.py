"""Texts of a result's warnings: NaN or inf on both sides alike, all-zero outputs, incomplete or
swapped runs, doubtful pairs, masks, values not kept."""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.matching.protocol import JUDGED_ROLES
from syncpoint.metrics.limits import coarsest, is_coarser
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Kept, Role


def output_warnings(rows: Sequence[Row]) -> list[str]:
    """Warnings beside a close verdict: model outputs with NaN on both sides, or all zeros."""
    warnings = {}
    for row in rows:
        if row.output or row.target.key.role is Role.MODEL_OUTPUT:
            text = _non_finite_text(row)
            if text:
                warnings[row.reference.label] = f"model output {row.target.label}: {text}"
    all_zero = _all_zero_text(rows)
    return [*warnings.values(), *([all_zero] if all_zero else [])]


def _non_finite_text(row: Row) -> str:
    numbers = row.numbers or {}
    if numbers.get("mismatched"):
        return ""
    parts = []
    for kind, word in (("nan", "NaN"), ("inf", "infinite")):
        number = min(numbers.get(f"{side}_{kind}") or 0 for side in ("target", "reference"))
        if kind == "inf":
            # Scores are masked with minus infinity.
            number -= numbers.get("masked") or 0
        if number > 0:
            parts.append(f"{number:,} of {numbers['count']:,} elements are {word} on both sides")
    return " and ".join(parts)


def _all_zero_text(rows: Sequence[Row]) -> str:
    computed = [
        row
        for row in rows
        if row.target.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT) and row.verdict is Verdict.CLOSE
    ]
    if not computed or not all(_is_zero(row) for row in computed):
        return ""
    return (
        "every compared tensor is zero on both sides, so the comparison proves almost nothing;"
        " compare on inputs that give results other than zero"
    )


def _is_zero(row: Row) -> bool:
    numbers = row.numbers or {}
    zeros = [numbers.get(f"{side}_zero") for side in ("target", "reference")]
    return bool(numbers.get("count")) and zeros == [numbers["count"]] * 2


def values_warnings(rows: list[Row]) -> list[str]:
    """Warning that introduced error is unknown because values were not kept."""
    computed = [row for row in rows if row.target.key.role is Role.OUTPUT and not row.unmeasured]
    without_values = sum(row.basis != Kept.VALUES for row in computed)
    if not without_values:
        return []
    count = (
        "" if without_values == len(computed) else f" of {without_values} of {len(computed)} ops"
    )
    return [
        f"introduced error{count} is unknown: only statistics or digests were kept; record values"
        " to find out which ops are guilty and which only inherit an error"
    ]


def mask_warnings(sides: Sides, rows: list[Row]) -> list[str]:
    """How many positions the map masks."""
    return sides.masks.summary(rows) if sides.masks is not None else []


def run_warnings(sides: Sides) -> list[str]:
    """Warnings about the two runs: swapped roles, incomplete, unverified or changed by capture."""
    warnings = []
    presets = [
        coarsest(
            [precisions.of(tensor) for tensor in run.tensors if tensor.key.role in JUDGED_ROLES]
        )
        for precisions, run in zip(sides.precisions, (sides.target, sides.reference), strict=True)
    ]
    if "exact" not in presets and is_coarser(presets[1], presets[0]):
        warnings.append(
            f"the reference is {presets[1]} and the target {presets[0]}: are the two swapped?"
        )
    for side, run in (("target", sides.target), ("reference", sides.reference)):
        if not run.info.complete:
            missing = run.info.missing or "its recording was interrupted"
            warnings.append(f"the {side} run is incomplete: {missing}")
        if run.unverified:
            warnings.append(f"the {side} run is unverified: {run.unverified}")
        if run.info.observer is not None and not run.info.observer.equal:
            warnings.append(
                f"capturing changed the {side}: its outputs differ from an uninstrumented run"
                f" ({run.info.observer.detail})"
            )
    return warnings


def pairing_warnings(sides: Sides, rows: list[Row]) -> list[str]:
    """Warning that pairs of fused ops could not be checked by values."""
    ends = [(r.target, r.reference) for r in rows if r.target.key.role is Role.OUTPUT]
    if all((t.key.op, t.type) == (r.key.op, r.type) for t, r in ends):
        return []
    for side, run in (("target", sides.target), ("reference", sides.reference)):
        kept_forms = {t.kept for t in run.tensors if t.key.role is Role.OUTPUT}
        if kept_forms and Kept.VALUES not in kept_forms:
            return [
                f"no values of the {side} were kept: pairs rest on names, origins and structure"
                " alone, and a fused op may be compared with the wrong one of its original ops"
            ]
    return []
