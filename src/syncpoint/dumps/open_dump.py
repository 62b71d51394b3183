"""Opens a run or a dump by its path: recognises its format, reads it and its `env.json`."""

from __future__ import annotations

from pathlib import Path

from syncpoint.dumps.environment_file import with_environment
from syncpoint.dumps.protocol import DumpFormat
from syncpoint.dumps.registry import FORMATS, find, formats
from syncpoint.errors import FormatError, InputError
from syncpoint.run.reader import Run


def open_dump(path: Path | str) -> Run:
    """Open whatever is at `path`; a path that no format recognises is an InputError."""
    path = Path(path)
    if not path.exists():
        raise InputError("a run or a dump", f"nothing at {path}", "check the path")
    run = open_recognized(path)
    if run is None:
        _refuse_damaged(path)
        known = ", ".join(candidate.name for candidate in formats())
        raise InputError(
            "a run or a dump", f"{path}, which no format recognises", f"known: {known}"
        )
    return run


def open_recognized(path: Path) -> Run | None:
    """Open the run or dump at `path` with its `env.json`; None where no format recognises it."""
    dump_format = find(path) if path.exists() else None
    return None if dump_format is None else open_as(dump_format, path)


def open_as(dump_format: DumpFormat, path: Path) -> Run:
    """Open the run or dump at `path`, which is of this format, with its `env.json`.

    Everything that opens a recording by its path comes through here.
    """
    with FORMATS.contain_errors(dump_format.name, FormatError, f"to open {path}"):
        return with_environment(dump_format.open(path), path)


def _refuse_damaged(path: Path) -> None:
    """A FormatError for a file that has the name of a format and not what it holds."""
    if path.is_file() and path.suffix in (".npz", ".npy", ".safetensors"):
        size = path.stat().st_size
        raise FormatError(
            f"a whole {path.suffix} file at {path}",
            f"{size:,} bytes that are none: it is cut off or damaged" if size else "an empty file",
            "copy it again, or record it again",
        )
