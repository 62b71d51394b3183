"""Parse (tokens, blocks, texts) `dynamo_original_graph_*.txt`, the graph that TorchAir writes
beside a dump: ops, what they read, their FX outputs.

Only what pairing needs is kept of an op: its name and type, what it reads, and which tensor of the
FX graph each of its outputs is. All else is passed over, but must be well-formed text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import read_whole

FX_NAME = "_fx_tensor_name"
"""The attribute of an output that names its tensor in the FX graph."""

_MAX_BYTES = 1 << 30
_MAX_DEPTH = 64
_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s+|\#[^\n]*)+)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<mark>[{}<>\[\]:,;])
  | (?P<word>[^\s{}<>\[\]:,;"'\#]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|[xX][0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.S)
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r", "a": b"\a", "b": b"\b", "f": b"\f", "v": b"\v"}
_CLOSING = {"{": "}", "<": ">"}

Block = list[tuple[str, Any]]
"""Keys with their values, in order: a key may come again. A value is text or a block."""


@dataclass(frozen=True)
class GraphOp:
    """One op of the graph, before anything was fused."""

    name: str
    type: str = ""
    inputs: tuple[tuple[str, int], ...] = ()
    """Name of the producer and which of its outputs; without control edges."""
    outputs: tuple[str, ...] = ()
    """For each output its tensor in the FX graph, `mm-aten.mm.default.OUTPUT.0`; "" if not said."""


@dataclass(frozen=True)
class DynamoGraph:
    """The ops of one graph by name, in their order."""

    ops: dict[str, GraphOp]
    file: str = ""

    @classmethod
    def load(cls, path: Path) -> DynamoGraph:
        """Read a file; one that is no such text is a FormatError."""
        with read_errors(path, FormatError):
            text = read_whole(path, _MAX_BYTES).decode("utf-8", "backslashreplace")
        ops: dict[str, GraphOp] = {}
        for op in parse(text, str(path)):
            if op.name in ops:
                raise FormatError(
                    f"{path} has the op {op.name[:80]!r} twice", cure="dump the graph again"
                )
            ops[op.name] = op
        if not ops:
            raise FormatError(f"{path} has no ops", cure="dump the graph again, as txt")
        return cls(ops, path.name)


def parse(text: str, where: str) -> Iterator[GraphOp]:
    """The ops of a graph in protobuf's text form, wherever in it they stand."""
    stack: list[tuple[str, str, Block]] = []
    block: Block = []
    tokens = _Tokens(text, where)
    while True:
        key = tokens.next()
        if key is None:
            break
        if key in ("}", ">"):
            if not stack or stack[-1][1] != key:
                raise tokens.error("a key", f"{key!r}")
            name, _, outer = stack.pop()
            op = _op(block) if name == "op" else None
            if op is None:
                outer.append((name, block))
            else:
                yield op
            block = outer
            continue
        if key in (",", ";"):
            continue
        if key[0] in "\"'{<[]:":
            raise tokens.error("a key", repr(key[:40]))
        mark = tokens.next()
        if mark == ":":
            mark = tokens.next()
            if mark not in _CLOSING:
                block += [(key, value) for value in tokens.values(mark)]
                continue
        if mark not in _CLOSING:
            raise tokens.error(f"a value for {key[:40]!r}", "none" if mark is None else mark[:40])
        if len(stack) >= _MAX_DEPTH:
            raise tokens.error(f"at most {_MAX_DEPTH} blocks inside each other", "more")
        stack.append((key, _CLOSING[mark], block))
        block = []
    if stack:
        raise tokens.error(f"the end of the block {stack[-1][0][:40]!r}", "the end of the file")


class _Tokens:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._position = 0
        self._ahead: list[str] = []

    def next(self) -> str | None:
        """The next token, or None at the end."""
        if self._ahead:
            return self._ahead.pop()
        while self._position < len(self._text):
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                raise self.error(
                    "text without open quotes", repr(self._text[self._position :][:20])
                )
            self._position = match.end()
            if match.lastgroup != "space":
                return match[0]
        return None

    def values(self, first: str | None) -> Iterator[str]:
        """The value that begins with this token, or those of a list; blocks in lists are not
        looked into."""
        if first == "[":
            depth = 1
            while depth:
                token = self.next()
                if token is None:
                    raise self.error("the end of a list", "the end of the file")
                depth += (token in "[{<") - (token in "]}>")
                if depth == 1 and token not in ",]}>":
                    yield _plain(token)
            return
        if first is None or first in "{}<>[]:,;":
            raise self.error("a value", "none" if first is None else repr(first))
        value = _plain(first)
        if first[0] in "\"'":
            # Strings that follow each other are one.
            while (more := self.next()) is not None:
                if more[0] not in "\"'":
                    self._ahead.append(more)
                    break
                value += _plain(more)
        yield value

    def error(self, expected: str, actual: str) -> FormatError:
        """Return an error that names the line."""
        line = self._text.count("\n", 0, self._position) + 1
        return FormatError(
            f"line {line} of {self._where} must have {expected}, but has {actual}",
            cure="dump the graph again",
        )


def _plain(token: str) -> str:
    """The text that a token stands for."""
    if token[0] not in "\"'":
        return token
    body = token[1:-1]
    if "\\" not in body:
        return body
    out = bytearray()
    position = 0
    for match in _ESCAPE.finditer(body):
        out += body[position : match.start()].encode("utf-8", "backslashreplace")
        out += _unescaped(match[1])
        position = match.end()
    out += body[position:].encode("utf-8", "backslashreplace")
    return out.decode("utf-8", "backslashreplace")


def _unescaped(code: str) -> bytes:
    if code[0] in "01234567":
        return bytes([int(code, 8) & 0xFF])
    if code[0] in "xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "uU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number if number < 0x110000 else 0xFFFD).encode("utf-8", "backslashreplace")
    return _LETTERS.get(code, code.encode("utf-8", "backslashreplace"))


def _op(block: Block) -> GraphOp | None:
    """The op that a block describes; None where it has no name, so is something else."""
    name = _text(block, "name")
    if not name:
        return None
    inputs = []
    for key, value in block:
        if key == "input" and isinstance(value, str):
            producer, _, index = value.rpartition(":")
            if producer and index.isascii() and index.isdecimal() and len(index) < 10:
                inputs.append((producer, int(index)))
            elif index != "-1":  # a control edge
                inputs.append((value, 0))
    outputs = [v for k, v in block if k == "output_desc" and isinstance(v, list)]
    return GraphOp(name, _text(block, "type"), tuple(inputs), tuple(map(_fx_name, outputs)))


def _fx_name(output: Block) -> str:
    for key, value in output:
        if key == "attr" and isinstance(value, list) and _text(value, "key") == FX_NAME:
            for inner, inner_value in value:
                if inner == "value" and isinstance(inner_value, list):
                    return _text(inner_value, "s")
    return ""


def _text(block: Block, key: str) -> str:
    return next((v for k, v in block if k == key and isinstance(v, str)), "")
