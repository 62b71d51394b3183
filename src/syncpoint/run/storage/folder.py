"""The folder of a run: what its files are called, `run.json`, and what may be removed from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.checksums import FileRecord, damaged, files_to_json, read_document, sealed
from syncpoint.files.lock import LOCK
from syncpoint.files.partial import partial_of, remove_abandoned
from syncpoint.files.safe_access import one_line, parse_json, read_whole
from syncpoint.run.model import RunInfo
from syncpoint.run.records import info_from_json, info_to_json, parsed, plain
from syncpoint.run.storage.journal import JOURNAL, is_journal
from syncpoint.run.storage.shards import PARTIAL_NAME, SHARD_NAME
from syncpoint.run.storage.source_code import clear_sources
from syncpoint.run.storage.tables import OPS, TENSORS

RUN_JSON = "run.json"
FORMAT = "syncpoint-run"
SCHEMA = 2
"""Schema 1 had no checksums; it is still read."""
RESTORE = "restore it from a copy, or record the run again"
"""What to do about a damaged run."""
BEGUN = frozenset({LOCK, f"{JOURNAL}.tmp"})
"""All that a writer that died in its first moments leaves behind."""
_MAX_JSON = 64 << 20


def is_run(path: Path) -> bool:
    """Whether the folder holds a run, finished or not."""
    if is_journal(path / JOURNAL):
        return True
    try:
        body = parse_json(read_whole(path / RUN_JSON, _MAX_JSON), RUN_JSON)
    except (OSError, SyncpointError):
        return False
    return isinstance(body, dict) and body.get("format") == FORMAT


def check_folder(path: Path, overwrite: bool) -> None:
    """An InputError unless a run may be written at `path`; asks, and makes nothing."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise InputError("a new folder for the run", f"{path}, which is no folder")
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise InputError(f"a folder that can be read at {path}", one_line(error)) from error
    if names <= BEGUN:
        return
    if not is_run(path):
        raise InputError("a new folder for the run", f"{path} with other files in it")
    if not overwrite:
        raise InputError(
            "a new folder for the run",
            f"a run at {path}",
            "choose another name or have it overwritten (--force)",
        )


def run_json(info: RunInfo, counts: Mapping[str, int], files: Mapping[str, FileRecord]) -> bytes:
    """The bytes of `run.json`, which speaks for the tables and sources in `files`."""
    body = {
        "format": FORMAT,
        "schema": SCHEMA,
        **info_to_json(info),
        "counts": dict(counts),
        "files": files_to_json(files),
    }
    return sealed(json.dumps(body, default=plain, indent=1))


@dataclass(frozen=True)
class RunDocument:
    """What `run.json` says."""

    info: RunInfo
    counts: Mapping[str, Any]
    files: Mapping[str, FileRecord]
    """Tables and sources, by their path below the run's folder; none in schema 1."""
    is_verified: bool

    def record(self, folder: Path, name: str) -> FileRecord | None:
        """What is recorded of a table; None where the run is older than checksums."""
        if not self.is_verified:
            return None
        if name not in self.files:
            raise damaged(folder / RUN_JSON, f"it records no checksum of {name}", RESTORE)
        return self.files[name]


def read_run_json(path: Path) -> RunDocument:
    """Read and verify a `run.json`."""
    document = read_document(path, SCHEMA, RESTORE, FORMAT)
    info = parsed(info_from_json, document.body, str(path))
    counts = document.body.get("counts")
    if not isinstance(counts, dict):
        raise damaged(path, "it has no counts", RESTORE)
    return RunDocument(info, counts, document.files, document.is_verified)


def clear_run(path: Path) -> None:
    """Remove an older run's files, `run.json` first; what is not a run's stays."""
    (path / RUN_JSON).unlink(missing_ok=True)
    for entry in list(os.scandir(path)):
        ours = entry.name in (OPS, TENSORS) or entry.name.endswith(".parquet.tmp")
        shard = SHARD_NAME.fullmatch(entry.name) or PARTIAL_NAME.fullmatch(entry.name)
        if (ours or shard) and not entry.is_dir(follow_symlinks=False):
            Path(entry.path).unlink()
        if partial_of(entry.name) in (OPS, TENSORS, RUN_JSON):
            remove_abandoned(Path(entry.path))
    clear_sources(path)
