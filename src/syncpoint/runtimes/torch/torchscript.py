"""What a TorchScript archive says of its code: original lines, and which module a call is in.

The interpreter knows only lines of the code inside the archive. That code is Python of a plain
kind: modules are fetched as attributes, and their methods called. So a stack of lines is
followed from the outermost call down, from module to module. The archive also tells which lines
of the original files its own were made from. Nothing of it is executed here.
"""

from __future__ import annotations

import ast
import contextlib
import io
import pickle
import zipfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType
from typing import Any, BinaryIO

import torch

from syncpoint.run.model import Frame
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.live_stack import Here, python_stack
from syncpoint.runtimes.torch.node_metadata import of_the_user

_SUFFIX = ".debug_pkl"


@dataclass(frozen=True)
class _Call:
    """A method of a submodule that a line calls."""

    first: int
    last: int
    path: tuple[str, ...]
    method: str


@dataclass
class _Method:
    """A function of the archive's code."""

    owner: str
    first: int
    last: int
    calls: list[_Call] = field(default_factory=list)


class ScriptSource:
    """Tells module and source of the op that the TorchScript interpreter is about to run."""

    def __init__(self, archive: BinaryIO) -> None:
        self._methods: dict[str, list[_Method]] = {}
        """By file, `code/__torch__.py`."""
        self._attributes: dict[str, dict[str, str]] = {}
        """Class -> its attributes and their classes."""
        self._lines: dict[str, _Lines] = {}
        with zipfile.ZipFile(archive) as files:
            for name in files.namelist():
                _, _, inside = name.partition("/")
                if inside.startswith("code/") and inside.endswith(".py"):
                    text = files.read(name).decode()
                    self._read(inside, text)
                    if name + _SUFFIX in files.namelist():
                        self._lines[inside] = _Lines(text, files.read(name + _SUFFIX))

    def here(self, below: CodeType) -> Here:
        """Source stack, and path and class of the module where the stack leads to one."""
        raw = torch._C._profiler.gather_traceback(python=False, script=True, cpp=False)
        found: list[dict[str, Any]] = torch._C._profiler.symbolize_tracebacks([raw])[0]
        stack = [(f["filename"], f["line"], f["name"]) for f in reversed(found)]
        if not stack:
            return python_stack(below)
        original = [self._original(*frame) for frame in stack]
        return of_the_user(original), self._module(stack)

    def _original(self, file: str, line: int, name: str) -> Frame:
        known = self._lines.get(file)
        found = known.original(line) if known is not None else None
        return Frame(*(found or (file, line)), name)

    def _module(self, stack: list[tuple[str, int, str]]) -> tuple[str, str] | None:
        """Follow the calls; it ends early where a line calls two modules of one class."""
        method = self._at(stack[0][0], stack[0][1])
        if method is None or not method.owner:
            return None
        path: tuple[str, ...] = ()
        for (_, line, _), (file, inner, _) in pairwise(stack):
            callee = self._at(file, inner)
            if callee is None or not callee.owner:
                break
            if callee.owner == method.owner:
                continue
            leads = {
                call.path
                for call in method.calls
                if call.first <= line <= call.last
                and self._class(method.owner, call.path) == callee.owner
            }
            if len(leads) != 1:
                return None
            path += leads.pop()
            method = callee
        return ".".join(path), method.owner.rpartition(".")[2]

    def _at(self, file: str, line: int) -> _Method | None:
        inside = (m for m in self._methods.get(file, ()) if m.first <= line <= m.last)
        return next(inside, None)

    def _class(self, owner: str, path: tuple[str, ...]) -> str:
        for name in path:
            owner = self._attributes.get(owner, {}).get(name, "")
        return owner

    def _read(self, file: str, text: str) -> None:
        module = file.removeprefix("code/").removesuffix(".py").replace("/", ".")
        methods = self._methods.setdefault(file, [])
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.FunctionDef):
                methods.append(_method("", statement))
            if not isinstance(statement, ast.ClassDef):
                continue
            owner = f"{module}.{statement.name}"
            self._attributes[owner] = dict(_annotations(statement))
            methods += [
                _method(owner, inner)
                for inner in statement.body
                if isinstance(inner, ast.FunctionDef)
            ]


def _annotations(statement: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """`conv : __torch__.Conv` and `__annotations__["0"] = __torch__.Conv`."""
    for inner in statement.body:
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            yield inner.target.id, ast.unparse(inner.annotation)
        elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Subscript):
            key = inner.targets[0].slice
            if isinstance(key, ast.Constant):
                yield str(key.value), ast.unparse(inner.value)


def _method(owner: str, function: ast.FunctionDef) -> _Method:
    found = _Method(owner, function.lineno, function.end_lineno or function.lineno)
    known: dict[str, tuple[str, ...]] = {"self": ()}
    if function.args.args:
        known = {function.args.args[0].arg: ()}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            path = _path(node.value, known)
            if path:
                known[node.targets[0].id] = path
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = _path(node.func.value, known)
            if path:
                last = node.end_lineno or node.lineno
                found.calls.append(_Call(node.lineno, last, path, node.func.attr))
    return found


def _path(node: ast.expr, known: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """The submodule that an expression fetches, from the module whose method it is in."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        inner = _path(node.value, known)
        return None if inner is None else (*inner, node.attr)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and isinstance(node.args[1], ast.Constant)
    ):
        inner = _path(node.args[0], known)
        return None if inner is None else (*inner, str(node.args[1].value))
    return None


class _Lines:
    """The original places of the lines of one file of the archive."""

    def __init__(self, text: str, table: bytes) -> None:
        self._starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._offsets: list[int] = []
        self._places: list[tuple[str, int]] = []
        try:
            _, texts, ranges = _Plain(io.BytesIO(table)).load()
            for offset, (source, start, _), *_ in ranges:
                parts, file, first = source
                before = "".join(texts[i] for i in parts)[:start]
                self._offsets.append(offset)
                self._places.append((texts[file], first + before.count("\n")))
        except (pickle.UnpicklingError, ValueError, TypeError, IndexError, EOFError):
            # Without a table the archive's own lines are all there is.
            self._offsets, self._places = [], []

    def original(self, line: int) -> tuple[str, int] | None:
        """File and line that a line was made from."""
        if line >= len(self._starts):
            return None
        # A place holds from its offset on; the one of the line's end belongs to what follows.
        start, end = self._starts[line - 1], self._starts[line] - 1
        for at in range(bisect_right(self._offsets, end - 1) - 1, -1, -1):
            if self._places[at][0]:
                return self._places[at]
            if self._offsets[at] <= start:
                break
        return None


class _Plain(pickle.Unpickler):
    """Numbers, texts and tuples; a list of numbers is the one thing it may call for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.jit._pickle", "build_intlist"):
            return _as_list
        raise pickle.UnpicklingError(f"{module}.{name}")


def _as_list(values: Tree) -> list[Any]:
    return list(values)


@contextlib.contextmanager
def unoptimised() -> Iterator[None]:
    """Let TorchScript run op by op: what it fuses, nobody sees."""
    before = torch._C._get_graph_executor_optimize()
    torch._C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before)
