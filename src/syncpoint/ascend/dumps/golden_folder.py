"""A folder of golden arrays: `{op}.{output}.{timestamp}.npy`, of another framework's run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.file_names import GoldenName, golden_name
from syncpoint.ascend.dumps.folder_files import SHOWN, UNREADABLE, Listing, damage_note, listing
from syncpoint.dumps.array_store import ArrayStore, StoredLayout
from syncpoint.dumps.npy_header import MAGIC, read_npy_entry
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.untrusted_files import path_inside, require_folder, starts_with
from syncpoint.run.model import Op, OpKey, Role, RunInfo, TensorKey
from syncpoint.run.reader import Run

_LEAST_TIME = 10**9
"""A timestamp below it, a second of 2001, may be any number in the name of any file."""
_OTHER_DUMPS = (".INPUT", ".OUTPUT")
"""Ends of names in dumps of FX graphs, which are no ops with outputs."""


class GoldenFolder:
    """Arrays of ops by output, in the order of their timestamps."""

    API = API
    name = "ascend-golden"
    priority = 600

    def sniff(self, path: Path) -> bool:
        """A folder whose .npy files are all named so, with times; other arrays are not ours."""
        try:
            if not path.is_dir():
                return False
            files = listing(path).files
        except (OSError, FormatError):
            return False
        arrays = {file: full for file, full in files.items() if file.endswith(".npy")}
        for full in arrays.values():
            name = golden_name(full)
            if name is None or name.timestamp < _LEAST_TIME or name.op.endswith(_OTHER_DUMPS):
                return False
        return any(_is_array(path, file) for file in arrays)

    def open(self, path: Path) -> Run:
        """Reads the headers only. A file that cannot be used is named as damage of its op."""
        root = require_folder(path, "a folder of golden arrays")
        listed = listing(root)
        named = _arrays(listed)
        if not named:
            raise InputError(
                f"files named OP.OUTPUT.TIME.npy in {path}",
                listed.summary() or "an empty folder",
                "check the path",
            )
        ops, tensors = [], []
        odd: dict[TensorKey, StoredLayout] = {}
        calls: dict[str, int] = {}
        for one in _executions(named):
            key = OpKey(one.op, calls.get(one.op, 0))
            calls[one.op] = key.call + 1
            damage: dict[int, str] = {}
            for output, file in sorted(one.files.items()):
                try:
                    entry, lay = read_npy_entry(root, file)
                except FormatError as error:
                    damage[output] = f"output {output}: {error}"
                    continue
                tensor_key = TensorKey(key, index=output)
                if lay is not None:
                    odd[tensor_key] = lay
                tensors.append(entry.tensor(tensor_key))
            attributes: dict[str, Any] = {
                "escaped": one.op,
                "timestamp": one.timestamp,
                "files": [one.files[k] for k in sorted(one.files)],
            }
            if damage:
                attributes["damage"] = "; ".join(list(damage.values())[:SHOWN])
                attributes[UNREADABLE] = [Role.OUTPUT, next(iter(damage))]
            ops.append(Op(key, "", attributes=attributes))
        info = RunInfo(
            model=path.name, options={"format": self.name}, notes=(*listed.notes, *damage_note(ops))
        )
        return Run(info, ops, tensors, ArrayStore(root, odd), path=path)


@dataclass
class _Execution:
    op: str
    timestamp: int
    """Of its last file."""
    files: dict[int, str] = field(default_factory=dict)
    """By the number of the output."""


def _executions(named: list[tuple[str, GoldenName]]) -> Iterable[_Execution]:
    """Files of one op together, until an output comes for the second time.

    Many tools take the time anew for each file, so outputs of one execution need not share it.
    """
    named.sort(key=lambda n: (n[1].timestamp, n[1].op, n[1].output, n[0]))
    latest: dict[str, _Execution] = {}
    found = []
    for file, name in named:
        one = latest.get(name.op)
        if one is None or name.output in one.files:
            one = latest[name.op] = _Execution(name.op, name.timestamp)
            found.append(one)
        one.files[name.output] = file
        one.timestamp = name.timestamp
    return found


def _arrays(listed: Listing) -> list[tuple[str, GoldenName]]:
    found, other, legacy = [], [], []
    for file, full in listed.files.items():
        name = golden_name(full)
        if name is None:
            other.append(file)
        elif name.suffix != "npy":
            legacy.append(file)
        else:
            found.append((file, name))
    listed.skip(other, "the name is not OP.OUTPUT.TIME.npy")
    listed.skip(legacy, "only .npy files are read; convert them")
    return found


def _is_array(root: Path, file: str) -> bool:
    try:
        path = path_inside(root, file)
    except (OSError, FormatError):
        return False
    return starts_with(path, MAGIC)
