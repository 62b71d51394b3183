"""Dumps of training runs: `time/device/model/model id/step/`, each with the files of one step."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncpoint.ascend.dumps.file_names import device_name, full_name, read_mapping
from syncpoint.ascend.dumps.rule_file import RuleFile
from syncpoint.errors import FormatError, InputError
from syncpoint.files.untrusted_files import path_inside, require_folder

_GENERATED = re.compile(r"ge_default_[0-9]+_([0-9]+)")


@dataclass(frozen=True)
class Leaf:
    """One folder of dump files, and where in the tree it is."""

    path: Path
    device: str
    model: str
    model_id: str
    step: str

    @property
    def name(self) -> str:
        """Its place, below the root."""
        return f"{self.device}/{self.model}/{self.model_id}/{self.step}"


def is_tree(path: Path) -> bool:
    """Whether this is the root of such a tree; never raises for its damage."""
    try:
        return _digits(path.resolve().name) and next(_leaves(path), None) is not None
    except (OSError, FormatError):
        return False


def leaves(path: Path) -> list[Leaf]:
    """All folders of dump files, devices, ids and steps in the order of their numbers."""
    root = require_folder(path, "a tree of device dumps")
    found = sorted(_leaves(root), key=_order)
    if not found:
        raise InputError(
            f"folders DEVICE/MODEL/ID/STEP with dump files in {path}", "none", "check the path"
        )
    return found


def latest(found: Iterable[Leaf]) -> list[Leaf]:
    """The last step of each device, model and id, by number: 10 comes after 9."""
    last: dict[tuple[str, str, str], Leaf] = {}
    for leaf in sorted(found, key=_order):
        last[leaf.device, leaf.model, leaf.model_id] = leaf
    return list(last.values())


def rules(path: Path) -> dict[str, RuleFile]:
    """The rule files of a folder by the names of their graphs; a name twice is a FormatError."""
    found: dict[str, RuleFile] = {}
    for name in sorted(p.name for p in require_folder(path, "a folder of rule files").iterdir()):
        if not name.endswith(".json"):
            continue
        rule = RuleFile.load(path_inside(path, name))
        for graph in dict.fromkeys(rule.graphs):
            if graph in found:
                raise FormatError(
                    f"one rule file for the graph {graph} in {path}",
                    f"{found[graph].path.name} and {name}",
                )
            found[graph] = rule
    if not found:
        raise InputError(f"rule files (.json) in {path}", "none", "check the path")
    return found


def rule_of(model: str, known: Mapping[str, RuleFile]) -> tuple[str, RuleFile] | None:
    """The graph of a model and its rule file: by its name, else by the number that the converter
    gave it, where only one graph has that number. None where there is none."""
    if model in known:
        return model, known[model]
    number = _GENERATED.fullmatch(model)
    if number is None:
        return None
    same = [
        name
        for name in known
        if (m := _GENERATED.fullmatch(name)) is not None and m[1] == number[1]
    ]
    return (same[0], known[same[0]]) if len(same) == 1 else None


def _leaves(root: Path) -> Iterator[Leaf]:
    for device in _folders(root):
        if not _digits(device):
            continue
        for model in _folders(root / device):
            for model_id in _folders(root / device / model):
                for step in _folders(root / device / model / model_id):
                    path = root / device / model / model_id / step
                    if _has_dumps(path):
                        yield Leaf(path, device, model, model_id, step)


def _folders(path: Path) -> Sequence[str]:
    """Folders inside, by name; those that are links are not followed."""
    with os.scandir(path) as entries:
        return sorted(
            e.name for e in entries if e.is_dir(follow_symlinks=False) and e.name.isprintable()
        )


def _has_dumps(path: Path) -> bool:
    try:
        mapping = read_mapping(path)
    except FormatError:
        mapping = {}
    with os.scandir(path) as entries:
        return any(device_name(full_name(e.name, mapping)) is not None for e in entries)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _order(leaf: Leaf) -> tuple[tuple[int, int, str], ...]:
    return tuple(_number(t) for t in (leaf.device, leaf.model, leaf.model_id, leaf.step))


def _number(text: str) -> tuple[int, int, str]:
    """Numbers by their value before words."""
    return (0, int(text), "") if _digits(text) and len(text) < 64 else (1, 0, text)
