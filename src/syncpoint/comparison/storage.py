"""A comparison on disk: `NAME.cmp/` with `comparison.json` and `syncpoints.parquet`.

The table is what ordinary tools read; together with the JSON it gives back the whole result, so
that it can be judged and shown again without its runs. Both are verified by their checksums before
they are parsed; comparisons of schema 1, which have none, open as unverified.
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

from syncpoint.comparison.document_check import broken_key
from syncpoint.comparison.findings import Diagnosis
from syncpoint.comparison.judging import AUTO, Choice
from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import End, Introduced, Row
from syncpoint.comparison.through import Through
from syncpoint.errors import FormatError, InputError
from syncpoint.foreign_text import encodable
from syncpoint.metrics import Measurement
from syncpoint.metrics.limits import Limits
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.checksums import (
    UNVERIFIED,
    Document,
    damaged,
    files_to_json,
    read_document,
    sealed,
)
from syncpoint.run.files import one_line, write_atomically
from syncpoint.run.lock import LOCK, sole_writer
from syncpoint.run.model import OpKey, Part, Role, TensorKey
from syncpoint.run.outputs import write_errors
from syncpoint.run.parquet import ParquetTable
from syncpoint.run.partial import Partial, partial_of
from syncpoint.run.tables import TENSOR_KEY, write_parquet

SCHEMA = 2
"""Schema 1 had no checksums; it is still read."""
RESTORE = "restore it from a copy, or compare the two runs again"
"""What to do about a damaged comparison."""
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

ADDED_COLUMNS: dict[str, int] = dict.fromkeys(
    ("outliers", "outliers_from", "bulk_sqnr", "bulk_rmse", "bulk_max_abs"), 2
)
"""Columns that were added later, with the schema that added them: in files of an older schema they
are null. Whoever adds a column to the table adds it here too."""
_MAY_BE_NULL = frozenset({*METRIC_COLUMNS, *_COARSE, *_ON_DEMAND, *_INTRODUCED}) - {
    "introduced_unknown",
    "introduced_verdict",
}
_COLUMNS_BYTES, _ROW_BYTES, _NUMBERS_BYTES = 1_100, 1_500, 4_500
"""Memory that a row takes in columns, as an object, and in addition as an object that was measured
by values."""
_MAX_EXPANSION = 200
"""How many times the size of its file the rows may take: numbers that were measured are hard to
compress, so a table that would take far more is not one that we wrote."""
_KEY = [f"{side}_{name}" for side in ("target", "reference") for name in TENSOR_KEY]

_NUMBERS = {**METRIC_COLUMNS, **_COARSE, **_ON_DEMAND}
_TEXTS = [name for name, kind in COLUMNS.items() if kind in (pl.String, pl.List(pl.String))]
_BOUNDS = [name for name in _COARSE if not name.startswith("same_")]
_PACKED = {name for name, kind in METRIC_COLUMNS.items() if kind is pl.String}
"""Metrics that are no single number; JSON in the table."""


def frame(rows: list[Row]) -> pl.DataFrame:
    """The table of a comparison."""
    flat = [_flat(row) for row in rows]
    for cells in flat:
        for name in _TEXTS:
            value = cells[name]
            # Polars writes half a character as it is, and then cannot read it.
            if value and not (isinstance(value, str) and value.isascii()):
                cells[name] = encodable(value)
    return pl.DataFrame(flat, schema=COLUMNS, orient="row")


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
    """Write a comparison; without its JSON, which comes last, the folder is none.

    Table and JSON of two comparisons never stand together: one process at a time writes, both
    files are on the disk before either gets its name, and an older JSON goes before the table.
    """
    fresh = _check_place(path, overwrite)
    try:
        with write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            with sole_writer(path):
                _check_place(path, overwrite)  # another process may have finished meanwhile
                with Partial(path / TABLE_NAME) as table, Partial(path / JSON_NAME) as about:
                    record = write_parquet(result.table, table.path)
                    body = {**_about(result, path), "files": files_to_json({TABLE_NAME: record})}
                    about.path.write_bytes(sealed(json.dumps(encodable(body), indent=1)))
                    about.publish_after(table)
    except BaseException:
        if fresh:
            with suppress(OSError):
                path.rmdir()
        raise
    return path


def _check_place(path: Path, overwrite: bool) -> bool:
    """Whether nothing is at `path`; an InputError unless a comparison may be written there."""
    if not path.exists():
        return True
    if not path.is_dir():
        raise InputError(f"a folder or nothing at {path}", "a file", "choose another -o")
    if is_comparison(path) and not overwrite:
        raise InputError(
            f"no comparison at {path} yet", "one is there", "choose another -o or remove it"
        )
    if not is_comparison(path) and not all(is_own(entry) for entry in path.iterdir()):
        raise InputError(
            f"a comparison or nothing at {path}", "something else", "choose another -o"
        )
    return False


def keep_diagnosis(result: Result, path: Path) -> bool:
    """Write what was found into a comparison that is saved already; nothing else is touched.
    What was found with more models at hand, or by a diagnosis that did not fail as this one did,
    stays as it is, and the answer is False."""
    with write_errors(path), sole_writer(path):
        document = read_about(path)
        about = document.body
        known = _diagnosis(about)
        made = result.diagnosis
        if made is None or (known is not None and not set(known.models) <= set(made.models)):
            return False
        if known is not None and made.has_failed and not known.has_failed:
            return False
        about["diagnosis"] = made.as_dict()
        about["findings"] = [finding.as_dict() for finding in made.findings]
        text = json.dumps(about, indent=1)
        # What could not be verified gets no checksum now: it would vouch for damage.
        write_atomically(path / JSON_NAME, sealed(text) if document.is_verified else text.encode())
    return True


def is_own(entry: Path) -> bool:
    """Whether an entry of a folder belongs to a comparison, finished or not."""
    names = (JSON_NAME, TABLE_NAME, PROGRESS_LOG, LOCK)
    name = partial_of(entry.name) or entry.name.removesuffix(".tmp")
    return entry.suffix == ".run" or name in names


def _about(result: Result, home: Path) -> dict[str, Any]:
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
        "target": _with_path(result.target, lambda run: os.path.relpath(run, home)),
        "reference": _with_path(result.reference, lambda run: os.path.relpath(run, home)),
        "warnings": list(result.warnings),
        "verified": {side: dict(counts) for side, counts in result.verified.items()},
        "through": result.through and result.through.as_dict(),
        "unmatched": [u.__dict__ for u in result.unmatched],
        "unkept": dict(result.unkept),
        "partial": list(result.partial),
        "min_coverage": result.min_coverage,
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


def read_about(path: Path, before: bytes = b"") -> Document:
    """The verified `comparison.json` of a comparison; with `before` only its first keys."""
    if not is_comparison(path):
        if (path / PROGRESS_LOG).is_file():
            raise InputError(
                f"a finished comparison at {path}",
                "one that was interrupted",
                "go on with it by: syncpoint compare ... --resume",
            )
        raise InputError(f"a comparison (a folder with {JSON_NAME})", str(path))
    try:
        document = read_document(path / JSON_NAME, SCHEMA, RESTORE, before=before)
    except OSError as error:
        raise InputError(f"a readable comparison at {path}", one_line(error)) from error
    broken = broken_key(document.body, is_whole=not before)
    if broken:
        raise damaged(path / JSON_NAME, f"its {broken} is missing or not as it should be", RESTORE)
    return document


def open_table(path: Path, document: Document) -> ParquetTable:
    """The verified table of a comparison, with all its columns and one row a sync point."""
    record = document.files.get(TABLE_NAME)
    if record is None and document.is_verified:
        raise damaged(path / JSON_NAME, f"it records no checksum of {TABLE_NAME}", RESTORE)
    try:
        table = ParquetTable(path / TABLE_NAME, record, RESTORE)
    except OSError as error:
        raise InputError(f"a readable comparison at {path}", one_line(error)) from error
    if document.is_verified:
        table.check_rows(document.body.get("rows"))
    newer = [name for name, schema in ADDED_COLUMNS.items() if schema > document.schema]
    table.check_columns(COLUMNS, newer)
    if not document.is_verified:
        never_null = [name for name in COLUMNS if name not in {*_MAY_BE_NULL, *newer}]
        table.check_no_nulls({name: COLUMNS[name] for name in never_null})
    table.check_keys(_KEY)
    return table


def read_columns(path: Path, document: Document) -> pl.DataFrame:
    """The verified table of a comparison with all its columns."""
    table = open_table(path, document)
    needed = table.rows * _COLUMNS_BYTES
    table.check_memory(needed, _MAX_EXPANSION, "read some of its columns with Polars")
    return table.read(COLUMNS)


def _read_rows(table: ParquetTable) -> list[Row]:
    """The rows as objects, made from some of the table at a time."""
    measured = table.rows - table.read({"count": COLUMNS["count"]})["count"].null_count()
    needed = table.rows * _ROW_BYTES + measured * _NUMBERS_BYTES
    cure = "look at it with syncpoint view, which needs less"
    table.check_memory(needed, _MAX_EXPANSION, cure)
    return [row_of(flat) for some in table.slices(COLUMNS) for flat in some.iter_rows(named=True)]


def why_unverified(document: Document) -> str:
    """Why a comparison could not be verified, it or the one it was made from; "" if it was."""
    return str(document.body.get("unverified") or ("" if document.is_verified else UNVERIFIED))


def load(path: Path) -> Result:
    """Read a comparison back."""
    document = read_about(path)
    try:
        table = open_table(path, document)
    except FormatError:
        # Another process may have replaced both files between the two looks.
        stale, document = document, read_about(path)
        if document == stale:
            raise
        table = open_table(path, document)
    about = document.body
    try:
        return Result(
            _with_path(about["target"], lambda run: os.path.normpath(path / run)),
            _with_path(about["reference"], lambda run: os.path.normpath(path / run)),
            _read_rows(table),
            [Lonely(**u) for u in about["unmatched"]],
            _choice(about["limits"]),
            {OpKey(*op): tuple(OpKey(*i) for i in inputs) for op, inputs in about["edges"]},
            tuple(about["warnings"]),
            about["created"],
            Through.of_dict(about["through"]) if about.get("through") else None,
            _diagnosis(about),
            about.get("unkept", {}),
            tuple(about.get("partial", ())),
            about.get("min_coverage"),
            why_unverified(document),
            _verified(about),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path / JSON_NAME, f"{error!r}"[:200], RESTORE) from error


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
