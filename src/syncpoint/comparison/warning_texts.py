"""Elements that are equal on both sides and yet show nothing: what to say of them."""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.matching.protocol import JUDGED_ROLES
from syncpoint.metrics.limits import coarsest, is_coarser
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Kept, Role


def output_warnings(rows: Sequence[Row]) -> list[str]:
    """What a reader of a close verdict must know: NaN in model outputs of both sides, and models
    whose every result is zero."""
    warnings = {}
    for row in rows:
        if row.output or row.target.key.role is Role.MODEL_OUTPUT:
            text = _non_finite_text(row)
            if text:
                warnings[row.reference.label] = f"model output {row.target.label}: {text}"
    dead = _all_zero_text(rows)
    return [*warnings.values(), *([dead] if dead else [])]


def _non_finite_text(row: Row) -> str:
    numbers = row.numbers or {}
    if numbers.get("mismatched"):
        return ""
    parts = []
    for kind, word in (("nan", "NaN"), ("inf", "infinite")):
        number = min(numbers.get(f"{side}_{kind}") or 0 for side in ("target", "reference"))
        if kind == "inf":
            # Minus infinity is how scores are masked.
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
        "every tensor that was compared is zero on both sides, which shows next to nothing; compare"
        " on inputs that make the model compute something"
    )


def _is_zero(row: Row) -> bool:
    numbers = row.numbers or {}
    zeros = [numbers.get(f"{side}_zero") for side in ("target", "reference")]
    return bool(numbers.get("count")) and zeros == [numbers["count"]] * 2


def values_warnings(made: list[Row]) -> list[str]:
    """What to say where introduced error is not known for want of values."""
    computed = [row for row in made if row.target.key.role is Role.OUTPUT and not row.unmeasured]
    less = sum(row.basis != Kept.VALUES for row in computed)
    if not less:
        return []
    count = "" if less == len(computed) else f" of {less} of {len(computed)} ops"
    return [
        f"introduced error{count} is not known: only statistics or digests were kept; record"
        " values to tell who is guilty from who inherited"
    ]


def mask_warnings(sides: Sides, made: list[Row]) -> list[str]:
    """How many positions the map masks."""
    return sides.masks.summary(made) if sides.masks is not None else []


def run_warnings(sides: Sides) -> list[str]:
    """Warnings about the two runs: swapped roles, incomplete, unverified or changed by capture."""
    said = []
    coarse = [
        coarsest([p.of(t) for t in run.tensors if t.key.role in JUDGED_ROLES])
        for p, run in zip(sides.precisions, (sides.target, sides.reference), strict=True)
    ]
    if "exact" not in coarse and is_coarser(coarse[1], coarse[0]):
        said.append(
            f"the reference is {coarse[1]} and the target {coarse[0]}: are the two swapped?"
        )
    for name, run in (("target", sides.target), ("reference", sides.reference)):
        if not run.info.complete:
            said.append(f"the {name} run is incomplete: {run.info.missing or 'its writer died'}")
        if run.unverified:
            said.append(f"the {name} run is unverified: {run.unverified}")
        if run.info.observer is not None and not run.info.observer.equal:
            said.append(
                f"capturing changed the {name}: its outputs differ from an uninstrumented run"
                f" ({run.info.observer.detail})"
            )
    return said


def pairing_warnings(sides: Sides, made: list[Row]) -> list[str]:
    """What to say where values could not choose among the ops that an op may stand for."""
    ends = [(r.target, r.reference) for r in made if r.target.key.role is Role.OUTPUT]
    if all((t.key.op, t.type) == (r.key.op, r.type) for t, r in ends):
        return []
    for name, run in (("target", sides.target), ("reference", sides.reference)):
        kept = {t.kept for t in run.tensors if t.key.role is Role.OUTPUT}
        if kept and Kept.VALUES not in kept:
            return [
                f"no values of the {name} were kept: pairs rest on names, origins and structure"
                " alone, and a fused op may be held against the wrong op of those it stands for"
            ]
    return []
