"""`metadata.json` of an `.aimodelintermediates` folder, read without trust."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncpoint.dumps.aimodelintermediates.folder_writer import CATEGORIES, METADATA
from syncpoint.errors import FormatError, InputError, describe_error
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json

MAX_METADATA = 256 << 20
_MAX_PATH = 400
_NUMBER = re.compile(r"_(\d{1,18})\.npy$")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One entry as it stands in the file."""

    name: str
    category: str
    file: str
    node_op: str
    node_target: str
    torch_dtype: str
    shape: list[Any] | None
    numel: int | None
    facts: object
    """What stands under our own key, or None."""

    @property
    def number(self) -> int | None:
        """Which of the values in the order of execution it was, as the file's name tells."""
        found = _NUMBER.search(self.file)
        return int(found[1]) if found else None


def read_metadata(path: Path) -> dict[str, Any]:
    """The three categories and what else there is."""
    try:
        data = read_whole(path, MAX_METADATA)
    except FileNotFoundError as error:
        raise FormatError(
            f"{METADATA} in {path.parent}", "none", "its writer did not finish; write it again"
        ) from error
    except OSError as error:
        raise InputError(f"a readable file at {path}", describe_error(error)) from error
    body = parse_json(data, str(path))
    for category in CATEGORIES:
        if not isinstance(body, dict) or not isinstance(body.get(category), dict):
            raise FormatError(f"inputs, outputs and intermediates in {path}", f"no {category}")
    found: dict[str, Any] = body
    return found


def listed(body: dict[str, Any], path: Path) -> tuple[list[Listed], bool]:
    """All entries, and whether they are in the order of execution.

    The names of the files tell it where each has a number of its own; else outputs come last.
    """
    found: list[Listed] = []
    seen: set[str] = set()
    for category in CATEGORIES:
        for name, entry in body[category].items():
            if name in seen:
                raise FormatError(f"each name once in {path}", f"{name[:80]!r} twice")
            seen.add(name)
            found.append(_entry(name, category, entry, path))
    numbers = {entry.file: entry.number for entry in found}
    ordered = None not in numbers.values() and len(set(numbers.values())) == len(numbers)
    if ordered:
        found.sort(key=lambda entry: entry.number or 0)
    else:
        found.sort(key=lambda entry: entry.category == "outputs")
    return found, ordered


def coreai_outputs(body: dict[str, Any], path: Path) -> dict[str, list[list[int]]]:
    """Of each node that Core AI's converter kept track of: which output of it became which
    output of which Core AI operation."""
    where = f"the mappings of {path}"
    mappings = _object(body.get("mappings", {}), where)
    sources = _object(mappings.get("sources", {}), where)
    names: dict[tuple[str, int], str] = {}
    for dialect, ops in sources.items():
        for op in _object(ops, where).values():
            op = _object(op, where)
            identifiers = op.get("identifiers")
            number = op.get("id")
            if type(number) is not int or not isinstance(identifiers, list):
                raise FormatError(f"an id and identifiers in {where}", "another structure")
            if identifiers and isinstance(identifiers[0], str):
                names[dialect, number] = identifiers[0]
    rows = mappings.get("outputs", [])
    if not isinstance(rows, list):
        raise FormatError(f"a list of outputs in {where}", type(rows).__name__)
    found: dict[str, list[list[int]]] = {}
    for row in rows:
        row = _object(row, where)
        numbers = [
            row.get(k) for k in ("source_op_id", "source_output", "target_op_id", "target_output")
        ]
        if not all(type(n) is int for n in numbers):
            raise FormatError(f"numbers of operations and outputs in {where}", "another structure")
        name = names.get((str(row.get("source_level")), int(str(numbers[0]))))
        if name is not None and row.get("target_level") == "coreai":
            found.setdefault(name, []).append([int(str(n)) for n in numbers[1:]])
    return found


def _entry(name: str, category: str, entry: object, path: Path) -> Listed:
    where = f"{name[:80]!r} of {path}"
    if not name.isprintable() or not name:
        # Tables, terminals and JSON cannot hold what is no text.
        raise FormatError(f"printable names in {path}", ascii(name)[:80])
    entry = _object(entry, where)
    texts = {}
    for key in ("data_file", "node_op", "node_target", "torch_dtype"):
        texts[key] = entry.get(key, "")
        if not isinstance(texts[key], str) or not texts[key].isprintable():
            raise FormatError(f"text as {key} of {where}", repr(texts[key])[:80])
    length = len(texts["data_file"])
    if not 0 < length <= _MAX_PATH:
        raise FormatError(f"a data_file of 1 to {_MAX_PATH} characters for {where}", f"{length}")
    shape, numel = entry.get("shape"), entry.get("numel")
    if shape is not None and not isinstance(shape, list):
        raise FormatError(f"a list as shape of {where}", repr(shape)[:80])
    if numel is not None and type(numel) is not int:
        raise FormatError(f"a number as numel of {where}", repr(numel)[:80])
    return Listed(
        name=name,
        category=category,
        file=texts["data_file"],
        node_op=texts["node_op"],
        node_target=texts["node_target"],
        torch_dtype=texts["torch_dtype"],
        shape=shape,
        numel=numel,
        facts=entry.get("syncpoint"),
    )


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"an object for {where}", type(value).__name__)
    return value
