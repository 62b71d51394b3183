"""Recognise and read a folder of golden arrays, `{op}.{output}.{timestamp}.npy`, that another
framework's run wrote, as a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.file_names import GoldenName, parse_golden_name
from syncpoint.ascend.dumps.folder_listing import (
    MAX_SHOWN_NAMES,
    UNREADABLE,
    Listing,
    describe_damage,
    list_folder,
)
from syncpoint.dumps.array_store import ArrayStore, StoredLayout
from syncpoint.dumps.npy_header import MAGIC, read_npy_entry
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.untrusted_files import path_inside, require_folder, starts_with
from syncpoint.run.model import Op, OpKey, Role, RunInfo, TensorKey
from syncpoint.run.reader import Run

_MIN_TIMESTAMP = 10**9
"""A second of 2001: a smaller number need not be a timestamp."""
_OTHER_DUMPS = (".INPUT", ".OUTPUT")
"""Suffixes of names in dumps of FX graphs."""


class GoldenFolder:
    """Arrays of ops by output, in the order of their timestamps."""

    API = API
    name = "ascend-golden"
    priority = 600

    def sniff(self, path: Path) -> bool:
        """Whether all .npy files of a folder have such names with timestamps."""
        try:
            if not path.is_dir():
                return False
            files = list_folder(path).files
        except (OSError, FormatError):
            return False
        arrays = {file: full for file, full in files.items() if file.endswith(".npy")}
        for full in arrays.values():
            name = parse_golden_name(full)
            if name is None or name.timestamp < _MIN_TIMESTAMP or name.op.endswith(_OTHER_DUMPS):
                return False
        return any(_is_array(path, file) for file in arrays)

    def open(self, path: Path) -> Run:
        """Read the headers only. An unreadable file is recorded as damage of its op."""
        root = require_folder(path, "a folder of golden arrays")
        listed = list_folder(root)
        named_files = _arrays(listed)
        if not named_files:
            raise InputError(
                f"{path} has no files named OP.OUTPUT.TIME.npy:"
                f" {listed.summary() or 'it is empty'}",
                cure="give the path of the folder that holds such files",
            )
        ops, tensors = [], []
        odd: dict[TensorKey, StoredLayout] = {}
        calls: dict[str, int] = {}
        for execution in _executions(named_files):
            key = OpKey(execution.op, calls.get(execution.op, 0))
            calls[execution.op] = key.call + 1
            damage: dict[int, str] = {}
            for output, file in sorted(execution.files.items()):
                try:
                    entry, layout = read_npy_entry(root, file)
                except FormatError as error:
                    damage[output] = f"output {output}: {error}"
                    continue
                tensor_key = TensorKey(key, index=output)
                if layout is not None:
                    odd[tensor_key] = layout
                tensors.append(entry.tensor(tensor_key))
            attributes: dict[str, Any] = {
                "escaped": execution.op,
                "timestamp": execution.timestamp,
                "files": [execution.files[k] for k in sorted(execution.files)],
            }
            if damage:
                attributes["damage"] = "; ".join(list(damage.values())[:MAX_SHOWN_NAMES])
                attributes[UNREADABLE] = [Role.OUTPUT, next(iter(damage))]
            ops.append(Op(key, "", attributes=attributes))
        info = RunInfo(
            model=path.name,
            options={"format": self.name},
            notes=(*listed.notes, *describe_damage(ops)),
        )
        return Run(info, ops, tensors, ArrayStore(root, odd), path=path)


@dataclass
class _Execution:
    op: str
    timestamp: int
    """Of its last file."""
    files: dict[int, str] = field(default_factory=dict)
    """By the number of the output."""


def _executions(named_files: list[tuple[str, GoldenName]]) -> Iterable[_Execution]:
    """Group the files of an op by execution: a new one begins where an output appears again.

    Many tools take a new time for each file, so the outputs of one execution may differ in it.
    """
    named_files.sort(key=lambda n: (n[1].timestamp, n[1].op, n[1].output, n[0]))
    latest: dict[str, _Execution] = {}
    executions = []
    for file, name in named_files:
        execution = latest.get(name.op)
        if execution is None or name.output in execution.files:
            execution = latest[name.op] = _Execution(name.op, name.timestamp)
            executions.append(execution)
        execution.files[name.output] = file
        execution.timestamp = name.timestamp
    return executions


def _arrays(listed: Listing) -> list[tuple[str, GoldenName]]:
    arrays, other, legacy = [], [], []
    for file, full in listed.files.items():
        name = parse_golden_name(full)
        if name is None:
            other.append(file)
        elif name.suffix != "npy":
            legacy.append(file)
        else:
            arrays.append((file, name))
    listed.skip(other, "their names are not OP.OUTPUT.TIME.npy")
    listed.skip(legacy, "only .npy files are read; convert them")
    return arrays


def _is_array(root: Path, file: str) -> bool:
    try:
        path = path_inside(root, file)
    except (OSError, FormatError):
        return False
    return starts_with(path, MAGIC)
