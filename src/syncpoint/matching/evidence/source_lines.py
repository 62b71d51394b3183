"""Source lines of ops: where the user's code calls for them, and pairs that they contradict.

Larger ops are decomposed into small ones, of which the same line or module has others: the quotient
at the end of a softmax is no scaling of scores. Where both runs have the same source, a small op
of a line that both sides know cannot be one of another line, unless the values say that it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

from syncpoint.errors import FormatError
from syncpoint.matching.op_kinds import PRIMITIVE, op_class
from syncpoint.matching.protocol import Matching
from syncpoint.run.model import Op
from syncpoint.run.reader import Run

Line = tuple[str, int]
Call = tuple[str, str, int, str, str, int]
"""Graph, path and round, module, file and line: where the user's code calls for an op."""


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


def call_of(op: Op, modules: Mapping[str, str] = MappingProxyType({})) -> Call:
    """Where the user's code calls for an op; without module and file where it is not known."""
    key = op.key
    module = modules.get(op.module, op.module)
    if not op.source:
        return (key.graph, key.path, key.iteration, module, "", 0)
    frame = op.source[-1]
    return (key.graph, key.path, key.iteration, module, PurePath(frame.file).name, frame.line)


def is_located(call: Call) -> bool:
    """Whether a call names a module or a file."""
    return bool(call[3] or call[4])


def are_nested(call: Call, other: Call) -> bool:
    """Whether two calls are of one line, and the module of one is inside that of the other."""
    if call[:3] != other[:3] or call[4:] != other[4:] or not call[4]:
        return False
    outer, inner = sorted((call[3], other[3]), key=len)
    return not outer or inner.startswith(f"{outer}.")


def lines_by_module(ops: Sequence[Op]) -> dict[str, set[Line]]:
    """By module: the lines that its ops were called for by."""
    found: dict[str, set[Line]] = {}
    for op in ops:
        here = found.setdefault(op.module, set())
        if op.source:
            here.add((PurePath(op.source[-1].file).name, op.source[-1].line))
    return found


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
