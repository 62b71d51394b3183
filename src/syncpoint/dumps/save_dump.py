"""Write the values of a run as a dump of a named format (behind `convert`); refuse formats that
cannot be written, and existing paths."""

from __future__ import annotations

from pathlib import Path

from syncpoint.dumps.protocol import Saves
from syncpoint.dumps.registry import FORMATS, get_format, iter_formats
from syncpoint.errors import InputError, Unsupported
from syncpoint.files.write_errors import write_errors
from syncpoint.run.reader import Run


def save_dump(run: Run, path: Path | str, name: str) -> None:
    """Write the values of a run in the format called `name`."""
    dump_format, path = get_format(name), Path(path)
    if not isinstance(dump_format, Saves):
        writable = ", ".join(f.name for f in iter_formats() if isinstance(f, Saves))
        raise Unsupported(
            f"the format {name} can only be read, not written",
            cure=f"choose one of these: {writable}",
        )
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} already exists", cure="choose another name")
    try:
        with write_errors(path), FORMATS.contain_errors(name, Unsupported, f"to write {path}"):
            dump_format.save(run, path)
    except UnicodeEncodeError as error:
        raise Unsupported(
            f"the format {name} cannot hold a name that is not valid Unicode:"
            f" {repr(error.object)[:200]}",
            cure="rename the op in the model, or convert it with --to run",
        ) from error
