"""Make strings safe to show or write: escape control characters and what UTF-8 cannot encode, also
in lists and dicts; shorten long text, strip terminal colours.

Names stay as they are in the data, where they are identities. Whatever shows one to a person (a
terminal, an error, a notebook) shows the result of `make_visible`: an escape sequence, a line break
or a letter that reverses the writing direction becomes ordinary characters such as `\\x1b`.
"""

from __future__ import annotations

import re
from typing import Any

MAX_NAME_CHARS = 500
"""Maximum length of a name in a table."""
MAX_LINE_CHARS = 6000
"""Maximum length of a line; a path may have 4,096 characters."""

_HIDDEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1 controls: they drive terminals
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # soft hyphen, fillers: not seen
    "\u200b-\u200f\u2060-\u2065\ufeff"  # zero width, direction marks
    "\u061c\u202a-\u202e\u2066-\u206f"  # change the writing direction
    "\u2028\u2029"  # line breaks
    "\ufff9-\ufffb\U000e0000-\U000e0fff"  # annotations, tags: not seen
    "\ud800-\udfff"  # half a character: cannot be written as UTF-8
    "]"
)
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def make_visible(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Escape every character that is invisible or controls a terminal, so that the text is one
    line; the middle of a text above `max_chars` is cut out."""
    escaped = _HIDDEN.sub(_escape_character, text)
    if len(escaped) <= max_chars:
        return escaped
    end_chars = (max_chars - 40) // 2
    return f"{escaped[:end_chars]}…({len(text):,} characters)…{escaped[-end_chars:]}"


def _escape_character(match: re.Match[str]) -> str:
    letter = match[0]
    code = ord(letter)
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else (f"\\U{code:08x}")
    )


def make_encodable(value: Any) -> Any:
    """Make strings, also in lists and mappings, encodable as UTF-8: a lone surrogate, as in a file
    name of another encoding, becomes its escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list | tuple):
        return type(value)(make_encodable(item) for item in value)
    if isinstance(value, dict):
        return {make_encodable(key): make_encodable(item) for key, item in value.items()}
    return value


_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and where to draw
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
)


def strip_colours(text: str) -> str:
    """Remove the escape sequences that colour text or move the cursor."""
    return _SEQUENCE.sub("", text)
