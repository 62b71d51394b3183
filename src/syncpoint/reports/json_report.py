"""Write a comparison as strict JSON (INTERFACE.md) for other programs: rows, reasons in parts;
non-finite numbers become strings."""

from __future__ import annotations

import json
from dataclasses import fields
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import End, Introduced, Row
from syncpoint.files.outputs import write_output
from syncpoint.metrics.verdict import Reason
from syncpoint.reports.verdict_line import headline

SCHEMA = 1


def as_json(result: Result) -> dict[str, Any]:
    """The comparison as plain data; non-finite numbers are strings, n/a is None."""
    document = {
        "schema": SCHEMA,
        "verdict": result.verdict.value,
        "headline": headline(result),
        "coverage": result.coverage.as_dict(),
        "bases": result.bases,
        "verified": result.verified,
        "preset": result.preset_name,
        "target": dict(result.target),
        "reference": dict(result.reference),
        "warnings": list(result.warnings),
        "unverified": result.unverified or None,
        "first_divergence": [str(row.target.key) for row in result.first_divergence],
        "sync_points": [_row(row) for row in result.rows],
        "unmatched": [
            {
                "side": u.side,
                "op": u.op,
                "role": u.role,
                "index": u.index,
                "type": u.type,
                "module": u.module,
                "reason": u.reason,
                "detail": u.detail,
                **_reason(u.why),
                "account": result.account_of(u).value if u.counted else None,
            }
            for u in result.unmatched
        ],
        "diagnosis": result.diagnosis and result.diagnosis.as_dict(),
        "findings": [finding.as_dict() for finding in result.findings],
    }
    if result.through is not None:
        document["through"] = result.through.as_dict()
    strict = to_strict_json(document)
    return strict if isinstance(strict, dict) else {}


def _row(row: Row) -> dict[str, Any]:
    return {
        "target": _end(row.target),
        "reference": _end(row.reference),
        "evidence": row.evidence,
        "confidence": row.confidence,
        "view": row.view or None,
        "basis": row.basis or None,
        "preset": row.preset,
        "metrics": dict(row.numbers) if row.numbers is not None else None,
        "introduced": _introduced(row.introduced, row),
        "expected": {"rmse": row.introduced.expected} if row.introduced else None,
        "verdict": row.verdict.value,
        "reason": row.reason or None,
        **_reason(row.why),
        "first_non_finite": row.first_non_finite,
        "notes": list(row.notes),
    }


def _reason(why: Reason) -> dict[str, str | None]:
    """The parts of a reason, None where empty."""
    parts = {"reason_code": why.code, "reason_detail": why.detail, "reason_cure": why.cure}
    return {name: part or None for name, part in parts.items()}


def _introduced(introduced: Introduced | None, row: Row) -> dict[str, Any] | None:
    if introduced is None:
        return {"unknown": str(row.unknown)} if row.unknown else None
    fields_of_introduced: dict[str, Any] = {
        f.name: getattr(introduced, f.name)
        for f in fields(Introduced)
        if f.name not in ("expected", "region")
    }
    return {
        **fields_of_introduced,
        "region": list(introduced.region),
        "verdict": row.introduced_verdict.value,
    }


def _end(end: End) -> dict[str, Any]:
    part = {
        name: value
        for name in ("sample", "step", "rank")
        if (value := getattr(end.key.part, name)) >= 0
    }
    return {
        "op": str(end.key.op),
        "role": end.key.role.value,
        "index": end.key.index,
        "part": part,
        "type": end.type,
        "dtype": end.dtype,
        "shape": list(end.shape),
        "module": end.module,
        "source": end.source,
        "name": end.name,
    }


def to_strict_json(value: Any) -> Any:
    """The value with non-finite numbers as strings, which strict JSON allows."""
    if isinstance(value, float) and not isfinite(value):
        return "nan" if isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(k): to_strict_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_strict_json(v) for v in value]
    return value


def write_json(result: Result, path: Path) -> Path:
    """Write the comparison as JSON."""
    return write_output(path, json.dumps(as_json(result), indent=1, allow_nan=False))
