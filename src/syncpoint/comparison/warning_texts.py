"""Elements that are equal on both sides and yet show nothing: what to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

_MIN_COMPARED_SHARE = 0.1
"""Below this share of its elements a row says how few of them its verdict rests on."""


def note_left_out(rows: Sequence[Row]) -> list[Row]:
    """The rows with a note where the verdict rests on few of the elements."""
    return [_noted(row) for row in rows]


def _noted(row: Row) -> Row:
    numbers = row.numbers or {}
    compared, count = numbers.get("compared"), numbers.get("count")
    if not compared or not count or compared >= _MIN_COMPARED_SHARE * count:
        return row
    note = (
        f"only {compared:,} of {count:,} elements were compared: the others are NaN, infinite or"
        " masked on both sides"
    )
    return replace(row, notes=(*row.notes, note))


def left_out_warnings(rows: Sequence[Row]) -> list[str]:
    """What a reader of a close verdict must know: NaN in model outputs of both sides, and models
    whose every result is zero."""
    warnings = {}
    for row in rows:
        if row.output or row.target.key.role is Role.MODEL_OUTPUT:
            text = _non_finite_text(row)
            if text:
                warnings[row.reference.label] = f"model output {row.target.label}: {text}"
    dead = _dead_model(rows)
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


def _dead_model(rows: Sequence[Row]) -> str:
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
