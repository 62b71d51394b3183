"""Save, load and recognise the folder of a comparison, `NAME.cmp/`; check that the destination is
free; add a diagnosis to it.

Ordinary tools can read the table. Table and JSON together contain the whole result, so that it can
be judged and shown again without its runs. Both are verified by their checksums before they are
parsed. Comparisons of schema 1, which have no checksums, open as unverified.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from syncpoint.comparison.error_split import ErrorSplit
from syncpoint.comparison.result import Result
from syncpoint.comparison.storage.comparison_json import (
    choice_from_json,
    diagnosis_from_json,
    map_run_path,
    read_comparison_json,
    result_to_json,
    unmatched_from_json,
    unverified_reason,
    verified_counts,
)
from syncpoint.comparison.storage.file_names import JSON_NAME, PROGRESS_LOG, RESTORE, TABLE_NAME
from syncpoint.comparison.storage.sync_point_table import (
    open_table,
    read_rows,
)
from syncpoint.errors import FormatError, InputError
from syncpoint.files.atomic_writes import Partial, final_name_of, write_atomically
from syncpoint.files.file_checksums import DamagedFileError, files_to_json
from syncpoint.files.sealed_json import seal_json
from syncpoint.files.write_errors import write_errors
from syncpoint.files.writer_lock import LOCK, sole_writer
from syncpoint.foreign_text import make_encodable
from syncpoint.matching.masks import read_masks
from syncpoint.run.model import OpKey
from syncpoint.run.storage.table_writer import write_parquet


def save(result: Result, path: Path, overwrite: bool = False) -> Path:
    """Write a comparison; the JSON comes last, and without it the folder is no comparison.

    Table and JSON of different comparisons are never mixed. One process at a time writes, both
    files are on disk before either gets its name, and an older JSON is removed before the table.
    """
    is_new = _check_destination(path, overwrite)
    try:
        with write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            with sole_writer(path):
                _check_destination(
                    path, overwrite
                )  # another process may have written one meanwhile
                with Partial(path / TABLE_NAME) as table, Partial(path / JSON_NAME) as document:
                    record = write_parquet(result.table, table.path)
                    files = files_to_json({TABLE_NAME: record})
                    body = {**result_to_json(result, path), "files": files}
                    document.path.write_bytes(seal_json(json.dumps(make_encodable(body), indent=1)))
                    document.publish_after(table)
    except BaseException:
        if is_new:
            with suppress(OSError):
                path.rmdir()
        raise
    return path


def _check_destination(path: Path, overwrite: bool) -> bool:
    """Whether `path` is free; raises InputError if no comparison may be written there."""
    if not path.exists():
        return True
    if not path.is_dir():
        raise InputError(
            f"cannot write the comparison: {path} is a file, not a folder",
            cure="give another folder with -o",
        )
    if is_comparison(path) and not overwrite:
        raise InputError(
            f"{path} already contains a comparison",
            cure="give another folder with -o, or remove this one",
        )
    if not is_comparison(path) and not all(is_comparison_file(entry) for entry in path.iterdir()):
        raise InputError(
            f"the folder {path} contains files that do not belong to a comparison",
            cure="give another folder with -o",
        )
    return False


def save_diagnosis(result: Result, path: Path) -> bool:
    """Write the diagnosis into a saved comparison; nothing else changes.

    An existing diagnosis that used more models, or that did not fail while this one did, stays, and
    the return value is False.
    """
    with write_errors(path), sole_writer(path):
        document = read_comparison_json(path)
        body = document.body
        saved_diagnosis = diagnosis_from_json(body)
        diagnosis = result.diagnosis
        if diagnosis is None or (
            saved_diagnosis is not None and not set(saved_diagnosis.models) <= set(diagnosis.models)
        ):
            return False
        if saved_diagnosis is not None and diagnosis.has_failed and not saved_diagnosis.has_failed:
            return False
        body["diagnosis"] = diagnosis.as_dict()
        body["findings"] = [finding.as_dict() for finding in diagnosis.findings]
        text = json.dumps(body, indent=1)
        # An unverified file gets no checksum now, since it may be damaged.
        write_atomically(
            path / JSON_NAME, seal_json(text) if document.is_verified else text.encode()
        )
    return True


def is_comparison_file(entry: Path) -> bool:
    """Whether a file of a folder belongs to a comparison, finished or not."""
    names = (JSON_NAME, TABLE_NAME, PROGRESS_LOG, LOCK)
    name = final_name_of(entry.name) or entry.name.removesuffix(".tmp")
    return entry.suffix == ".run" or name in names


def is_comparison(path: Path) -> bool:
    """Whether a folder holds a comparison."""
    return (path / JSON_NAME).is_file()


def load(path: Path) -> Result:
    """Read a comparison."""
    document = read_comparison_json(path)
    try:
        table = open_table(path, document)
    except FormatError:
        # Another process may have replaced both files between the two reads.
        stale, document = document, read_comparison_json(path)
        if document == stale:
            raise
        table = open_table(path, document)
    about = document.body
    try:
        return Result(
            target=map_run_path(about["target"], lambda run: os.path.normpath(path / run)),
            reference=map_run_path(about["reference"], lambda run: os.path.normpath(path / run)),
            rows=read_rows(table, document.schema),
            unmatched=[unmatched_from_json(u) for u in about["unmatched"]],
            choice=choice_from_json(about["limits"]),
            edges={OpKey(*op): tuple(OpKey(*i) for i in inputs) for op, inputs in about["edges"]},
            warnings=tuple(about["warnings"]),
            created=about["created"],
            through=ErrorSplit.of_dict(about["through"]) if about.get("through") else None,
            diagnosis=diagnosis_from_json(about),
            unkept=about.get("unkept", {}),
            partial=tuple(about.get("partial", ())),
            unfinished=about["unfinished"],
            min_coverage=about.get("min_coverage"),
            unverified=unverified_reason(document),
            verified=verified_counts(about),
            masks=read_masks(about.get("masks") or {}, str(path / JSON_NAME)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(path / JSON_NAME, f"{error!r}"[:200], RESTORE) from error
