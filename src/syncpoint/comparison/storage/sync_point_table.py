"""Write and read `syncpoints.parquet`, the table of a comparison: verify and load its columns as a
data frame, rows to cells and back, reasons in parts.

Ordinary tools can read it. Together with `comparison.json` it contains the whole result.
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
from syncpoint.files.file_checksums import DamagedFileError
from syncpoint.files.read_errors import CHECK_FOLDER, read_errors
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
    "terms_error": pl.Float64,
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
"""Every column of the table in order, with its type."""


ADDED_COLUMNS: dict[str, int] = {
    **dict.fromkeys(("outliers", "outliers_from", "bulk_sqnr", "bulk_rmse", "bulk_max_abs"), 2),
    **{f"{name}_{part}": 3 for name in ("reason", "introduced_unknown") for part in REASON_PARTS},
}
"""Columns that were added later, with the schema that added them; null in files of older schemas.
A new column must be added here or to `OPTIONAL_COLUMNS`."""
OPTIONAL_COLUMNS = frozenset({"ends_only", "nearer_to_float64", "terms_error"})
"""Columns that were added without a new schema, since other columns imply them or a row needs none;
a file of any schema may lack them."""
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
"""Columns that equal fields of `Row`."""
_STATISTICS_COLUMNS = [name for name in _COARSE_COLUMNS if not name.startswith("same_")]
_JSON_COLUMNS = {name for name, kind in METRIC_COLUMNS.items() if kind is pl.String}
"""Metrics that are not a single number; stored as JSON."""


def rows_to_table(rows: list[Row]) -> pl.DataFrame:
    """The table of these rows."""
    flat = [_row_to_cells(row) for row in rows]
    for cells in flat:
        for name in _TEXT_COLUMNS:
            value = cells[name]
            # Polars writes lone surrogates and then cannot read them.
            if value and not (isinstance(value, str) and value.isascii()):
                cells[name] = make_encodable(value)
    return pl.DataFrame(flat, schema=COLUMNS, orient="row")


def _row_to_cells(row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = dict.fromkeys(COLUMNS)
    for side, end in (("target", row.target), ("reference", row.reference)):
        key = end.key
        end_cells = {
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
        cells.update({f"{side}_{k}": v for k, v in end_cells.items()})
    cells.update({name: getattr(row, name) for name in _ROW_FIELDS})
    cells["notes"] = list(row.notes)
    cells["verdict"] = row.verdict.value
    cells["unmeasured"] = str(row.unmeasured)
    cells |= _reason_cells("reason", row.why)
    for name, value in (row.numbers or {}).items():
        if name in _NUMBER_COLUMNS:
            cells[name] = (
                json.dumps(value) if name in _JSON_COLUMNS and value is not None else value
            )
    introduced = row.introduced
    if introduced is not None:
        cells.update(
            introduced_rmse=introduced.rmse,
            introduced_psnr=introduced.psnr,
            introduced_sqnr=introduced.sqnr,
            introduced_rel_l2=introduced.rel_l2,
            introduced_max_abs=introduced.max_abs,
            expected_rmse=introduced.expected,
            introduced_ratio=introduced.ratio,
            introduced_preset=introduced.preset,
            introduced_region=list(introduced.region),
            terms_error=introduced.terms_error,
        )
    cells |= _reason_cells("introduced_unknown", row.unknown)
    cells["introduced_verdict"] = row.introduced_verdict.value
    return cells


def _reason_cells(name: str, reason: Reason) -> dict[str, str]:
    """A reason as a sentence, and its parts."""
    return {
        name: str(reason),
        f"{name}_code": reason.code or "",
        f"{name}_detail": reason.detail,
        f"{name}_cure": reason.cure,
    }


def _reason_from_cells(cells: Mapping[str, Any], name: str) -> Reason:
    code, detail, cure = (cells[f"{name}_{part}"] for part in REASON_PARTS)
    return Reason(ReasonCode(code) if code else None, detail, cure)


def row_from_table(cells: Mapping[str, Any]) -> Row:
    """The row of one line of the table."""
    numbers = {name: cells[name] for name in _NUMBER_COLUMNS if cells[name] is not None}
    if numbers:
        expected = METRIC_COLUMNS if cells["basis"] == "values" else _STATISTICS_COLUMNS
        numbers = dict.fromkeys(expected) | numbers
        for name in _JSON_COLUMNS & set(numbers):
            if numbers[name] is not None:
                numbers[name] = tuple(tuple(pair) for pair in json.loads(numbers[name]))
    introduced = None
    if cells["introduced_rmse"] is not None:
        introduced = Introduced(
            rmse=cells["introduced_rmse"],
            psnr=cells["introduced_psnr"],
            sqnr=cells["introduced_sqnr"],
            rel_l2=cells["introduced_rel_l2"],
            max_abs=cells["introduced_max_abs"],
            expected=cells["expected_rmse"],
            ratio=cells["introduced_ratio"],
            preset=cells["introduced_preset"],
            region=tuple(cells["introduced_region"]),
            terms_error=cells["terms_error"],
        )
    why = _reason_from_cells(cells, "reason")
    return Row(
        target=_end_from_cells(cells, "target"),
        reference=_end_from_cells(cells, "reference"),
        numbers=numbers or None,
        introduced=introduced,
        unknown=_reason_from_cells(cells, "introduced_unknown"),
        # Judging takes the reason from `unmeasured`, so that both are the same.
        unmeasured=why if cells["unmeasured"] else NO_REASON,
        verdict=Verdict(cells["verdict"]),
        why=why,
        introduced_verdict=Verdict(cells["introduced_verdict"]),
        notes=tuple(cells["notes"]),
        **{name: cells[name] for name in _ROW_FIELDS},
    )


def _end_from_cells(cells: Mapping[str, Any], side: str) -> End:
    fields_of_end = {name: cells[f"{side}_{name}"] for name in _END_COLUMNS}
    op = OpKey(
        fields_of_end["op"],
        fields_of_end["call"],
        fields_of_end["graph"],
        fields_of_end["path"],
        fields_of_end["iteration"],
    )
    part = Part(fields_of_end["sample"], fields_of_end["step"], fields_of_end["rank"])
    return End(
        key=TensorKey(op, Role(fields_of_end["role"]), fields_of_end["index"], part),
        type=fields_of_end["type"],
        dtype=fields_of_end["dtype"],
        shape=tuple(fields_of_end["shape"]),
        module=fields_of_end["module"],
        source=fields_of_end["source"],
        name=fields_of_end["name"],
        order=fields_of_end["order"],
    )


_COLUMNS_BYTES, _ROW_BYTES, _NUMBERS_BYTES = 1_100, 1_500, 4_500
"""Memory of a row in columns, as an object, and in addition if it was measured by values."""


_MAX_EXPANSION = 200
"""Maximum memory of the rows as a multiple of the file size. Measured numbers compress badly, so
a table that needs far more was not written by Syncpoint."""


_KEY_COLUMNS = [f"{side}_{name}" for side in ("target", "reference") for name in TENSOR_KEY]


def open_table(path: Path, document: Document) -> ParquetTable:
    """The verified table of a comparison, not read yet."""
    record = document.files.get(TABLE_NAME)
    if record is None and document.is_verified:
        raise DamagedFileError(path / JSON_NAME, f"it records no checksum of {TABLE_NAME}", RESTORE)
    with read_errors(f"the comparison at {path}", cure=CHECK_FOLDER):
        table = ParquetTable(path / TABLE_NAME, record, RESTORE)
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
    """The verified table of a comparison, with all its columns."""
    table = open_table(path, document)
    needed_bytes = table.rows * _COLUMNS_BYTES
    table.check_memory(needed_bytes, _MAX_EXPANSION, "read some of its columns with Polars")
    return upgrade_table(table.read(COLUMNS), document.schema)


def read_rows(table: ParquetTable, schema: int) -> list[Row]:
    """The rows as objects, read in slices to limit memory."""
    measured = table.rows - table.read({"count": COLUMNS["count"]})["count"].null_count()
    needed_bytes = table.rows * _ROW_BYTES + measured * _NUMBERS_BYTES
    cure = "open it with syncpoint view, which needs less memory"
    table.check_memory(needed_bytes, _MAX_EXPANSION, cure)
    slices = (upgrade_table(table_slice, schema) for table_slice in table.slices(COLUMNS))
    return [
        row_from_table(flat) for table_slice in slices for flat in table_slice.iter_rows(named=True)
    ]
