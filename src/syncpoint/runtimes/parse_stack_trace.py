"""Stack traces as exporters write them into the nodes of a graph, and module paths with calls."""

from __future__ import annotations

import re

from syncpoint.run.model import Frame

_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+), in (?P<function>.+?)\s*$', re.M)
_CALL = re.compile(r"@\d+$")


def frames_in(trace: str) -> list[Frame]:
    """The frames of a stack trace, innermost last, without those of code that has no file."""
    return [
        Frame(m["file"], int(m["line"]), m["function"])
        for m in _FRAME.finditer(trace)
        if not m["file"].startswith("<")
    ]


def without_call(module: str) -> str:
    """The path of a module without the number of the call: `blocks.0` for `blocks.0@1`."""
    return _CALL.sub("", module)
