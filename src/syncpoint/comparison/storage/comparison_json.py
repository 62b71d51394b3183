"""Write and read `comparison.json` (facts, unmatched tensors, limits, diagnosis, counts,
checksums), check its structure, relocate paths of runs.

A document without a checksum may be damaged and still be JSON, for example with a changed key. The
check of the structure turns that into one error message instead of a crash later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from syncpoint.comparison.findings import Diagnosis
from syncpoint.comparison.judge_rows import AUTO, Choice
from syncpoint.comparison.result import Result
from syncpoint.comparison.storage.file_names import JSON_NAME, PROGRESS_LOG, RESTORE
from syncpoint.comparison.storage.older_schemas import upgrade_document
from syncpoint.comparison.unmatched import UnmatchedTensor
from syncpoint.errors import InputError
from syncpoint.files.file_checksums import DamagedFileError
from syncpoint.files.read_errors import CHECK_FOLDER, read_errors
from syncpoint.files.sealed_json import UNVERIFIED, Document, read_document
from syncpoint.matching.masks import masks_as_data
from syncpoint.metrics.limits import Limits
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict
from syncpoint.run.model import OpKey

Rule = Callable[[Any], bool]


def _has_type(*kinds: type) -> Rule:
    return lambda value: (
        isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
    )


def _list_of(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def _object(rules: Mapping[str, Rule]) -> Rule:
    return lambda value: (
        isinstance(value, dict)
        and all(key in value and rule(value[key]) for key, rule in rules.items())
    )


def _optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


_TEXT, _NUMBER, _FLAG = _has_type(str), _has_type(int, float), _has_type(bool)
_RUN = _object(
    {
        **dict.fromkeys(("path", "digest", "model", "runtime", "runtime_version"), _TEXT),
        **dict.fromkeys(("device", "precision", "fusion", "missing"), _TEXT),
        "options": _has_type(dict),
        "environment": _has_type(dict),
        "complete": _FLAG,
        "notes": _list_of(_TEXT),
        "observer": _optional(_object({"equal": _FLAG, "detail": _TEXT})),
    }
)
_FACTS: Mapping[str, Rule] = {
    "created": _TEXT,
    "verdict": lambda value: value in {verdict.value for verdict in Verdict},
    "coverage": _object(
        dict.fromkeys(
            ("target", "reference", "target_tensors", "reference_tensors", "paired", "compared"),
            _NUMBER,
        )
    ),
    "limits": _has_type(str, dict),
    "target": _RUN,
    "reference": _RUN,
    "warnings": _list_of(_TEXT),
}
_OP = _list_of(_has_type(str, int))
_LISTS: Mapping[str, Rule] = {
    "unmatched": _list_of(
        _object(
            {
                **dict.fromkeys(("side", "op", "role", "type", "module", "reason"), _TEXT),
                "index": _has_type(int),
                "detail": _TEXT,
                "counted": _FLAG,
            }
        )
    ),
    "edges": _list_of(
        lambda edge: (
            isinstance(edge, list) and len(edge) == 2 and _OP(edge[0]) and _list_of(_OP)(edge[1])
        )
    ),
    "diagnosis": _optional(
        _object(
            {
                "symptom": _TEXT,
                "summary": _TEXT,
                **dict.fromkeys(("experiments", "troubles", "models"), _list_of(_TEXT)),
            }
        )
    ),
    "findings": _list_of(
        _object(
            {
                **dict.fromkeys(("cause", "kind", "title", "level", "module", "source"), _TEXT),
                **dict.fromkeys(("ops", "reference_ops", "evidence", "missing"), _list_of(_TEXT)),
                "next": _TEXT,
                "confidence": _NUMBER,
                "rows": _list_of(_has_type(int)),
            }
        )
    ),
}


def find_broken_key(body: Mapping[str, Any], is_whole: bool) -> str:
    """The first key that is missing or has a wrong value; "" if there is none.

    Unless the body is whole, its long lists, which come last, may be missing.
    """
    rules = {**_FACTS, **_LISTS} if is_whole else _FACTS
    return next((key for key, rule in rules.items() if key not in body or not rule(body[key])), "")


SCHEMA = 3
"""Schema 1 had no checksums, schema 2 no parts of a reason, and early files of schema 3 no
`nearer_to_float64`. All are still read."""


def result_to_json(result: Result, home: Path) -> dict[str, Any]:
    """The body of `comparison.json`; paths of runs are relative to `home`."""
    choice: Any = result.choice
    if isinstance(choice, Limits):
        choice = {f.name: getattr(choice, f.name) for f in fields(Limits)}
    return {
        "schema": SCHEMA,
        "created": result.created,
        "rows": len(result.rows),
        "files": {},
        "unverified": result.unverified,
        "verdict": result.verdict.value,
        "coverage": result.coverage.as_dict(),
        "limits": choice,
        "target": map_run_path(result.target, lambda run: os.path.relpath(run, home)),
        "reference": map_run_path(result.reference, lambda run: os.path.relpath(run, home)),
        "warnings": list(result.warnings),
        "unfinished": result.unfinished,
        "verified": {side: dict(counts) for side, counts in result.verified.items()},
        "through": result.through and result.through.as_dict(),
        "unmatched": [_unmatched_to_json(u) for u in result.unmatched],
        "unkept": dict(result.unkept),
        "partial": list(result.partial),
        "min_coverage": result.min_coverage,
        "masks": masks_as_data(result.masks),
        "edges": [
            [_op_key_to_list(op), [_op_key_to_list(i) for i in inputs]]
            for op, inputs in result.edges.items()
        ],
        "diagnosis": result.diagnosis and result.diagnosis.as_dict(),
        "findings": [finding.as_dict() for finding in result.findings],
    }


def _unmatched_to_json(lonely: UnmatchedTensor) -> dict[str, Any]:
    body = {name: value for name, value in lonely.__dict__.items() if name != "why"}
    why = lonely.why
    return {**body, "reason": why.code, "detail": why.detail, "cure": why.cure}


def unmatched_from_json(body: Mapping[str, Any]) -> UnmatchedTensor:
    """An unmatched tensor from `comparison.json`."""
    why = Reason(ReasonCode(body["reason"]), body["detail"], body["cure"])
    names = (f.name for f in fields(UnmatchedTensor) if f.name != "why")
    return UnmatchedTensor(why=why, **{name: body[name] for name in names if name in body})


def map_run_path(about: Mapping[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """The facts of a run with another path, relative or absolute.

    Saved paths are relative, so that a comparison and its runs can be moved together.
    """
    return {**about, "path": move(about["path"]) if about["path"] else ""}


def _op_key_to_list(key: OpKey) -> list[Any]:
    return [key.op, key.call, key.graph, key.path, key.iteration]


def read_comparison_json(path: Path, before: bytes = b"") -> Document:
    """The verified `comparison.json`; with `before` only the keys before it."""
    if not (path / JSON_NAME).is_file():
        if (path / PROGRESS_LOG).is_file():
            raise InputError(
                f"the comparison at {path} was interrupted and is not finished",
                cure="continue it with: syncpoint compare ... --resume",
            )
        raise InputError(
            f"{path} is not a comparison (a folder with {JSON_NAME})",
            cure="make one with: syncpoint compare TARGET REFERENCE -o NAME.cmp",
        )
    with read_errors(f"the comparison at {path}", cure=CHECK_FOLDER):
        document = read_document(path / JSON_NAME, SCHEMA, RESTORE, before=before)
    broken = find_broken_key(document.body, is_whole=not before)
    if broken:
        raise DamagedFileError(
            path / JSON_NAME, f"its key {broken!r} is missing or has a wrong value", RESTORE
        )
    upgrade_document(document)
    return document


def unverified_reason(document: Document) -> str:
    """Why a comparison, or the one it was derived from, is unverified; "" if it is verified."""
    return str(document.body.get("unverified") or ("" if document.is_verified else UNVERIFIED))


def diagnosis_from_json(about: Mapping[str, Any]) -> Diagnosis | None:
    """The diagnosis of a `comparison.json`, if it has one."""
    document = about.get("diagnosis")
    return Diagnosis.of_dict(document, about["findings"]) if document else None


def verified_counts(about: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The counts of verified tensors; empty in comparisons of versions that did not verify."""
    return {
        str(side): {str(state): int(count) for state, count in counts.items()}
        for side, counts in (about.get("verified") or {}).items()
    }


def choice_from_json(saved: Any) -> Choice:
    """The limits of a `comparison.json`: `auto`, or those that the user chose."""
    if saved == AUTO:
        return AUTO
    fields_of_limits: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()
    }
    return Limits(**fields_of_limits)
