"""`env.json` beside a dump: where it was made, in words of whoever made it. Other tools' files
hardly ever say."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

from syncpoint.errors import FormatError, describe_error
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_foreign_json
from syncpoint.run.reader import Run

NAME = "env.json"
_LARGEST = 1 << 20


def with_environment(run: Run, path: Path) -> Run:
    """The run with what `env.json` in its folder, or beside its file, says; what the run says of
    itself goes first. Raises FormatError where the file is not an object of plain values."""
    place = path / NAME if path.is_dir() else path.with_name(f"{path.stem}.{NAME}")
    if not place.is_file():
        return run
    try:
        said = parse_foreign_json(read_whole(place, _LARGEST), str(place))
    except OSError as error:
        raise FormatError(f"JSON in {place}", describe_error(error)) from None
    plain = isinstance(said, dict) and all(
        isinstance(value, str | int | float | bool) for value in said.values()
    )
    if not plain:
        raise FormatError(f"an object of names and plain values in {place}", repr(said)[:60])
    made = copy(run)
    told = {str(name): str(value) for name, value in said.items()}
    made.info = replace(run.info, environment={**told, **run.info.environment})
    return made
