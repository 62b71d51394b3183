"""Tests of how the dataclasses of the package are constructed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import syncpoint

SOURCE = Path(syncpoint.__file__).parent

_MIN_FIELDS = 6
"""From this many fields on, a dataclass takes keywords."""
_MAX_POSITIONAL = 3
"""Fields that such a dataclass may also take by position, where their order is natural."""


def positional_fields(definition: ast.ClassDef, kw_only: bool) -> tuple[int, int]:
    """The numbers of fields of a dataclass: those it takes by position, and all."""
    positional = count = 0
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign):
            continue
        annotation = ast.unparse(statement.annotation)
        if annotation.endswith("KW_ONLY"):
            kw_only = True
        elif not annotation.startswith("ClassVar"):
            count += 1
            positional += not kw_only
    return positional, count


def dataclasses_of(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, bool]]:
    """The dataclasses of a file, each with whether its decorator says `kw_only=True`."""
    for node in ast.walk(tree):
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            text = ast.unparse(decorator)
            if text.removeprefix("dataclasses.").startswith("dataclass"):
                yield node, "kw_only=True" in text


def positional_dataclasses(text: str) -> list[str]:
    """The dataclasses of a source text that break the rule."""
    broken = []
    for definition, kw_only in dataclasses_of(ast.parse(text)):
        positional, count = positional_fields(definition, kw_only)
        if count >= _MIN_FIELDS and positional > _MAX_POSITIONAL:
            broken.append(f"{definition.name}: {positional} of {count} fields")
    return broken


def test_dataclasses_of_many_fields_take_keywords():
    broken = {
        path.relative_to(SOURCE).as_posix(): names
        for path in sorted(SOURCE.rglob("*.py"))
        if (names := positional_dataclasses(path.read_text()))
    }
    assert broken == {}


@pytest.mark.parametrize(
    ("decorator", "marker", "names"),
    [
        ("@dataclass(frozen=True)", None, ["Row: 6 of 6 fields"]),
        ("@dataclass", 4, ["Row: 4 of 6 fields"]),
        ("@dataclasses.dataclass", None, ["Row: 6 of 6 fields"]),
        ("@dataclass(frozen=True, kw_only=True)", None, []),
        ("@dataclass", 3, []),
    ],
)
def test_the_rule_counts_fields_before_the_marker(decorator, marker, names):
    fields = [f"    field_{number}: int" for number in range(6)]
    if marker is not None:
        fields.insert(marker, "    _: KW_ONLY")
    text = "\n".join([decorator, "class Row:", *fields, "    limit: ClassVar[int] = 1"])
    assert positional_dataclasses(text) == names
