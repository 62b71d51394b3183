"""Fails if a function has more branches than a reader can hold in mind.

Counts the places where a function can take another path: if and elif, loops, except, with, match
cases, assertions, conditional expressions, comprehensions and their conditions, and each operand of
`and` and `or` after the first. The path without any of them counts as one. A nested function counts
on its own and as part of the function around it, because it is read there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LIMIT = 20
ROOT = Path(__file__).parents[1]
FOLDERS = ("src/syncpoint", "tools", "benchmarks")
_GENERATED = "_pb2.py"
_BRANCHING = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.With,
    ast.AsyncWith,
    ast.match_case,
    ast.Assert,
)


class BranchCount(NamedTuple):
    """One function and the number of its branches."""

    path: Path
    line: int
    name: str
    branches: int


def count_branches(function: ast.AST) -> int:
    """Number of branches of a function, nested functions included."""
    return 1 + sum(_weight(node) for node in ast.walk(function))


def _weight(node: ast.AST) -> int:
    """Branches that one node of the syntax tree adds."""
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return int(isinstance(node, _BRANCHING))


def count_in_file(path: Path) -> Iterator[BranchCount]:
    """Count the branches of every function of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield BranchCount(path, node.lineno, node.name, count_branches(node))


def python_files(folders: Iterable[Path]) -> list[Path]:
    """The Python files below some folders, without generated ones."""
    files = (path for folder in folders for path in folder.rglob("*.py"))
    return sorted(path for path in files if not path.name.endswith(_GENERATED))


def main(root: Path = ROOT) -> int:
    """Print each function above the limit; the exit code is 1 if there is any."""
    files = python_files(root / folder for folder in FOLDERS)
    functions = [count for path in files for count in count_in_file(path)]
    offenders = [count for count in functions if count.branches > LIMIT]
    for path, line, name, branches in offenders:
        print(f"{path.relative_to(root)}:{line} {name} {branches} branches (limit {LIMIT})")
    if not offenders:
        print(f"branches: at most {LIMIT} in each of {len(functions)} functions")
    return int(bool(offenders))


if __name__ == "__main__":
    sys.exit(main())
