"""Writes the values of a run as a dump of a named format."""

from __future__ import annotations

from pathlib import Path

from syncpoint.dumps.protocol import Saves
from syncpoint.dumps.registry import FORMATS, formats, named
from syncpoint.errors import InputError, Unsupported
from syncpoint.files.write_errors import write_errors
from syncpoint.run.reader import Run


def save_dump(run: Run, path: Path | str, name: str) -> None:
    """Write the values of a run in the format called `name`."""
    target, path = named(name), Path(path)
    if not isinstance(target, Saves):
        writable = ", ".join(f.name for f in formats() if isinstance(f, Saves))
        raise Unsupported("a format that can be written", name, f"these can: {writable}")
    if path.exists() or path.is_symlink():
        raise InputError("a new path to write to", f"{path} exists", "choose another name")
    try:
        with write_errors(path), FORMATS.contain_errors(name, Unsupported, f"to write {path}"):
            target.save(run, path)
    except UnicodeEncodeError as error:
        raise Unsupported(
            f"names that are valid Unicode for the format {name}", repr(error.object)[:200]
        ) from error
