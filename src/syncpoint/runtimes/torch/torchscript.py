"""Find module (submodule path and class) and original source lines of TorchScript ops, from call
stacks and the code inside the archive.

The interpreter knows only lines of the code inside the archive. That code is simple Python:
modules are fetched as attributes, and their methods called. So a stack of lines is followed from
the outermost call down, from module to module. The archive also maps its lines to those of the
original files. None of this code is executed here.
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
from syncpoint.runtimes.torch.node_metadata import CallSite, read_python_stack, select_user_frames

_DEBUG_SUFFIX = ".debug_pkl"


@dataclass(frozen=True)
class _SubmoduleCall:
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
    calls: list[_SubmoduleCall] = field(default_factory=list)


class ScriptSource:
    """Finds module and source of the op that the TorchScript interpreter is about to run."""

    def __init__(self, archive: BinaryIO) -> None:
        self._methods: dict[str, list[_Method]] = {}
        """By file, `code/__torch__.py`."""
        self._attributes: dict[str, dict[str, str]] = {}
        """Class -> its attributes and their classes."""
        self._lines: dict[str, _LineTable] = {}
        with zipfile.ZipFile(archive) as files:
            for name in files.namelist():
                _, _, inside = name.partition("/")
                if inside.startswith("code/") and inside.endswith(".py"):
                    text = files.read(name).decode()
                    self._parse_file(inside, text)
                    if name + _DEBUG_SUFFIX in files.namelist():
                        self._lines[inside] = _LineTable(text, files.read(name + _DEBUG_SUFFIX))

    def read_call_site(self, outer_code: CodeType) -> CallSite:
        """Source stack, and path and class of the module where the stack shows one."""
        raw_traceback = torch._C._profiler.gather_traceback(python=False, script=True, cpp=False)
        script_frames: list[dict[str, Any]] = torch._C._profiler.symbolize_tracebacks(
            [raw_traceback]
        )[0]
        stack = [(f["filename"], f["line"], f["name"]) for f in reversed(script_frames)]
        if not stack:
            return read_python_stack(outer_code)
        original = [self._find_original(*frame) for frame in stack]
        return select_user_frames(original), self._find_module(stack)

    def _find_original(self, file: str, line: int, name: str) -> Frame:
        line_table = self._lines.get(file)
        original = line_table.find_original(line) if line_table is not None else None
        return Frame(*(original or (file, line)), name)

    def _find_module(self, stack: list[tuple[str, int, str]]) -> tuple[str, str] | None:
        """Follow the calls to a module; None where a line calls two modules of one class."""
        method = self._find_method(stack[0][0], stack[0][1])
        if method is None or not method.owner:
            return None
        path: tuple[str, ...] = ()
        for (_, line, _), (file, inner, _) in pairwise(stack):
            callee = self._find_method(file, inner)
            if callee is None or not callee.owner:
                break
            if callee.owner == method.owner:
                continue
            submodule_paths = {
                call.path
                for call in method.calls
                if call.first <= line <= call.last
                and self._resolve_class(method.owner, call.path) == callee.owner
            }
            if len(submodule_paths) != 1:
                return None
            path += submodule_paths.pop()
            method = callee
        return ".".join(path), method.owner.rpartition(".")[2]

    def _find_method(self, file: str, line: int) -> _Method | None:
        methods = (m for m in self._methods.get(file, ()) if m.first <= line <= m.last)
        return next(methods, None)

    def _resolve_class(self, owner: str, path: tuple[str, ...]) -> str:
        for name in path:
            owner = self._attributes.get(owner, {}).get(name, "")
        return owner

    def _parse_file(self, file: str, text: str) -> None:
        module = file.removeprefix("code/").removesuffix(".py").replace("/", ".")
        methods = self._methods.setdefault(file, [])
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.FunctionDef):
                methods.append(_parse_method("", statement))
            if not isinstance(statement, ast.ClassDef):
                continue
            owner = f"{module}.{statement.name}"
            self._attributes[owner] = dict(_annotations(statement))
            methods += [
                _parse_method(owner, inner)
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


def _parse_method(owner: str, function: ast.FunctionDef) -> _Method:
    method = _Method(owner, function.lineno, function.end_lineno or function.lineno)
    path_by_variable: dict[str, tuple[str, ...]] = {"self": ()}
    if function.args.args:
        path_by_variable = {function.args.args[0].arg: ()}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            path = _submodule_path(node.value, path_by_variable)
            if path:
                path_by_variable[node.targets[0].id] = path
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = _submodule_path(node.func.value, path_by_variable)
            if path:
                last = node.end_lineno or node.lineno
                method.calls.append(_SubmoduleCall(node.lineno, last, path, node.func.attr))
    return method


def _submodule_path(
    node: ast.expr, path_by_variable: dict[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """The path of the submodule that an expression fetches; None where it is no submodule."""
    if isinstance(node, ast.Name):
        return path_by_variable.get(node.id)
    if isinstance(node, ast.Attribute):
        inner = _submodule_path(node.value, path_by_variable)
        return None if inner is None else (*inner, node.attr)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and isinstance(node.args[1], ast.Constant)
    ):
        inner = _submodule_path(node.args[0], path_by_variable)
        return None if inner is None else (*inner, str(node.args[1].value))
    return None


class _LineTable:
    """Maps the lines of one file of the archive to original files and lines."""

    def __init__(self, text: str, table: bytes) -> None:
        self._starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._offsets: list[int] = []
        self._places: list[tuple[str, int]] = []
        try:
            _, texts, ranges = _PlainUnpickler(io.BytesIO(table)).load()
            for offset, (source, start, _), *_ in ranges:
                parts, file, first = source
                before = "".join(texts[i] for i in parts)[:start]
                self._offsets.append(offset)
                self._places.append((texts[file], first + before.count("\n")))
        except (pickle.UnpicklingError, ValueError, TypeError, IndexError, EOFError):
            # Without a table only the lines of the archive are known.
            self._offsets, self._places = [], []

    def find_original(self, line: int) -> tuple[str, int] | None:
        """The original file and line of a line; None where unknown."""
        if line >= len(self._starts):
            return None
        # An entry is valid from its offset on; one at the end of the line belongs to the next line.
        start, end = self._starts[line - 1], self._starts[line] - 1
        for index in range(bisect_right(self._offsets, end - 1) - 1, -1, -1):
            if self._places[index][0]:
                return self._places[index]
            if self._offsets[index] <= start:
                break
        return None


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles numbers, texts, tuples and lists of numbers; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.jit._pickle", "build_intlist"):
            return _as_list
        raise pickle.UnpicklingError(f"{module}.{name}")


def _as_list(values: Tree) -> list[Any]:
    return list(values)


@contextlib.contextmanager
def without_optimisation() -> Iterator[None]:
    """Run TorchScript op by op: fused ops cannot be recorded."""
    was_optimised = torch._C._get_graph_executor_optimize()
    torch._C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(was_optimised)
