"""Parse the text of options: KEY=VALUE settings, shapes such as NAME=1,3,224, byte sizes such as
2GiB, fixed choices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from syncpoint.errors import InputError

if TYPE_CHECKING:
    from syncpoint.runtimes.inputs.shapes import InputShape

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
}


def parse_settings(pairs: list[str] | None, flag: str = "--set") -> dict[str, str]:
    """Split the KEY=VALUE pairs of `--set`."""
    settings = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(
                f"{flag} takes KEY=VALUE, not {pair!r}", cure=f"write {flag} KEY=VALUE"
            )
        settings[key] = value
    return settings


def parse_shapes(texts: list[str] | None) -> dict[str, InputShape]:
    """Read the NAME=1,3,224,224[:dtype] of `--shape`."""
    if not texts:
        return {}
    from syncpoint.runtimes.inputs.shapes import parse_shape

    return dict(parse_shape(text) for text in texts)


def parse_bytes(text: str | None) -> int | None:
    """Read a number of bytes such as 500MB or 2GiB."""
    if text is None:
        return None
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if parts is None or (parts[2] or "") not in _UNITS:
        raise InputError(f"{text!r} is not a number of bytes", cure="write it as 500MB or 2GiB")
    return int(float(parts[1]) * _UNITS[parts[2] or ""])


def check_choice(value: str, allowed: tuple[str, ...], flag: str) -> None:
    """Refuse a value outside a small set, with an error that names the set."""
    if value not in allowed:
        raise InputError(f"{flag} {value!r} is unknown", cure=f"use {' or '.join(allowed)}")
