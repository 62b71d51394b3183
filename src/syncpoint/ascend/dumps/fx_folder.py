"""One folder of an FX graph's dump: parse file names, group files by execution of a node, read the
.npy headers.

    {node}-{target}.INPUT|OUTPUT.{number}[.{place in a list}].{time}[_min_max].npy

Arguments that are no tensors are saved too, numbers as arrays and all else as text or pickled
objects, which are never read. Files whose volume was reduced hold `[least, greatest]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.dumps.array_store import StoredLayout
from syncpoint.dumps.npy_header import NotNumbers, read_npy_entry
from syncpoint.errors import FormatError
from syncpoint.run.model import Role, Tensor, TensorKey

MIN_MAX = "_min_max"
"""Suffix of files that hold only minimum and maximum."""

_NAME = re.compile(
    r"(?P<op>.+)\.(?P<role>INPUT|OUTPUT)\.(?P<number>[0-9]{1,6})(?:\.(?P<place>[0-9]{1,6}))?"
    r"\.(?P<time>[0-9]{7,40})(?P<reduced>_min_max)?\.npy"
)
_ROLES = {"INPUT": Role.INPUT, "OUTPUT": Role.OUTPUT}


@dataclass(frozen=True, kw_only=True)
class FxName:
    """The parts of a file's name."""

    op: str
    """`mm-aten.mm.default`: the node and what it calls."""
    role: Role
    number: int
    place: int
    """Position in an argument that is a list; -1 if it is not a list."""
    time: int
    reduced: bool


def parse_fx_name(text: str) -> FxName | None:
    """Parse the name of a file of an FX dump, or return None."""
    match = _NAME.fullmatch(text) if text.isprintable() else None
    if match is None:
        return None
    place = -1 if match["place"] is None else int(match["place"])
    role = _ROLES[match["role"]]
    reduced = match["reduced"] is not None
    return FxName(
        op=match["op"],
        role=role,
        number=int(match["number"]),
        place=place,
        time=int(match["time"]),
        reduced=reduced,
    )


@dataclass
class FxCall:
    """One execution of a node."""

    op: str
    files: dict[tuple[Role, int, int], tuple[str, FxName]] = field(default_factory=dict)
    """By role, number of the argument and place in it."""

    @property
    def node(self) -> str:
        """Its name in the graph."""
        return self.op.partition("-")[0]

    @property
    def target(self) -> str:
        """What it calls: `aten.mm.default`."""
        return self.op.partition("-")[2]

    def indexed(self) -> Iterator[tuple[Role, int, str, FxName]]:
        """Yield the files in order, with the index of each tensor.

        The index is the number of the argument or, if an argument is a list, the position among
        all values.
        """
        for role in (Role.INPUT, Role.OUTPUT):
            keys = sorted(key for key in self.files if key[0] is role)
            nested = any(place >= 0 for _, _, place in keys)
            for position, key in enumerate(keys):
                file, name = self.files[key]
                yield role, position if nested else key[1], file, name


def group_fx_calls(names: Iterable[str]) -> list[FxCall]:
    """Group the files of a folder by execution, in the order of their times.

    A new execution of a node begins where one of its tensors appears again. The files of one
    execution may have different times.
    """
    files = [(name, file) for file in names if (name := parse_fx_name(file)) is not None]
    files.sort(
        key=lambda f: (f[0].time, f[0].op, f[0].role is Role.OUTPUT, f[0].number, f[0].place)
    )
    latest: dict[str, FxCall] = {}
    calls = []
    for name, file in files:
        key = (name.role, name.number, name.place)
        call = latest.get(name.op)
        if call is None or key in call.files:
            call = latest[name.op] = FxCall(name.op)
            calls.append(call)
        call.files[key] = (file, name)
    return calls


@dataclass(frozen=True)
class FxTensor:
    """A file of an FX dump: its tensor, or why it has none."""

    tensor: Tensor | None
    layout: StoredLayout | None = None
    damage: str = ""
    """What is wrong with the file; "" for an argument that is not a number."""


def read_fx_tensor(root: Path, file: str, key: TensorKey) -> FxTensor:
    """Read the header of a file; `file` is relative to `root`."""
    try:
        entry, layout = read_npy_entry(root, file)
    except FormatError as error:
        if isinstance(error, NotNumbers) and key.role is Role.INPUT:
            return FxTensor(None)
        return FxTensor(None, damage=str(error))
    return FxTensor(entry.tensor(key), layout)
