"""Read the `env.json` beside a dump, which says where it was recorded, and add it to the run.

Files of other tools hardly ever say this themselves.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

from syncpoint.errors import FormatError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_foreign_json
from syncpoint.run.reader import Run

NAME = "env.json"
_MAX_BYTES = 1 << 20


def add_environment(run: Run, path: Path) -> Run:
    """Add the environment of the `env.json` in the run's folder, or beside its file.

    What the run itself says wins. A file that is not an object of plain values is a FormatError.
    """
    file = path / NAME if path.is_dir() else path.with_name(f"{path.stem}.{NAME}")
    if not file.is_file():
        return run
    with read_errors(file, FormatError, cure="check that you may read the file, or remove it"):
        body = parse_foreign_json(read_whole(file, _MAX_BYTES), str(file))
    is_plain = isinstance(body, dict) and all(
        isinstance(value, str | int | float | bool) for value in body.values()
    )
    if not is_plain:
        raise FormatError(
            f"{file} is not a JSON object of plain values (text, numbers): {repr(body)[:60]}",
            cure='write it as {"name": "value"}',
        )
    environment = {str(name): str(value) for name, value in body.items()}
    changed_run = copy(run)
    changed_run.info = replace(run.info, environment={**environment, **run.info.environment})
    return changed_run
