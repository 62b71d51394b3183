"""Open a run folder: from its tables if its writer finished, else from its journal.

Structural damage is detected here and raises FormatError. Values are not read, so that the rest of
a run with a lost shard can still be compared.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.files.read_errors import CHECK_FOLDER, read_errors
from syncpoint.files.sealed_json import UNVERIFIED
from syncpoint.files.untrusted_files import require_folder
from syncpoint.files.writer_lock import is_locked
from syncpoint.run.model import Op, OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.checked_parquet import ParquetTable
from syncpoint.run.storage.journal import JOURNAL, read_journal
from syncpoint.run.storage.record_json import op_from_json, parse_record, tensor_from_json
from syncpoint.run.storage.run_json import (
    RESTORE,
    RUN_JSON,
    RunDocument,
    info_from_json,
    read_run_json,
)
from syncpoint.run.storage.source_code import Sources
from syncpoint.run.storage.table_columns import OPS, TENSORS
from syncpoint.run.storage.table_reader import read_ops, read_tensors
from syncpoint.run.value_store import FileStore, JournalStore


def open_run(path: Path) -> Run:
    """Open the run in the folder `path`."""
    require_folder(path, "a run folder")
    with read_errors(f"the run {path}", cure=CHECK_FOLDER):
        if os.path.lexists(path / RUN_JSON):
            return _open_from_tables(path)
        if os.path.lexists(path / JOURNAL):
            return _open_from_journal(path)
    raise InputError(
        f"{path} is not a run folder: it has neither {RUN_JSON} nor {JOURNAL}",
        cure="give the path of a run folder, or record one: syncpoint capture MODEL -o NAME.run",
    )


def _open_from_tables(path: Path) -> Run:
    document = read_run_json(path / RUN_JSON)
    return Run(
        document.info,
        parse_record(read_ops, _open_table(path, OPS, document, "ops"), str(path / OPS)),
        parse_record(
            read_tensors,
            _open_table(path, TENSORS, document, "tensors"),
            str(path / TENSORS),
        ),
        FileStore(path),
        path=path,
        source=Sources(path, records=document.files).text,
        unverified="" if document.is_verified else UNVERIFIED,
    )


def _open_table(path: Path, name: str, document: RunDocument, count_name: str) -> ParquetTable:
    table = ParquetTable(path / name, document.record(path, name), RESTORE)
    table.check_rows(document.counts.get(count_name))
    return table


def _open_from_journal(path: Path) -> Run:
    journal = read_journal(path / JOURNAL)
    info = RunInfo()
    ops: dict[OpKey, Op] = {}
    tensors: dict[TensorKey, Tensor] = {}
    sources: dict[str, str] = {}
    where = str(path / JOURNAL)
    for kind, body in journal.frames:
        if kind == "op":
            op = parse_record(op_from_json, body, where)
            _add_record(ops, op.key, op, where)
        elif kind == "tensor":
            tensor = parse_record(tensor_from_json, body, where)
            _add_record(tensors, tensor.key, tensor, where)
        elif kind == "info":
            info = parse_record(info_from_json, body, where)
        elif kind == "source":
            file, name = parse_record(_parse_source, body, where)
            sources[file] = name
        elif kind != "shard":
            raise FormatError(
                f"{where} contains a frame of unknown kind {repr(kind)[:40]}: it may be damaged or"
                " written by a newer version",
                cure="upgrade syncpoint, or record again",
            )
    missing = info.missing or _describe_missing(path, len(ops), len(tensors), journal.damage)
    return Run(
        replace(info, complete=False, missing=missing),
        list(ops.values()),
        list(tensors.values()),
        JournalStore(path),
        path=path,
        source=Sources(path, sources).text,
    )


def _add_record(records: dict[Any, Any], key: object, record: object, where: str) -> None:
    if key in records:
        raise FormatError(f"{where} has the key {key} twice", cure=RESTORE)
    records[key] = record


def _parse_source(body: Any) -> tuple[str, str]:
    file, name = body
    if not isinstance(file, str) or not isinstance(name, str):
        raise TypeError("names must be text")
    return file, name


def _describe_missing(path: Path, ops: int, tensors: int, damage: str) -> str:
    end = "its writer is still running" if is_locked(path) else "its writer died"
    text = f"everything after the first {ops} ops and {tensors} tensors: {end}"
    return f"{text} and {damage}" if damage else text
