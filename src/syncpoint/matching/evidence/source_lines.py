"""Lines of the user's code that speak against a pair.

Larger ops are decomposed into small ones, of which the same line or module has others: the quotient
at the end of a softmax is no scaling of scores. Where both runs have the same source, a small op
of a line that both sides know cannot be one of another line, unless the values say that it is.
"""

from __future__ import annotations

from pathlib import PurePath

from syncpoint.errors import FormatError
from syncpoint.matching.op_kinds import PRIMITIVE, op_class
from syncpoint.matching.protocol import Matching
from syncpoint.run.model import Op
from syncpoint.run.reader import Run

Line = tuple[str, int]


class Lines:
    """Which lines both sides know, in files that are the same on both."""

    def __init__(self, matching: Matching) -> None:
        sides = matching.target, matching.reference
        files = [_files([op for op in side.ops if op.source], side.run) for side in sides]
        same = {name for name, text in files[0].items() if text and files[1].get(name) == text}
        lines = [{line for op in side.ops if (line := _line(op))} for side in sides]
        self._known = {line for line in lines[0] & lines[1] if line[0] in same}

    def deny(self, target: Op, reference: Op) -> bool:
        """Whether two small ops were called for by different lines."""
        mine, theirs = _line(target), _line(reference)
        if mine not in self._known or theirs not in self._known:
            return False
        if mine in _stack(reference) or theirs in _stack(target):
            return False
        return op_class(target.type) in PRIMITIVE and op_class(reference.type) in PRIMITIVE


def _line(op: Op) -> Line | None:
    return (PurePath(op.source[-1].file).name, op.source[-1].line) if op.source else None


def _stack(op: Op) -> set[Line]:
    return {(PurePath(frame.file).name, frame.line) for frame in op.source}


def _files(ops: list[Op], run: Run) -> dict[str, str]:
    """The text of each file, by its last name; "" where two have that name, or there is no copy."""
    found: dict[str, str] = {}
    for file in dict.fromkeys(op.source[-1].file for op in ops):
        name = PurePath(file).name
        found[name] = "" if name in found else _text(run, file)
    return found


def _text(run: Run, file: str) -> str:
    """A copy that is damaged speaks for no pair; `verify` and the page say that it is."""
    try:
        return run.source_text(file) or ""
    except FormatError:
        return ""
