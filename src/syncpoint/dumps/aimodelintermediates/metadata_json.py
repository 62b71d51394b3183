"""Parse Apple's entries in `metadata.json` as untrusted data: categories, entries in order,
mappings from nodes to outputs of Core AI's converter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncpoint.dumps.aimodelintermediates.save_folder import CATEGORIES, METADATA
from syncpoint.errors import FormatError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json

MAX_METADATA = 256 << 20
"""Bytes of the largest file that is read."""
_MAX_PATH_CHARACTERS = 400
_CURE = "create the .aimodelintermediates folder again"
_NUMBER = re.compile(r"_(\d{1,18})\.npy$")


@dataclass(frozen=True, kw_only=True)
class MetadataEntry:
    """One entry of the file."""

    name: str
    category: str
    file: str
    node_op: str
    node_target: str
    torch_dtype: str
    shape: list[Any] | None
    numel: int | None
    facts: object
    """What the entry has under the key `syncpoint`, or None."""

    @property
    def number(self) -> int | None:
        """Its position in the order of execution, from the name of its file."""
        match = _NUMBER.search(self.file)
        return int(match[1]) if match else None


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the file; it must have the three categories."""
    with read_errors(path):
        try:
            raw = read_whole(path, MAX_METADATA)
        except FileNotFoundError as error:
            raise FormatError(
                f"{path.parent} has no {METADATA}: the program that wrote the folder probably"
                " stopped early",
                cure=_CURE,
            ) from error
    body = parse_json(raw, str(path), _CURE)
    for category in CATEGORIES:
        if not isinstance(body, dict) or not isinstance(body.get(category), dict):
            raise FormatError(
                f"{path} has no {category}; inputs, outputs and intermediates are expected",
                cure="give the path of an .aimodelintermediates folder",
            )
    categories: dict[str, Any] = body
    return categories


def list_entries(body: dict[str, Any], path: Path) -> tuple[list[MetadataEntry], bool]:
    """List all entries; also returns whether they are in the order of execution.

    They are where the name of each file has a number of its own; otherwise outputs come last.
    """
    entries: list[MetadataEntry] = []
    names: set[str] = set()
    for category in CATEGORIES:
        for name, entry in body[category].items():
            if name in names:
                raise FormatError(f"{path} has the name {name[:80]!r} twice", cure=_CURE)
            names.add(name)
            entries.append(_parse_entry(name, category, entry, path))
    numbers = {entry.file: entry.number for entry in entries}
    is_ordered = None not in numbers.values() and len(set(numbers.values())) == len(numbers)
    if is_ordered:
        entries.sort(key=lambda entry: entry.number or 0)
    else:
        entries.sort(key=lambda entry: entry.category == "outputs")
    return entries, is_ordered


def parse_coreai_outputs(body: dict[str, Any], path: Path) -> dict[str, list[list[int]]]:
    """Parse the mappings of Core AI's converter.

    They say, for each node, which of its outputs became which output of which Core AI operation.
    """
    where = f"the mappings of {path}"
    mappings = _require_object(body.get("mappings", {}), where)
    sources = _require_object(mappings.get("sources", {}), where)
    names: dict[tuple[str, int], str] = {}
    for dialect, ops in sources.items():
        for op in _require_object(ops, where).values():
            op = _require_object(op, where)
            identifiers = op.get("identifiers")
            number = op.get("id")
            if type(number) is not int or not isinstance(identifiers, list):
                raise FormatError(
                    f"an operation in {where} lacks a number 'id' or a list 'identifiers'",
                    cure=_CURE,
                )
            if identifiers and isinstance(identifiers[0], str):
                names[dialect, number] = identifiers[0]
    rows = mappings.get("outputs", [])
    if not isinstance(rows, list):
        raise FormatError(
            f"the outputs in {where} are not a list but a {type(rows).__name__}", cure=_CURE
        )
    outputs: dict[str, list[list[int]]] = {}
    for row in rows:
        row = _require_object(row, where)
        numbers = [
            row.get(k) for k in ("source_op_id", "source_output", "target_op_id", "target_output")
        ]
        if not all(type(n) is int for n in numbers):
            raise FormatError(
                f"an output in {where} has an id or index that is not an integer", cure=_CURE
            )
        name = names.get((str(row.get("source_level")), int(str(numbers[0]))))
        if name is not None and row.get("target_level") == "coreai":
            outputs.setdefault(name, []).append([int(str(n)) for n in numbers[1:]])
    return outputs


def _parse_entry(name: str, category: str, entry: object, path: Path) -> MetadataEntry:
    where = f"{name[:80]!r} in {path}"
    if not name.isprintable() or not name:
        # Tables, terminals and JSON cannot hold what is not text.
        raise FormatError(
            f"{path} has an op with a name that is not printable: {ascii(name)[:80]}",
            cure="rename the op in the model, then create the folder again",
        )
    entry = _require_object(entry, where)
    texts = {}
    for key in ("data_file", "node_op", "node_target", "torch_dtype"):
        texts[key] = entry.get(key, "")
        if not isinstance(texts[key], str) or not texts[key].isprintable():
            raise FormatError(
                f"{key} of {where} must be printable text, not {repr(texts[key])[:80]}", cure=_CURE
            )
    length = len(texts["data_file"])
    if not 0 < length <= _MAX_PATH_CHARACTERS:
        raise FormatError(
            f"data_file of {where} must have 1 to {_MAX_PATH_CHARACTERS} characters, but has"
            f" {length}",
            cure=_CURE,
        )
    shape, numel = entry.get("shape"), entry.get("numel")
    if shape is not None and not isinstance(shape, list):
        raise FormatError(f"the shape of {where} is not a list: {repr(shape)[:80]}", cure=_CURE)
    if numel is not None and type(numel) is not int:
        raise FormatError(f"numel of {where} is not a number: {repr(numel)[:80]}", cure=_CURE)
    return MetadataEntry(
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


def _require_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(
            f"{where} must be a JSON object, not a {type(value).__name__}", cure=_CURE
        )
    return value
