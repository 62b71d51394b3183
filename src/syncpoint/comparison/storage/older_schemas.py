"""Upgrade `comparison.json`, tables and logs of older versions when read; split an old reason or
error text into problem, detail and cure.

Up to schema 2 a reason was one text, `shape: 3x4 against 4x3`. The facts that only minimum and
maximum are known, and that a value is closer to float64 than the reference, were notes. Only this
file parses such texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from syncpoint.files.sealed_json import Document
from syncpoint.metrics.verdict import NO_REASON, REASON_PARTS, Reason, ReasonCode

FIRST_WITH_PARTS = 3
"""The first schema in which a reason has parts."""
_ENDS_ONLY_NOTE = "only the least and the greatest value are known and compared"
_NEARER_NOTE = "compiled is nearer to float64 than eager"
_CURES = (
    "copy the file again or record the run again",
    "pin them with a map",
)
"""Cures at the end of reasons of older schemas, after a semicolon."""
_FOUND_SEPARATOR = "; found "
"""Text before the found part of an error; its cure follows after another semicolon."""
_INSIDE = re.compile(r"inside ([^,;]+)$")
_FAILED = "diagnosis failed: "
_UNFINISHED = "not complete"


@lru_cache(maxsize=4096)
def split_reason(text: str, has_verdict: bool = False) -> Reason:
    """The parts of a reason that was saved as one text.

    If there is a verdict, the text explains it and has no code.
    """
    if has_verdict or not text:
        return Reason(detail=text) if text else NO_REASON
    head, _, rest = text.partition(": ")
    code = next((code for code in ReasonCode if code == head), None)
    if code is None:
        return Reason(detail=text)
    return Reason(code, *_split_cure(rest))


def _split_cure(text: str) -> tuple[str, str]:
    for cure in _CURES:
        if text.endswith(f"; {cure}"):
            return text.removesuffix(f"; {cure}"), cure
    before, mark, after = text.partition(_FOUND_SEPARATOR)
    problem, more, cure = after.partition("; ")
    return (f"{before}{mark}{problem}", cure) if mark and more else (text, "")


def upgrade_document(document: Document) -> None:
    """Add the keys that a `comparison.json` of an older schema lacks."""
    if document.schema >= FIRST_WITH_PARTS:
        return
    body = document.body
    warnings = (text for text in body["warnings"] if text.startswith(_UNFINISHED))
    body.setdefault("unfinished", next(warnings, ""))
    for tensor in body.get("unmatched", ()):
        _upgrade_unmatched(tensor)
    diagnosis = body.get("diagnosis")
    if diagnosis:
        failures = [text for text in diagnosis["troubles"] if text.startswith(_FAILED)]
        diagnosis.setdefault("failures", failures)


def _upgrade_unmatched(tensor: dict[str, Any]) -> None:
    if "cure" in tensor:
        return
    inside = _INSIDE.search(tensor["detail"])
    tensor["inside"] = inside[1] if inside else ""
    tensor["detail"], tensor["cure"] = _split_cure(tensor["detail"])


def upgrade_table(table: pl.DataFrame, schema: int) -> pl.DataFrame:
    """Rows of a table, with the columns that its older schema or version lacks."""
    if table["ends_only"].null_count():
        noted = (
            pl.col("notes")
            .list.eval(pl.element().str.contains(_ENDS_ONLY_NOTE, literal=True))
            .list.any()
        )
        table = table.with_columns(noted.alias("ends_only"))
    if table["nearer_to_float64"].null_count():
        nearer = table["notes"].list.contains(_NEARER_NOTE)
        table = table.with_columns(nearer.fill_null(False).alias("nearer_to_float64"))
    if schema >= FIRST_WITH_PARTS:
        return table
    judged = (table["verdict"] != "none").to_list()
    reasons = map(split_reason, table["reason"].to_list(), judged)
    unknown = (split_reason(text or "") for text in table["introduced_unknown"].to_list())
    return table.with_columns(
        *_part_columns("reason", list(reasons)),
        *_part_columns("introduced_unknown", list(unknown)),
    )


def _part_columns(name: str, reasons: list[Reason]) -> list[pl.Series]:
    parts: Mapping[str, list[str]] = {
        part: [getattr(reason, part) or "" for reason in reasons] for part in REASON_PARTS
    }
    return [pl.Series(f"{name}_{part}", texts, pl.String) for part, texts in parts.items()]
