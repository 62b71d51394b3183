"""The folder of a run: whether it holds one, whether one may be written there, and clearing it."""

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


def check_new_run_path(path: Path, overwrite: bool) -> None:
    """An InputError unless a run may be written at `path`; asks, and makes nothing."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise InputError("a new folder for the run", f"{path}, which is no folder")
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise InputError(f"a folder that can be read at {path}", describe_error(error)) from error
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


def clear_run(path: Path) -> None:
    """Remove an older run's files, `run.json` first; what is not a run's stays."""
    (path / RUN_JSON).unlink(missing_ok=True)
    for entry in list(os.scandir(path)):
        ours = entry.name in (OPS, TENSORS) or entry.name.endswith(".parquet.tmp")
        shard = SHARD_NAME.fullmatch(entry.name) or PARTIAL_NAME.fullmatch(entry.name)
        if (ours or shard) and not entry.is_dir(follow_symlinks=False):
            Path(entry.path).unlink()
        if final_name_of(entry.name) in (OPS, TENSORS, RUN_JSON):
            remove_abandoned(Path(entry.path))
    clear_sources(path)
