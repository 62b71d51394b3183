"""What the names of dump files say, and `mapping.csv`, which has the names that were too long.

A device writes `{op type}.{op name}.{task}.{stream}.{timestamp}`, in which the stream may be
absent; parts of an op that were executed by FFTS+ go on with
`.{task type}.{context}.{thread}.{device}`. Golden arrays are called
`{op name}.{output}.{timestamp}.npy`. In both, characters of the op's name that a file name should
not have are written as `_`, so that two ops can come to the same name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from syncpoint.errors import FormatError, describe_error
from syncpoint.files.untrusted_files import path_inside, read_whole

MAPPING = "mapping.csv"
NOT_DUMPS = frozenset({MAPPING, "convert_failed_file_list.txt"})
"""Files that lie beside the dumps and hold no tensors."""
TASK_TYPES = {0: "AICORE", 1: "AICPU", 2: "DEBUG", 3: "HCCL", 4: "FFTSPLUS"}

_MAX_MAPPING = 64 << 20
_MAX_DIGITS = 20
"""Longer numbers are no times; they count as 0, so that they sort first."""
_MAX_NAME = 16 * 1024
_TAIL = (
    r"\.(?P<task>[0-9]{{1,255}})(?:\.(?P<stream>[0-9]{{1,255}}))?\.(?P<time>[0-9]{time})"
    r"(?:\.(?P<task_type>[0-9]{{1,255}})\.(?P<context>[0-9]{{1,255}})\.(?P<thread>[0-9]{{1,255}}))?"
    r"(?:\.(?P<device>[0-9]{{1,255}}))?"
)
_TIMED = re.compile(r"(?P<type>[A-Za-z0-9_-]+)\.(?P<op>.+?)" + _TAIL.format(time="{16}"))
"""With a timestamp that is known by its digits; then the op's name may have dots and numbers."""
_DEVICE = re.compile(
    r"(?P<type>[A-Za-z0-9_-]+)\.(?P<op>[A-Za-z0-9_-]+)" + _TAIL.format(time="{1,255}")
)
_GOLDEN = re.compile(r"(.+)\.([0-9]{1,9})\.([0-9]{1,255})\.(npy|pb|quant)")
_SLICE = re.compile(r"(.+)_lxslice([0-9]{1,9})")
_ESCAPED = str.maketrans(dict.fromkeys("./\\ ", "_"))


@dataclass(frozen=True, kw_only=True)
class DeviceName:
    """The parts of a device's file name."""

    type: str
    op: str
    """Escaped; without the number of its slice."""
    task: int
    stream: int | None
    timestamp: int
    task_type: int | None = None
    context: int | None = None
    thread: int | None = None
    device: int | None = None
    slice: int | None = None
    """N of a name that ends in `_lxsliceN`."""


@dataclass(frozen=True)
class GoldenName:
    """The parts of a golden array's file name."""

    op: str
    """Escaped."""
    output: int
    timestamp: int
    suffix: str
    """npy, pb or quant."""


def escaped(name: str) -> str:
    """An op's name as it appears in the names of files."""
    return name.translate(_ESCAPED)


def device_name(text: str) -> DeviceName | None:
    """The parts of a file name, or None where it is not of a device."""
    if not _usable(text):
        return None
    found = _TIMED.fullmatch(text) or _DEVICE.fullmatch(text)
    if found is None or found["op"].replace(".", "").isdecimal():
        return None  # numbers all along are a version or a date, not the name of an op
    part = _SLICE.fullmatch(found["op"])

    def number(name: str) -> int | None:
        return None if found[name] is None else _number(found[name])

    return DeviceName(
        type=found["type"],
        op=found["op"] if part is None else part[1],
        task=_number(found["task"]),
        stream=number("stream"),
        timestamp=_number(found["time"]),
        task_type=number("task_type"),
        context=number("context"),
        thread=number("thread"),
        device=number("device"),
        slice=None if part is None else int(part[2]),
    )


def golden_name(text: str) -> GoldenName | None:
    """The parts of a file name, or None where it is not of a golden array."""
    found = _GOLDEN.fullmatch(text) if _usable(text) else None
    if found is None:
        return None
    return GoldenName(found[1], int(found[2]), _number(found[3]), found[4])


def _usable(text: str) -> bool:
    return "/" not in text and text.isprintable() and len(text) <= _MAX_NAME


def _number(text: str) -> int:
    return int(text) if len(text) <= _MAX_DIGITS else 0


def is_hashed(text: str) -> bool:
    """Whether a file has a number for a name, so that `mapping.csv` must say whose it is."""
    return text.removesuffix(".npy").isascii() and text.removesuffix(".npy").isdecimal()


def read_mapping(root: Path) -> Mapping[str, str]:
    """The full name of each file that goes by a number; empty where there is no `mapping.csv`.

    A name that would lead out of the folder is never opened: it is only the text that a name
    which was too long would have been. Damage is a FormatError.
    """
    try:
        path = path_inside(root, MAPPING)
        data = read_whole(path, _MAX_MAPPING)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FormatError(f"a readable {MAPPING} in {root}", describe_error(error)) from error
    try:
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"lines of text in {path}", describe_error(error)) from error
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        if not row or not any(cell.strip() for cell in row):
            continue
        if len(row) != 2:
            raise FormatError(f"two columns in line {number} of {path}", f"{len(row)}")
        short, full = (cell.strip() for cell in row)
        if not short or not full or not full.isprintable():
            raise FormatError(f"two names in line {number} of {path}", ascii(",".join(row))[:80])
        if found.setdefault(short, full) != full:
            raise FormatError(f"one name for {short[:40]} in {path}", "two")
    return found


def full_name(name: str, mapping: Mapping[str, str]) -> str:
    """The name a file would have if it were not too long."""
    if name in mapping:
        return mapping[name]
    stem = name.removesuffix(".npy")
    if stem != name and stem in mapping:
        full = mapping[stem]
        return full if full.endswith(".npy") else full + ".npy"
    return name
