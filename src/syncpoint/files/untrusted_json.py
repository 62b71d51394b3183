"""JSON from files that may be damaged or hostile: parsed, or a FormatError."""

from __future__ import annotations

import json
from typing import Any

from syncpoint.errors import FormatError, describe_error


def parse_json(data: bytes | str, what: str) -> Any:
    """Parse JSON from elsewhere; damage, a repeated key or deep nesting is a FormatError."""
    try:
        if isinstance(data, bytes):
            data = data.decode(json.detect_encoding(data), "surrogatepass")
        return _DECODER.decode(data)
    except _Repeated as error:
        raise FormatError(f"each key once in {what}", f"{error.key!r} twice") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"valid JSON in {what}", describe_error(error)) from error


def parse_foreign_json(data: bytes | str, what: str) -> Any:
    """The same for files of other tools, whose names must be whole characters too: half of one,
    as `\\ud800` alone, cannot be written into any table."""
    body = parse_json(data, what)
    try:
        text = data.decode(json.detect_encoding(data)) if isinstance(data, bytes) else data
        if "\\ud" in text.lower():
            json.dumps(body, ensure_ascii=False).encode()
        elif not text.isascii():
            text.encode()
    except UnicodeError as error:
        raise FormatError(f"whole characters in {what}", describe_error(error)) from error
    return body


class _Repeated(Exception):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Repeated(key)
            seen.add(key)
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""One for all, as making one costs more than most texts do."""
