"""Detect a run folder, check that a new one can be written, remove the files of an older one."""

from __future__ import annotations

import os
from pathlib import Path

from syncpoint.errors import InputError, SyncpointError, describe_error
from syncpoint.files.atomic_writes import final_name_of, remove_abandoned
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json
from syncpoint.files.writer_lock import LOCK
from syncpoint.run.storage.journal import JOURNAL, is_journal
from syncpoint.run.storage.run_json import FORMAT, RUN_JSON
from syncpoint.run.storage.shards import PARTIAL_NAME, SHARD_NAME
from syncpoint.run.storage.source_code import clear_sources
from syncpoint.run.storage.table_columns import OPS, TENSORS

STARTUP_FILES = frozenset({LOCK, f"{JOURNAL}.tmp"})
"""The files that a writer leaves if it dies right at the start."""
_MAX_JSON_BYTES = 64 << 20


def is_run(path: Path) -> bool:
    """Whether the folder holds a run, finished or not."""
    if is_journal(path / JOURNAL):
        return True
    try:
        body = parse_json(read_whole(path / RUN_JSON, _MAX_JSON_BYTES), RUN_JSON)
    except (OSError, SyncpointError):
        return False
    return isinstance(body, dict) and body.get("format") == FORMAT


def check_new_run_path(path: Path, overwrite: bool) -> None:
    """Raise InputError unless a run can be written at `path`; nothing is created."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise InputError(
            f"cannot write a run to {path}: it is not a folder", cure="choose another name"
        )
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise InputError(
            f"cannot write a run to {path}: {describe_error(error)}",
            cure="check that you may write there, or choose another path",
        ) from error
    if names <= STARTUP_FILES:
        return
    if not is_run(path):
        raise InputError(
            f"cannot write a run to {path}: the folder has other files in it",
            cure="choose another name",
        )
    if not overwrite:
        raise InputError(
            f"the run {path} already exists",
            cure="add --force to overwrite it, or choose another name",
        )


def clear_run(path: Path) -> None:
    """Remove the files of an older run, `run.json` first; other files stay."""
    (path / RUN_JSON).unlink(missing_ok=True)
    for entry in list(os.scandir(path)):
        is_table = entry.name in (OPS, TENSORS) or entry.name.endswith(".parquet.tmp")
        is_shard = SHARD_NAME.fullmatch(entry.name) or PARTIAL_NAME.fullmatch(entry.name)
        if (is_table or is_shard) and not entry.is_dir(follow_symlinks=False):
            Path(entry.path).unlink()
        if final_name_of(entry.name) in (OPS, TENSORS, RUN_JSON):
            remove_abandoned(Path(entry.path))
    clear_sources(path)
