"""Parse JSON that may be damaged or hostile: repeated keys, deep nesting or bad Unicode are a
FormatError."""

from __future__ import annotations

import json
from typing import Any

from syncpoint.errors import FormatError, describe_error

_CURE = "correct the file, or write it again"


def parse_json(data: bytes | str, what: str, cure: str = "") -> Any:
    """Parse JSON; invalid JSON, a repeated key or nesting that is too deep is a FormatError."""
    try:
        if isinstance(data, bytes):
            data = data.decode(json.detect_encoding(data), "surrogatepass")
        return _DECODER.decode(data)
    except _RepeatedKeyError as error:
        raise FormatError(
            f"{what} has the key {error.key!r} twice, so its value is not known", cure=cure
        ) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{what} is not valid JSON: {describe_error(error)}", cure=cure
        ) from error


def parse_foreign_json(data: bytes | str, what: str) -> Any:
    """Parse JSON of other tools; a lone surrogate such as `\\ud800` is a FormatError too, since it
    cannot be written into a table."""
    body = parse_json(data, what, _CURE)
    try:
        text = data.decode(json.detect_encoding(data)) if isinstance(data, bytes) else data
        if "\\ud" in text.lower():
            json.dumps(body, ensure_ascii=False).encode()
        elif not text.isascii():
            text.encode()
    except UnicodeError as error:
        raise FormatError(
            f"{what} has text that is not valid Unicode: {describe_error(error)}",
            cure=_CURE,
        ) from error
    return body


class _RepeatedKeyError(Exception):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise _RepeatedKeyError(key)
            keys.add(key)
    return body


_DECODER = json.JSONDecoder(object_pairs_hook=_build_object)
"""One decoder for all calls: creating one costs more than decoding most texts."""
