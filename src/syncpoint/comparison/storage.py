"""A comparison on disk: `NAME.cmp/` with `comparison.json` and `syncpoints.parquet`.

The table is what ordinary tools read; together with the JSON it gives back the whole result, so
that it can be judged and shown again without its runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from syncpoint.comparison.findings import Diagnosis
from syncpoint.comparison.judging import AUTO, Choice
from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import End, Introduced, Row
from syncpoint.comparison.through import Through
from syncpoint.errors import FormatError, InputError
from syncpoint.metrics import Measurement
from syncpoint.metrics.limits import Limits
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.files import one_line, replacing
from syncpoint.run.lock import LOCK
from syncpoint.run.model import OpKey, Part, Role, TensorKey

SCHEMA = 1
JSON_NAME = "comparison.json"
TABLE_NAME = "syncpoints.parquet"
PROGRESS_LOG = "progress.log"
"""What is measured so far, while the comparison is unfinished."""

_END: dict[str, Any] = {
    "op": pl.String,
    "call": pl.Int64,
    "graph": pl.String,
    "path": pl.String,
    "iteration": pl.Int64,
    "role": pl.String,
    "index": pl.Int64,
    "sample": pl.Int64,
    "step": pl.Int64,
    "rank": pl.Int64,
    "type": pl.String,
    "dtype": pl.String,
    "shape": pl.List(pl.Int64),
    "module": pl.String,
    "source": pl.String,
    "name": pl.String,
    "order": pl.Int64,
}
_COARSE: dict[str, Any] = {
    **{
        f"{name}_{kind}": pl.Float64
        for name in ("max", "min", "mean", "l2")
        for kind in ("diff", "rel_diff")
    },
    "inf": pl.Int64,
    "psnr_bound": pl.Float64,
    "sqnr_bound": pl.Float64,
    "same_bytes": pl.Boolean,
    "same_input": pl.Boolean,
}
_ON_DEMAND: dict[str, Any] = {
    "worst_slice": pl.Float64,
    "worst_slice_axis": pl.Int64,
    "worst_slice_index": pl.Int64,
}
_INTRODUCED: dict[str, Any] = {
    "introduced_rmse": pl.Float64,
    "introduced_psnr": pl.Float64,
    "introduced_sqnr": pl.Float64,
    "introduced_rel_l2": pl.Float64,
    "introduced_max_abs": pl.Float64,
    "expected_rmse": pl.Float64,
    "introduced_ratio": pl.Float64,
    "introduced_preset": pl.String,
    "introduced_region": pl.List(pl.String),
    "introduced_unknown": pl.String,
    "introduced_verdict": pl.String,
}
_JUDGED: dict[str, Any] = {
    "evidence": pl.String,
    "confidence": pl.Float64,
    "view": pl.String,
    "basis": pl.String,
    "preset": pl.String,
    "verdict": pl.String,
    "reason": pl.String,
    "unmeasured": pl.String,
    "output": pl.Boolean,
    "first_non_finite": pl.Boolean,
    "notes": pl.List(pl.String),
}


def _metric_columns() -> dict[str, Any]:
    types = {"int": pl.Int64, "float": pl.Float64}
    columns: dict[str, Any] = {}
    for field in fields(Measurement):
        plain = str(field.type).removesuffix(" | None")
        columns[field.name] = types.get(plain, pl.String)
    return columns


METRIC_COLUMNS = _metric_columns()
COLUMNS: dict[str, Any] = {
    **{f"target_{k}": v for k, v in _END.items()},
    **{f"reference_{k}": v for k, v in _END.items()},
    **_JUDGED,
    **METRIC_COLUMNS,
    **_COARSE,
    **_ON_DEMAND,
    **_INTRODUCED,
}
"""Every column of the table, in order, with its type."""

_NUMBERS = {**METRIC_COLUMNS, **_COARSE, **_ON_DEMAND}
_BOUNDS = [name for name in _COARSE if not name.startswith("same_")]
_PACKED = {name for name, kind in METRIC_COLUMNS.items() if kind is pl.String}
"""Metrics that are no single number; JSON in the table."""


def frame(rows: list[Row]) -> pl.DataFrame:
    """The table of a comparison."""
    return pl.DataFrame([_flat(row) for row in rows], schema=COLUMNS, orient="row")


def _flat(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = dict.fromkeys(COLUMNS)
    for side, end in (("target", row.target), ("reference", row.reference)):
        key = end.key
        said = {
            "op": key.op.op,
            "call": key.op.call,
            "graph": key.op.graph,
            "path": key.op.path,
            "iteration": key.op.iteration,
            "role": key.role.value,
            "index": key.index,
            "sample": key.part.sample,
            "step": key.part.step,
            "rank": key.part.rank,
            "type": end.type,
            "dtype": end.dtype,
            "shape": list(end.shape),
            "module": end.module,
            "source": end.source,
            "name": end.name,
            "order": end.order,
        }
        flat.update({f"{side}_{k}": v for k, v in said.items()})
    for name in _JUDGED:
        value = getattr(row, name)
        flat[name] = list(value) if name == "notes" else value
    flat["verdict"] = row.verdict.value
    for name, value in (row.numbers or {}).items():
        if name in _NUMBERS:
            flat[name] = json.dumps(value) if name in _PACKED and value is not None else value
    made = row.introduced
    if made is not None:
        flat.update(
            introduced_rmse=made.rmse,
            introduced_psnr=made.psnr,
            introduced_sqnr=made.sqnr,
            introduced_rel_l2=made.rel_l2,
            introduced_max_abs=made.max_abs,
            expected_rmse=made.expected,
            introduced_ratio=made.ratio,
            introduced_preset=made.preset,
            introduced_region=list(made.region),
        )
    flat["introduced_unknown"] = row.unknown
    flat["introduced_verdict"] = row.introduced_verdict.value
    return flat


def save(result: Result, path: Path, overwrite: bool = False) -> Path:
    """Write a comparison; without its JSON, which comes last, the folder is none."""
    if path.exists() and not path.is_dir():
        raise InputError(f"a folder or nothing at {path}", "a file", "choose another -o")
    fresh = not path.exists()
    if not fresh:
        if is_comparison(path) and not overwrite:
            raise InputError(
                f"no comparison at {path} yet", "one is there", "choose another -o or remove it"
            )
        if not is_comparison(path) and not all(is_own(entry) for entry in path.iterdir()):
            raise InputError(
                f"a comparison or nothing at {path}", "something else", "choose another -o"
            )
    try:
        path.mkdir(parents=True, exist_ok=True)
        with replacing(path / TABLE_NAME) as temporary:
            result.table.write_parquet(temporary)
        with replacing(path / JSON_NAME) as temporary:
            temporary.write_text(json.dumps(_about(result, path), indent=1))
    except OSError as error:
        if fresh:
            with suppress(OSError):
                path.rmdir()
        raise InputError(f"{path} to be written", one_line(error)) from error
    return path


def keep_diagnosis(result: Result, path: Path) -> bool:
    """Write what was found into a comparison that is saved already; nothing else is touched.
    What was found with more models at hand stays as it is, and the answer is False."""
    try:
        about = json.loads((path / JSON_NAME).read_text())
        known = _diagnosis(about)
        made = result.diagnosis
        if made is None or (known is not None and not set(known.models) <= set(made.models)):
            return False
        about["diagnosis"] = made.as_dict()
        about["findings"] = [finding.as_dict() for finding in made.findings]
        with replacing(path / JSON_NAME) as temporary:
            temporary.write_text(json.dumps(about, indent=1))
    except OSError as error:
        raise InputError(f"{path} to be written", one_line(error)) from error
    return True


def is_own(entry: Path) -> bool:
    """Whether an entry of a folder belongs to a comparison, finished or not."""
    names = (JSON_NAME, TABLE_NAME, PROGRESS_LOG, LOCK)
    return entry.suffix == ".run" or entry.name.removesuffix(".tmp") in names


def _about(result: Result, home: Path) -> dict[str, Any]:
    choice: Any = result.choice
    if isinstance(choice, Limits):
        choice = {f.name: getattr(choice, f.name) for f in fields(Limits)}
    return {
        "schema": SCHEMA,
        "created": result.created,
        "verdict": result.verdict.value,
        "coverage": result.coverage.as_dict(),
        "limits": choice,
        "target": _with_path(result.target, lambda run: os.path.relpath(run, home)),
        "reference": _with_path(result.reference, lambda run: os.path.relpath(run, home)),
        "warnings": list(result.warnings),
        "verified": {side: dict(counts) for side, counts in result.verified.items()},
        "through": result.through and result.through.as_dict(),
        "unmatched": [u.__dict__ for u in result.unmatched],
        "edges": [
            [_op_list(op), [_op_list(i) for i in inputs]] for op, inputs in result.edges.items()
        ],
        "diagnosis": result.diagnosis and result.diagnosis.as_dict(),
        "findings": [finding.as_dict() for finding in result.findings],
    }


def _with_path(about: Mapping[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """Runs are named relative to the comparison, so that both can be moved together."""
    return {**about, "path": move(about["path"]) if about["path"] else ""}


def _op_list(key: OpKey) -> list[Any]:
    return [key.op, key.call, key.graph, key.path, key.iteration]


def is_comparison(path: Path) -> bool:
    """Whether a folder holds a comparison."""
    return (path / JSON_NAME).is_file()


def load(path: Path) -> Result:
    """Read a comparison back."""
    if not is_comparison(path):
        if (path / PROGRESS_LOG).is_file():
            raise InputError(
                f"a finished comparison at {path}",
                "one that was interrupted",
                "go on with it by: syncpoint compare ... --resume",
            )
        raise InputError(f"a comparison (a folder with {JSON_NAME})", str(path))
    try:
        about = json.loads((path / JSON_NAME).read_text())
        table = pl.read_parquet(path / TABLE_NAME)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise FormatError(f"a whole comparison in {path}", str(error).splitlines()[0]) from error
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        found = about.get("schema") if isinstance(about, dict) else type(about).__name__
        raise FormatError(
            f"schema {SCHEMA} in {path / JSON_NAME}", repr(found), "use a newer syncpoint"
        )
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise FormatError(f"all columns in {path / TABLE_NAME}", f"no {missing[0]}")
    try:
        return Result(
            _with_path(about["target"], lambda run: os.path.normpath(path / run)),
            _with_path(about["reference"], lambda run: os.path.normpath(path / run)),
            [row_of(flat) for flat in table.iter_rows(named=True)],
            [Lonely(**u) for u in about["unmatched"]],
            _choice(about["limits"]),
            {OpKey(*op): tuple(OpKey(*i) for i in inputs) for op, inputs in about["edges"]},
            tuple(about["warnings"]),
            about["created"],
            Through.of_dict(about["through"]) if about.get("through") else None,
            _diagnosis(about),
            _verified(about),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"a whole comparison in {path}", f"{error!r}") from error


def _diagnosis(about: Mapping[str, Any]) -> Diagnosis | None:
    said = about.get("diagnosis")
    return Diagnosis.of_dict(said, about["findings"]) if said else None


def _verified(about: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The counts of verified tensors; none in comparisons of versions that did not check."""
    return {
        str(side): {str(state): int(count) for state, count in counts.items()}
        for side, counts in (about.get("verified") or {}).items()
    }


def _choice(said: Any) -> Choice:
    if said == AUTO:
        return AUTO
    pairs: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in said.items()}
    return Limits(**pairs)


def row_of(flat: Mapping[str, Any]) -> Row:
    """A row of the table as an object again."""
    numbers = {name: flat[name] for name in _NUMBERS if flat[name] is not None}
    if numbers:
        expected = METRIC_COLUMNS if flat["basis"] == "values" else _BOUNDS
        numbers = dict.fromkeys(expected) | numbers
        for name in _PACKED & set(numbers):
            if numbers[name] is not None:
                numbers[name] = tuple(tuple(pair) for pair in json.loads(numbers[name]))
    made = None
    if flat["introduced_rmse"] is not None:
        made = Introduced(
            flat["introduced_rmse"],
            flat["introduced_psnr"],
            flat["introduced_sqnr"],
            flat["introduced_rel_l2"],
            flat["introduced_max_abs"],
            flat["expected_rmse"],
            flat["introduced_ratio"],
            flat["introduced_preset"],
            tuple(flat["introduced_region"]),
        )
    judged = {name: flat[name] for name in _JUDGED if name not in ("verdict", "notes")}
    return Row(
        target=_end(flat, "target"),
        reference=_end(flat, "reference"),
        numbers=numbers or None,
        introduced=made,
        unknown=flat["introduced_unknown"],
        verdict=Verdict(flat["verdict"]),
        introduced_verdict=Verdict(flat["introduced_verdict"]),
        notes=tuple(flat["notes"]),
        **judged,
    )


def _end(flat: Mapping[str, Any], side: str) -> End:
    said = {name: flat[f"{side}_{name}"] for name in _END}
    op = OpKey(said["op"], said["call"], said["graph"], said["path"], said["iteration"])
    part = Part(said["sample"], said["step"], said["rank"])
    return End(
        TensorKey(op, Role(said["role"]), said["index"], part),
        said["type"],
        said["dtype"],
        tuple(said["shape"]),
        said["module"],
        said["source"],
        said["name"],
        said["order"],
    )
