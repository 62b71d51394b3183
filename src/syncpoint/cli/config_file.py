"""Defaults of options from `syncpoint.toml` or `[tool.syncpoint]` in pyproject.toml; a flag always
wins.

[tool.syncpoint.compare]
preset = "f16"
min_coverage = 0.9
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError


def defaults(commands: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Option defaults by command, from the files of the current folder. `commands` are those of
    the application: a table or a key that none of them knows is an error, for it would have no
    effect."""
    folder = folder or Path.cwd()
    for name, tables in (("syncpoint.toml", ()), ("pyproject.toml", ("tool", "syncpoint"))):
        path = folder / name
        if path.is_file():
            from syncpoint.files.yaml_toml import read_toml

            content: Any = read_toml(path, "a readable configuration")
            for table in tables:
                content = content.get(table, {}) if isinstance(content, dict) else content
            if content:
                return _checked(content, path, commands)
    return {}


def _checked(content: Any, path: Path, commands: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        example = "compare" if path.name == "syncpoint.toml" else "tool.syncpoint.compare"
        raise FormatError(
            f"the options in {path} must be inside a table named after their command",
            cure=f"for example, put the options of compare under [{example}]",
        )
    checked = {}
    for name, table in content.items():
        if name not in commands:
            raise FormatError(
                f"[{name}] in {path} is not a command", cure=f"use one of {', '.join(commands)}"
            )
        options = {
            option.lstrip("-").replace("-", "_"): parameter
            for parameter in commands[name].params
            for option in parameter.opts
            if option.startswith("--")
        }
        checked[name] = dict(_default(key, table[key], options, path) for key in table)
    return checked


def _default(
    key: str, value: Any, options: Mapping[str, Any], path: Path
) -> tuple[str, str | int | float | list[Any]]:
    option = options.get(key.replace("-", "_"))
    if option is None:
        from difflib import get_close_matches

        similar = get_close_matches(key, options, 3)
        cure = (
            f"did you mean {' or '.join(similar)}?"
            if similar
            else "run the command with --help for its options"
        )
        raise FormatError(f"{key!r} in {path} is not an option of this command", cure=cure)
    if option.is_flag:
        fits, expected_kind = isinstance(value, bool), "true or false"
    elif option.multiple:
        fits, expected_kind = (
            isinstance(value, list) and all(map(_is_plain, value)),
            "a list of texts",
        )
    else:
        fits, expected_kind = _is_plain(value), "a text or a number"
    if not fits:
        raise FormatError(
            f"{key} in {path} takes {expected_kind}, not {repr(value)[:60]}",
            cure="correct the value",
        )
    return option.name, value


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
