"""Parse the names of device dump files and golden arrays; escape op names; read `mapping.csv`,
which holds names that were too long.

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
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import path_inside, read_whole

MAPPING = "mapping.csv"
NOT_DUMPS = frozenset({MAPPING, "convert_failed_file_list.txt"})
"""Files that lie beside the dumps and hold no tensors."""
TASK_TYPES = {0: "AICORE", 1: "AICPU", 2: "DEBUG", 3: "HCCL", 4: "FFTSPLUS"}

_MAX_MAPPING_BYTES = 64 << 20
_MAX_DIGITS = 20
"""Longer numbers are not timestamps; they count as 0 and sort first."""
_MAX_NAME_CHARACTERS = 16 * 1024
_TAIL = (
    r"\.(?P<task>[0-9]{{1,255}})(?:\.(?P<stream>[0-9]{{1,255}}))?\.(?P<time>[0-9]{time})"
    r"(?:\.(?P<task_type>[0-9]{{1,255}})\.(?P<context>[0-9]{{1,255}})\.(?P<thread>[0-9]{{1,255}}))?"
    r"(?:\.(?P<device>[0-9]{{1,255}}))?"
)
_TIMED = re.compile(r"(?P<type>[A-Za-z0-9_-]+)\.(?P<op>.+?)" + _TAIL.format(time="{16}"))
"""With a timestamp of 16 digits: the op's name may then contain dots and numbers."""
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


def escape_name(name: str) -> str:
    """Return an op's name as it appears in file names."""
    return name.translate(_ESCAPED)


def parse_device_name(text: str) -> DeviceName | None:
    """Parse the name of a device's file, or return None."""
    if not _is_usable(text):
        return None
    match = _TIMED.fullmatch(text) or _DEVICE.fullmatch(text)
    if match is None or match["op"].replace(".", "").isdecimal():
        return None  # numbers all along are a version or a date, not the name of an op
    part = _SLICE.fullmatch(match["op"])

    def number(name: str) -> int | None:
        return None if match[name] is None else _number(match[name])

    return DeviceName(
        type=match["type"],
        op=match["op"] if part is None else part[1],
        task=_number(match["task"]),
        stream=number("stream"),
        timestamp=_number(match["time"]),
        task_type=number("task_type"),
        context=number("context"),
        thread=number("thread"),
        device=number("device"),
        slice=None if part is None else int(part[2]),
    )


def parse_golden_name(text: str) -> GoldenName | None:
    """Parse the name of a golden array's file, or return None."""
    match = _GOLDEN.fullmatch(text) if _is_usable(text) else None
    if match is None:
        return None
    return GoldenName(match[1], int(match[2]), _number(match[3]), match[4])


def _is_usable(text: str) -> bool:
    return "/" not in text and text.isprintable() and len(text) <= _MAX_NAME_CHARACTERS


def _number(text: str) -> int:
    return int(text) if len(text) <= _MAX_DIGITS else 0


def is_hashed(text: str) -> bool:
    """Whether a file name is a number, so that its real name must be in `mapping.csv`."""
    return text.removesuffix(".npy").isascii() and text.removesuffix(".npy").isdecimal()


def read_mapping(root: Path) -> Mapping[str, str]:
    """Read the full name of each numbered file; empty if there is no `mapping.csv`.

    The names are texts only and are never opened. Damage is a FormatError.
    """
    with read_errors(f"{MAPPING} in {root}", FormatError):
        try:
            path = path_inside(root, MAPPING)
            data = read_whole(path, _MAX_MAPPING_BYTES)
        except FileNotFoundError:
            return {}
    try:
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(
            f"{path} is not a CSV file ({describe_error(error)})", cure="dump it again"
        ) from error
    names: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        if not row or not any(cell.strip() for cell in row):
            continue
        if len(row) != 2:
            raise FormatError(
                f"line {number} of {path} has {len(row)} columns instead of two (number of the"
                " file, full name)",
                cure="correct the line, or dump it again",
            )
        short, full = (cell.strip() for cell in row)
        if not short or not full or not full.isprintable():
            raise FormatError(
                f"line {number} of {path} does not hold two names: {ascii(','.join(row))[:80]}",
                cure="correct the line, or dump it again",
            )
        if names.setdefault(short, full) != full:
            raise FormatError(
                f"line {number} of {path} gives the file {short[:40]} a second full name",
                cure="remove the wrong line of the two",
            )
    return names


def find_full_name(name: str, mapping: Mapping[str, str]) -> str:
    """Return the real name of a file whose name was too long."""
    if name in mapping:
        return mapping[name]
    stem = name.removesuffix(".npy")
    if stem != name and stem in mapping:
        full = mapping[stem]
        return full if full.endswith(".npy") else full + ".npy"
    return name
