"""Fails if names say how a value arrived instead of what it is, or if a class name is used twice.

Counts every name that is assigned: variables, parameters, functions, attributes of classes. Three
lists are counted apart (docs/design/LANGUAGE.md):

- vague names, which say how a value arrived: `found`, `made`, `said`. `found_rows` is a name.
- filler names, which fit everything: `result`, `data`, `item`. They must not replace vague ones.
- constants without a quantity: `_MOST`, `_FEW`. `_MAX_FINDINGS` is a name.

A leading underscore and the case of the letters do not count. The limits may only be lowered.
`--list` prints every place, `--list src/syncpoint/run` those in one folder.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PYTHON_FOLDERS = ("src/syncpoint", "tools")
PAGE_FOLDER = "web/src"
_GENERATED = ("_pb2.py", "schema.ts")

VAGUE = frozenset(
    [
        "found",
        "made",
        "said",
        "told",
        "given",
        "known",
        "fed",
        "asked",
        "seen",
        "at",
        "both",
        "again",
        "here",
        "there",
        "got",
        "drawn",
        "left",
        "taken",
        "kept",
        "mine",
        "theirs",
        "ours",
        "wanted",
        "held",
        "laid",
        "lay",
        "meant",
        "wished",
        "heard",
        "gone",
    ]
)
FILLER = frozenset(["result", "data", "item", "info", "res", "obj", "tmp"])
UNMEASURED = frozenset(
    [
        "most",
        "few",
        "far",
        "times",
        "gross",
        "fair",
        "near",
        "least",
        "longest",
        "largest",
        "more",
        "several",
        "little",
        "much",
        "many",
        "wide",
        "narrow",
        "long",
        "short",
    ]
)

MAX_VAGUE_SHARE = 0.001
MAX_FILLER_SHARE = 0.0066
MAX_UNMEASURED_CONSTANTS = 0
MAX_REPEATED_CLASSES = 0

_SCRIPT_NAME = re.compile(
    r"\b(?:const|let|var|function)\s+(\w+)"  # declarations
    r"|[(,]\s*(\w+)\??\s*:(?!:)"  # typed parameters
    r"|[(,]\s*(\w+)\s*(?=[,)][^;{}]*=>)|\b(\w+)\s*=>"  # parameters of arrow functions
)
_SCRIPT_PATTERN = re.compile(r"\b(?:const|let)\s+[\[{]([^=\]}]*)[\]}]\s*=")


class AssignedName(NamedTuple):
    """A name, and where it is assigned."""

    path: Path
    line: int
    name: str


def python_names(path: Path) -> Iterator[AssignedName]:
    """Variables, parameters and functions of a Python file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield AssignedName(path, node.lineno, node.id)
        elif isinstance(node, ast.arg):
            yield AssignedName(path, node.lineno, node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield AssignedName(path, node.lineno, node.name)


def script_names(path: Path) -> Iterator[AssignedName]:
    """Variables, parameters and functions of a TypeScript file, as far as one line shows them."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = line.partition("//")[0]
        names = [name for groups in _SCRIPT_NAME.findall(code) for name in groups if name]
        for pattern in _SCRIPT_PATTERN.findall(code):
            names += [part.split(":")[-1].strip() for part in pattern.split(",") if part.strip()]
        yield from (AssignedName(path, number, name) for name in names)


def class_places(files: Iterable[Path]) -> dict[str, list[str]]:
    """The classes that are defined more than once, and where."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return {name: where for name, where in places.items() if len(where) > 1}


def source_files(folder: Path, *suffixes: str) -> list[Path]:
    """The files below a folder with one of the suffixes, without generated ones."""
    files = (path for path in folder.rglob("*") if path.suffix in suffixes)
    return sorted(path for path in files if not path.name.endswith(_GENERATED))


def is_vague(name: str) -> bool:
    """Whether a name says how a value arrived."""
    return name.strip("_").lower() in VAGUE


def is_filler(name: str) -> bool:
    """Whether a name fits everything."""
    return name.strip("_").lower() in FILLER


def is_unmeasured(name: str) -> bool:
    """Whether a constant has neither quantity nor unit in its name."""
    return name.isupper() and name.strip("_").lower() in UNMEASURED


def list_places(names: Iterable[AssignedName], below: Path) -> None:
    """Print the vague names and unmeasured constants below a folder, the frequent ones first."""
    chosen = [
        entry
        for entry in names
        if entry.path.is_relative_to(below) and (is_vague(entry.name) or is_unmeasured(entry.name))
    ]
    frequency = Counter(entry.name for entry in chosen)
    for entry in sorted(chosen, key=lambda entry: (-frequency[entry.name], entry)):
        print(f"{entry.path.relative_to(ROOT)}:{entry.line} {entry.name}")


def main(arguments: list[str]) -> int:
    """Print the shares, and what exceeds its limit; the exit code is 1 if anything does."""
    folders = [source_files(ROOT / folder, ".py") for folder in PYTHON_FOLDERS]
    names = [entry for files in folders for path in files for entry in python_names(path)]
    for path in source_files(ROOT / PAGE_FOLDER, ".ts", ".tsx"):
        names += script_names(path)
    if arguments[:1] == ["--list"]:
        list_places(names, ROOT / (arguments[1] if arguments[1:] else ""))
        return 0
    repeated = class_places(folders[0])
    vague = sum(is_vague(entry.name) for entry in names) / len(names)
    filler = sum(is_filler(entry.name) for entry in names) / len(names)
    unmeasured = sum(is_unmeasured(entry.name) for entry in names)
    print(
        f"names: {vague:.2%} of {len(names)} vague, {filler:.2%} filler, {unmeasured} constants"
        f" without a quantity, {len(repeated)} class names used twice"
    )
    failures = [
        (vague > MAX_VAGUE_SHARE, f"vague names above {MAX_VAGUE_SHARE:.2%}; see --list"),
        (filler > MAX_FILLER_SHARE, f"filler names above {MAX_FILLER_SHARE:.2%}"),
        (
            unmeasured > MAX_UNMEASURED_CONSTANTS,
            f"more than {MAX_UNMEASURED_CONSTANTS} constants without a quantity; see --list",
        ),
        (
            len(repeated) > MAX_REPEATED_CLASSES,
            f"classes of one name: {'; '.join(f'{k} in {v}' for k, v in repeated.items())}",
        ),
    ]
    for exceeded, message in failures:
        if exceeded:
            print(f"tools/check_names.py: {message}")
    return int(any(exceeded for exceeded, _ in failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
