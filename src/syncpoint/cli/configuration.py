"""Defaults from `syncpoint.toml` or `[tool.syncpoint]` in pyproject.toml; a flag always wins.

[tool.syncpoint.compare]
preset = "f16"
min_coverage = 0.9
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError


def defaults(folder: Path | None = None) -> dict[str, Any]:
    """Option defaults by command, from the files of the current folder."""
    folder = folder or Path.cwd()
    for name, tables in (("syncpoint.toml", ()), ("pyproject.toml", ("tool", "syncpoint"))):
        path = folder / name
        if path.is_file():
            found = _read(path)
            for table in tables:
                found = found.get(table, {})
            if found:
                return _checked(found, path)
    return {}


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"TOML in {path}", str(error)) from error


def _checked(found: Any, path: Path) -> dict[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
        raise FormatError(
            f"one table per command in {path}", "something else", "write [compare] above the keys"
        )
    return {command: {k.replace("-", "_"): v for k, v in t.items()} for command, t in found.items()}
