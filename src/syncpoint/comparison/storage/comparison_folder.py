"""A comparison on disk: `NAME.cmp/` with `comparison.json` and `syncpoints.parquet`.

The table is what ordinary tools read; together with the JSON it gives back the whole result, so
that it can be judged and shown again without its runs. Both are verified by their checksums before
they are parsed; comparisons of schema 1, which have none, open as unverified.
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
    """Write a comparison; without its JSON, which comes last, the folder is none.

    Table and JSON of two comparisons never stand together: one process at a time writes, both
    files are on the disk before either gets its name, and an older JSON goes before the table.
    """
    fresh = _check_destination(path, overwrite)
    try:
        with write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            with sole_writer(path):
                _check_destination(path, overwrite)  # another process may have finished meanwhile
                with Partial(path / TABLE_NAME) as table, Partial(path / JSON_NAME) as about:
                    record = write_parquet(result.table, table.path)
                    files = files_to_json({TABLE_NAME: record})
                    body = {**result_to_json(result, path), "files": files}
                    about.path.write_bytes(seal_json(json.dumps(make_encodable(body), indent=1)))
                    about.publish_after(table)
    except BaseException:
        if fresh:
            with suppress(OSError):
                path.rmdir()
        raise
    return path


def _check_destination(path: Path, overwrite: bool) -> bool:
    """Whether nothing is at `path`; an InputError unless a comparison may be written there."""
    if not path.exists():
        return True
    if not path.is_dir():
        raise InputError(f"a folder or nothing at {path}", "a file", "choose another -o")
    if is_comparison(path) and not overwrite:
        raise InputError(
            f"no comparison at {path} yet", "one is there", "choose another -o or remove it"
        )
    if not is_comparison(path) and not all(is_comparison_file(entry) for entry in path.iterdir()):
        raise InputError(
            f"a comparison or nothing at {path}", "something else", "choose another -o"
        )
    return False


def save_diagnosis(result: Result, path: Path) -> bool:
    """Write what was found into a comparison that is saved already; nothing else is touched.
    What was found with more models at hand, or by a diagnosis that did not fail as this one did,
    stays as it is, and the answer is False."""
    with write_errors(path), sole_writer(path):
        document = read_comparison_json(path)
        about = document.body
        known = diagnosis_from_json(about)
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


def is_comparison_file(entry: Path) -> bool:
    """Whether an entry of a folder belongs to a comparison, finished or not."""
    names = (JSON_NAME, TABLE_NAME, PROGRESS_LOG, LOCK)
    name = final_name_of(entry.name) or entry.name.removesuffix(".tmp")
    return entry.suffix == ".run" or name in names


def is_comparison(path: Path) -> bool:
    """Whether a folder holds a comparison."""
    return (path / JSON_NAME).is_file()


def load(path: Path) -> Result:
    """Read a comparison back."""
    document = read_comparison_json(path)
    try:
        table = open_table(path, document)
    except FormatError:
        # Another process may have replaced both files between the two looks.
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
