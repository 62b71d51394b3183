"""Open a run or dump by its path: recognise its format, read it and its `env.json`; refuse a file
whose suffix and content disagree."""

from __future__ import annotations

from pathlib import Path

from syncpoint.dumps.environment_file import add_environment
from syncpoint.dumps.protocol import DumpFormat
from syncpoint.dumps.registry import FORMATS, find_format, iter_formats
from syncpoint.errors import FormatError, InputError
from syncpoint.run.reader import Run


def open_dump(path: Path | str) -> Run:
    """Open the run or dump at `path`; a path that no format recognises is an InputError."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"no such file or folder: {path}", cure="check the path")
    run = open_recognized(path)
    if run is None:
        _refuse_damaged(path)
        names = ", ".join(dump_format.name for dump_format in iter_formats())
        raise InputError(
            f"{path} is not a run or a dump: no format recognises it",
            cure=f"check the path; known formats: {names}",
        )
    return run


def open_recognized(path: Path) -> Run | None:
    """Open the run or dump at `path` with its `env.json`; None where no format recognises it."""
    dump_format = find_format(path) if path.exists() else None
    return None if dump_format is None else open_as(dump_format, path)


def open_as(dump_format: DumpFormat, path: Path) -> Run:
    """Open the run or dump at `path`, which is of this format, with its `env.json`.

    Everything that opens a recording by its path calls this function.
    """
    with FORMATS.contain_errors(dump_format.name, FormatError, f"to open {path}"):
        return add_environment(dump_format.open(path), path)


def _refuse_damaged(path: Path) -> None:
    """Raise FormatError for a file that has the suffix of a format but not its content."""
    if path.is_file() and path.suffix in (".npz", ".npy", ".safetensors"):
        size = path.stat().st_size
        fact = f"{size:,} bytes: cut off or damaged" if size else "an empty file"
        raise FormatError(
            f"{path} is not a {path.suffix} file ({fact})",
            cure="copy it again, or record it again",
        )
