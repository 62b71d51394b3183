"""Parse stack traces and module paths as exporters write them into graph nodes, to source frames;
drop the number of a call."""

from __future__ import annotations

import re

from syncpoint.run.model import Frame

_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+), in (?P<function>.+?)\s*$', re.M)
_CALL_NUMBER = re.compile(r"@\d+$")


def parse_frames(trace: str) -> list[Frame]:
    """The frames of a stack trace, innermost last; frames without a file are left out."""
    return [
        Frame(m["file"], int(m["line"]), m["function"])
        for m in _FRAME.finditer(trace)
        if not m["file"].startswith("<")
    ]


def strip_call_number(module: str) -> str:
    """A module path without the number of the call: `blocks.0` for `blocks.0@1`."""
    return _CALL_NUMBER.sub("", module)
