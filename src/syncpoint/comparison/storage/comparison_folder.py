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

from syncpoint.comparison.error_split import Through
from syncpoint.comparison.findings import Diagnosis
from syncpoint.comparison.judging import AUTO, Choice
from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import Row
from syncpoint.comparison.storage.document_check import broken_key
from syncpoint.comparison.storage.older_schemas import upgrade_document, upgrade_table
from syncpoint.comparison.storage.sync_point_table import (
    ADDED_COLUMNS,
    COLUMNS,
    MAY_BE_NULL,
    OPTIONAL_COLUMNS,
    row_of,
)
from syncpoint.errors import FormatError, InputError, describe_error
from syncpoint.files.atomic_writes import Partial, final_name_of, write_atomically
from syncpoint.files.file_checksums import DamagedFileError, files_to_json
from syncpoint.files.sealed_json import UNVERIFIED, Document, read_document, seal_json
from syncpoint.files.write_errors import write_errors
from syncpoint.files.writer_lock import LOCK, sole_writer
from syncpoint.foreign_text import make_encodable
from syncpoint.matching.masks import masks_as_data, read_masks
from syncpoint.metrics.limits import Limits
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey
from syncpoint.run.storage.checked_parquet import ParquetTable
from syncpoint.run.storage.table_columns import TENSOR_KEY
from syncpoint.run.storage.table_writer import write_parquet

SCHEMA = 3
"""Schema 1 had no checksums, schema 2 no parts of a reason, schema 3 no `nearer_to_float64`; all of
them are still read."""
RESTORE = "restore it from a copy, or compare the two runs again"
"""What to do about a damaged comparison."""
JSON_NAME = "comparison.json"
TABLE_NAME = "syncpoints.parquet"
PROGRESS_LOG = "progress.log"
"""What is measured so far, while the comparison is unfinished."""

_COLUMNS_BYTES, _ROW_BYTES, _NUMBERS_BYTES = 1_100, 1_500, 4_500
"""Memory that a row takes in columns, as an object, and in addition as an object that was measured
by values."""
_MAX_EXPANSION = 200
"""How many times the size of its file the rows may take: numbers that were measured are hard to
compress, so a table that would take far more is not one that we wrote."""
_KEY = [f"{side}_{name}" for side in ("target", "reference") for name in TENSOR_KEY]


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
                    files = files_to_json({TABLE_NAME: record})
                    body = {**about_result(result, path), "files": files}
                    about.path.write_bytes(seal_json(json.dumps(make_encodable(body), indent=1)))
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
        write_atomically(
            path / JSON_NAME, seal_json(text) if document.is_verified else text.encode()
        )
    return True


def is_own(entry: Path) -> bool:
    """Whether an entry of a folder belongs to a comparison, finished or not."""
    names = (JSON_NAME, TABLE_NAME, PROGRESS_LOG, LOCK)
    name = final_name_of(entry.name) or entry.name.removesuffix(".tmp")
    return entry.suffix == ".run" or name in names


def about_result(result: Result, home: Path) -> dict[str, Any]:
    """What `comparison.json` says of a result; the runs are named relative to `home`."""
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
        "unfinished": result.unfinished,
        "verified": {side: dict(counts) for side, counts in result.verified.items()},
        "through": result.through and result.through.as_dict(),
        "unmatched": [_lonely_to_json(u) for u in result.unmatched],
        "unkept": dict(result.unkept),
        "partial": list(result.partial),
        "min_coverage": result.min_coverage,
        "masks": masks_as_data(result.masks),
        "edges": [
            [_op_list(op), [_op_list(i) for i in inputs]] for op, inputs in result.edges.items()
        ],
        "diagnosis": result.diagnosis and result.diagnosis.as_dict(),
        "findings": [finding.as_dict() for finding in result.findings],
    }


def _lonely_to_json(lonely: Lonely) -> dict[str, Any]:
    body = {name: value for name, value in lonely.__dict__.items() if name != "why"}
    why = lonely.why
    return {**body, "reason": why.code, "detail": why.detail, "cure": why.cure}


def lonely_of(body: Mapping[str, Any]) -> Lonely:
    """A tensor without a partner as `comparison.json` has it."""
    why = Reason(ReasonCode(body["reason"]), body["detail"], body["cure"])
    names = (f.name for f in fields(Lonely) if f.name != "why")
    return Lonely(why=why, **{name: body[name] for name in names if name in body})


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
        raise InputError(f"a readable comparison at {path}", describe_error(error)) from error
    broken = broken_key(document.body, is_whole=not before)
    if broken:
        raise DamagedFileError(
            path / JSON_NAME, f"its {broken} is missing or not as it should be", RESTORE
        )
    upgrade_document(document)
    return document


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
    table.check_keys(_KEY)
    return table


def read_columns(path: Path, document: Document) -> pl.DataFrame:
    """The verified table of a comparison with all its columns."""
    table = open_table(path, document)
    needed = table.rows * _COLUMNS_BYTES
    table.check_memory(needed, _MAX_EXPANSION, "read some of its columns with Polars")
    return upgrade_table(table.read(COLUMNS), document.schema)


def _read_rows(table: ParquetTable, schema: int) -> list[Row]:
    """The rows as objects, made from some of the table at a time."""
    measured = table.rows - table.read({"count": COLUMNS["count"]})["count"].null_count()
    needed = table.rows * _ROW_BYTES + measured * _NUMBERS_BYTES
    cure = "look at it with syncpoint view, which needs less"
    table.check_memory(needed, _MAX_EXPANSION, cure)
    slices = (upgrade_table(some, schema) for some in table.slices(COLUMNS))
    return [row_of(flat) for some in slices for flat in some.iter_rows(named=True)]


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
            target=_with_path(about["target"], lambda run: os.path.normpath(path / run)),
            reference=_with_path(about["reference"], lambda run: os.path.normpath(path / run)),
            rows=_read_rows(table, document.schema),
            unmatched=[lonely_of(u) for u in about["unmatched"]],
            choice=_choice(about["limits"]),
            edges={OpKey(*op): tuple(OpKey(*i) for i in inputs) for op, inputs in about["edges"]},
            warnings=tuple(about["warnings"]),
            created=about["created"],
            through=Through.of_dict(about["through"]) if about.get("through") else None,
            diagnosis=_diagnosis(about),
            unkept=about.get("unkept", {}),
            partial=tuple(about.get("partial", ())),
            unfinished=about["unfinished"],
            min_coverage=about.get("min_coverage"),
            unverified=why_unverified(document),
            verified=_verified(about),
            masks=read_masks(about.get("masks") or {}, str(path / JSON_NAME)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(path / JSON_NAME, f"{error!r}"[:200], RESTORE) from error


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
