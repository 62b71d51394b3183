"""The table of a comparison: rows as columns of `syncpoints.parquet`, and rows read back from them.

It is what ordinary tools read; together with `comparison.json` it gives back the whole result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from syncpoint.comparison.rows import End, Introduced, Row
from syncpoint.comparison.storage.file_names import JSON_NAME, RESTORE, TABLE_NAME
from syncpoint.comparison.storage.older_schemas import upgrade_table
from syncpoint.errors import InputError, describe_error
from syncpoint.files.file_checksums import DamagedFileError
from syncpoint.files.sealed_json import Document
from syncpoint.foreign_text import make_encodable
from syncpoint.metrics import Measurement
from syncpoint.metrics.verdict import NO_REASON, REASON_PARTS, Reason, ReasonCode, Verdict
from syncpoint.run.model import OpKey, Part, Role, TensorKey
from syncpoint.run.storage.checked_parquet import ParquetTable
from syncpoint.run.storage.table_columns import TENSOR_KEY

_END_COLUMNS: dict[str, Any] = {
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
_COARSE_COLUMNS: dict[str, Any] = {
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
_ON_DEMAND_COLUMNS: dict[str, Any] = {
    "worst_slice": pl.Float64,
    "worst_slice_axis": pl.Int64,
    "worst_slice_index": pl.Int64,
}
_INTRODUCED_COLUMNS: dict[str, Any] = {
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
    "introduced_unknown_code": pl.String,
    "introduced_unknown_detail": pl.String,
    "introduced_unknown_cure": pl.String,
    "introduced_verdict": pl.String,
}
_JUDGED_COLUMNS: dict[str, Any] = {
    "evidence": pl.String,
    "confidence": pl.Float64,
    "view": pl.String,
    "basis": pl.String,
    "preset": pl.String,
    "verdict": pl.String,
    "reason": pl.String,
    "reason_code": pl.String,
    "reason_detail": pl.String,
    "reason_cure": pl.String,
    "unmeasured": pl.String,
    "output": pl.Boolean,
    "first_non_finite": pl.Boolean,
    "ends_only": pl.Boolean,
    "nearer_to_float64": pl.Boolean,
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
    **{f"target_{k}": v for k, v in _END_COLUMNS.items()},
    **{f"reference_{k}": v for k, v in _END_COLUMNS.items()},
    **_JUDGED_COLUMNS,
    **METRIC_COLUMNS,
    **_COARSE_COLUMNS,
    **_ON_DEMAND_COLUMNS,
    **_INTRODUCED_COLUMNS,
}
"""Every column of the table, in order, with its type."""


ADDED_COLUMNS: dict[str, int] = {
    **dict.fromkeys(("outliers", "outliers_from", "bulk_sqnr", "bulk_rmse", "bulk_max_abs"), 2),
    **{f"{name}_{part}": 3 for name in ("reason", "introduced_unknown") for part in REASON_PARTS},
}
"""Columns that were added later, with the schema that added them: in files of an older schema they
are null. Whoever adds a column to the table adds it here too, or to `OPTIONAL_COLUMNS`."""
OPTIONAL_COLUMNS = frozenset({"ends_only", "nearer_to_float64"})
"""Columns that were added without a new schema, since they can be told from the other columns; a
file of any schema may lack them."""
MAY_BE_NULL = frozenset(
    {*METRIC_COLUMNS, *_COARSE_COLUMNS, *_ON_DEMAND_COLUMNS, *_INTRODUCED_COLUMNS}
) - {
    *(name for name in _INTRODUCED_COLUMNS if name.startswith("introduced_unknown")),
    "introduced_verdict",
}
"""Columns that need not have a value in every row."""

_NUMBER_COLUMNS = {**METRIC_COLUMNS, **_COARSE_COLUMNS, **_ON_DEMAND_COLUMNS}
_TEXT_COLUMNS = [name for name, kind in COLUMNS.items() if kind in (pl.String, pl.List(pl.String))]
_ROW_FIELDS = (
    *("evidence", "confidence", "view", "basis", "preset", "output", "first_non_finite"),
    "ends_only",
    "nearer_to_float64",
)
"""Columns that are fields of a row as they are."""
_STATISTICS_COLUMNS = [name for name in _COARSE_COLUMNS if not name.startswith("same_")]
_JSON_COLUMNS = {name for name, kind in METRIC_COLUMNS.items() if kind is pl.String}
"""Metrics that are no single number; JSON in the table."""


def rows_to_table(rows: list[Row]) -> pl.DataFrame:
    """The table of a comparison."""
    flat = [_row_to_cells(row) for row in rows]
    for cells in flat:
        for name in _TEXT_COLUMNS:
            value = cells[name]
            # Polars writes half a character as it is, and then cannot read it.
            if value and not (isinstance(value, str) and value.isascii()):
                cells[name] = make_encodable(value)
    return pl.DataFrame(flat, schema=COLUMNS, orient="row")


def _row_to_cells(row: Row) -> dict[str, Any]:
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
    flat.update({name: getattr(row, name) for name in _ROW_FIELDS})
    flat["notes"] = list(row.notes)
    flat["verdict"] = row.verdict.value
    flat["unmeasured"] = str(row.unmeasured)
    flat |= _reason_cells("reason", row.why)
    for name, value in (row.numbers or {}).items():
        if name in _NUMBER_COLUMNS:
            flat[name] = json.dumps(value) if name in _JSON_COLUMNS and value is not None else value
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
    flat |= _reason_cells("introduced_unknown", row.unknown)
    flat["introduced_verdict"] = row.introduced_verdict.value
    return flat


def _reason_cells(name: str, reason: Reason) -> dict[str, str]:
    """A reason as a sentence, and its parts."""
    return {
        name: str(reason),
        f"{name}_code": reason.code or "",
        f"{name}_detail": reason.detail,
        f"{name}_cure": reason.cure,
    }


def _reason_from_cells(flat: Mapping[str, Any], name: str) -> Reason:
    code, detail, cure = (flat[f"{name}_{part}"] for part in REASON_PARTS)
    return Reason(ReasonCode(code) if code else None, detail, cure)


def row_from_table(flat: Mapping[str, Any]) -> Row:
    """A row of the table as an object again."""
    numbers = {name: flat[name] for name in _NUMBER_COLUMNS if flat[name] is not None}
    if numbers:
        expected = METRIC_COLUMNS if flat["basis"] == "values" else _STATISTICS_COLUMNS
        numbers = dict.fromkeys(expected) | numbers
        for name in _JSON_COLUMNS & set(numbers):
            if numbers[name] is not None:
                numbers[name] = tuple(tuple(pair) for pair in json.loads(numbers[name]))
    made = None
    if flat["introduced_rmse"] is not None:
        made = Introduced(
            rmse=flat["introduced_rmse"],
            psnr=flat["introduced_psnr"],
            sqnr=flat["introduced_sqnr"],
            rel_l2=flat["introduced_rel_l2"],
            max_abs=flat["introduced_max_abs"],
            expected=flat["expected_rmse"],
            ratio=flat["introduced_ratio"],
            preset=flat["introduced_preset"],
            region=tuple(flat["introduced_region"]),
        )
    why = _reason_from_cells(flat, "reason")
    return Row(
        target=_end_from_cells(flat, "target"),
        reference=_end_from_cells(flat, "reference"),
        numbers=numbers or None,
        introduced=made,
        unknown=_reason_from_cells(flat, "introduced_unknown"),
        # The judge takes the reason from here, so that the two are the same.
        unmeasured=why if flat["unmeasured"] else NO_REASON,
        verdict=Verdict(flat["verdict"]),
        why=why,
        introduced_verdict=Verdict(flat["introduced_verdict"]),
        notes=tuple(flat["notes"]),
        **{name: flat[name] for name in _ROW_FIELDS},
    )


def _end_from_cells(flat: Mapping[str, Any], side: str) -> End:
    said = {name: flat[f"{side}_{name}"] for name in _END_COLUMNS}
    op = OpKey(said["op"], said["call"], said["graph"], said["path"], said["iteration"])
    part = Part(said["sample"], said["step"], said["rank"])
    return End(
        key=TensorKey(op, Role(said["role"]), said["index"], part),
        type=said["type"],
        dtype=said["dtype"],
        shape=tuple(said["shape"]),
        module=said["module"],
        source=said["source"],
        name=said["name"],
        order=said["order"],
    )


_COLUMNS_BYTES, _ROW_BYTES, _NUMBERS_BYTES = 1_100, 1_500, 4_500
"""Memory that a row takes in columns, as an object, and in addition as an object that was measured
by values."""


_MAX_EXPANSION = 200
"""How many times the size of its file the rows may take: numbers that were measured are hard to
compress, so a table that would take far more is not one that we wrote."""


_KEY_COLUMNS = [f"{side}_{name}" for side in ("target", "reference") for name in TENSOR_KEY]


def open_table(path: Path, document: Document) -> ParquetTable:
    """The verified table of a comparison, with all its columns and one row a sync point."""
    record = document.files.get(TABLE_NAME)
    if record is None and document.is_verified:
        raise DamagedFileError(path / JSON_NAME, f"it records no checksum of {TABLE_NAME}", RESTORE)
    try:
        table = ParquetTable(path / TABLE_NAME, record, RESTORE)
    except OSError as error:
        raise InputError(f"a readable comparison at {path}", describe_error(error)) from error
    if document.is_verified:
        table.check_rows(document.body.get("rows"))
    newer = [name for name, schema in ADDED_COLUMNS.items() if schema > document.schema]
    newer += OPTIONAL_COLUMNS
    table.check_columns(COLUMNS, newer)
    if not document.is_verified:
        never_null = [name for name in COLUMNS if name not in {*MAY_BE_NULL, *newer}]
        table.check_no_nulls({name: COLUMNS[name] for name in never_null})
    table.check_keys(_KEY_COLUMNS)
    return table


def read_columns(path: Path, document: Document) -> pl.DataFrame:
    """The verified table of a comparison with all its columns."""
    table = open_table(path, document)
    needed = table.rows * _COLUMNS_BYTES
    table.check_memory(needed, _MAX_EXPANSION, "read some of its columns with Polars")
    return upgrade_table(table.read(COLUMNS), document.schema)


def read_rows(table: ParquetTable, schema: int) -> list[Row]:
    """The rows as objects, made from some of the table at a time."""
    measured = table.rows - table.read({"count": COLUMNS["count"]})["count"].null_count()
    needed = table.rows * _ROW_BYTES + measured * _NUMBERS_BYTES
    cure = "look at it with syncpoint view, which needs less"
    table.check_memory(needed, _MAX_EXPANSION, cure)
    slices = (upgrade_table(some, schema) for some in table.slices(COLUMNS))
    return [row_from_table(flat) for some in slices for flat in some.iter_rows(named=True)]
