"""Source lines and module of the user's call of an op, by recorded source text, and whether the
lines of both sides contradict a pair.

Larger ops are decomposed into small ones, and one line or module has several small ops of a kind:
the division at the end of a softmax is not the scaling of scores. If both runs have the same source
text, a small op of one line cannot be paired with a small op of another line, unless their values
are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

from syncpoint.errors import FormatError
from syncpoint.matching.op_kinds import PRIMITIVE, TRANSPARENT, op_class
from syncpoint.matching.protocol import Matching
from syncpoint.run.model import Op
from syncpoint.run.reader import Run

_SMALL = PRIMITIVE | TRANSPARENT | {"slice", "concat", "split", "embedding", "pad", "cumsum"}
"""Classes of ops of which one module often has several, so that the line tells them apart."""

Line = tuple[str, int]
Call = tuple[str, str, int, str, str, int]
"""Graph, path, iteration, module, file and line: where the user's code calls an op."""


class SourceLines:
    """The lines that ops of both sides have, in files with equal text."""

    def __init__(self, matching: Matching) -> None:
        sides = matching.target, matching.reference
        files = [_files([op for op in side.ops if op.source], side.run) for side in sides]
        self._equal_files = {
            name for name, text in files[0].items() if text and files[1].get(name) == text
        }
        lines = [{line for op in side.ops if (line := _line(op))} for side in sides]
        self._common = {line for line in lines[0] & lines[1] if line[0] in self._equal_files}

    def contradict(self, target: Op, reference: Op) -> bool:
        """Whether two small ops are called by different lines. The reference must have ops of the
        target's line; the target may have fused those of the reference's line."""
        target_line, reference_line = _line(target), _line(reference)
        if target_line not in self._common or reference_line is None:
            return False
        if reference_line[0] not in self._equal_files:
            return False
        if target_line in _stack(reference) or reference_line in _stack(target):
            return False
        return op_class(target.type) in _SMALL and op_class(reference.type) in _SMALL


def source_call_of(op: Op, modules: Mapping[str, str] = MappingProxyType({})) -> Call:
    """Where the user's code calls an op; module and file are empty if unknown."""
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
    """Whether two calls have the same line, and one module is inside the other."""
    if call[:3] != other[:3] or call[4:] != other[4:] or not call[4]:
        return False
    outer, inner = sorted((call[3], other[3]), key=len)
    return not outer or inner.startswith(f"{outer}.")


def lines_by_module(ops: Sequence[Op]) -> dict[str, set[Line]]:
    """By module: the source lines of its ops."""
    lines: dict[str, set[Line]] = {}
    for op in ops:
        module_lines = lines.setdefault(op.module, set())
        if op.source:
            module_lines.add((PurePath(op.source[-1].file).name, op.source[-1].line))
    return lines


def _line(op: Op) -> Line | None:
    return (PurePath(op.source[-1].file).name, op.source[-1].line) if op.source else None


def _stack(op: Op) -> set[Line]:
    return {(PurePath(frame.file).name, frame.line) for frame in op.source}


def _files(ops: list[Op], run: Run) -> dict[str, str]:
    """The text of each file by its base name; "" if two have that name or there is no copy."""
    texts: dict[str, str] = {}
    for file in dict.fromkeys(op.source[-1].file for op in ops):
        name = PurePath(file).name
        texts[name] = "" if name in texts else _text(run, file)
    return texts


def _text(run: Run, file: str) -> str:
    """The recorded text of a file; "" if it is damaged, which `verify` and the page report."""
    try:
        return run.source_text(file) or ""
    except FormatError:
        return ""
