"""Find the dump.json files below a path by step and rank; read dump.json, stack.json and
construct.json; parse their stacks to source frames."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from syncpoint.errors import FormatError, Unsupported
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.untrusted_json import parse_foreign_json
from syncpoint.run.model import Frame

DUMP = "dump.json"
VALUES = "dump_tensor_data"
_MAX_JSON_BYTES = 4 << 30
_SNIFFED_BYTES = 4096
_STEP = re.compile(r"step([0-9]{1,12})")
_RANK = re.compile(r"rank([0-9]{0,12})")
_PROCESS = re.compile(r"proc([0-9]{1,12})")
_FRAME = re.compile(r"File (?P<file>.+?), line (?P<line>[0-9]{1,9}), in (?P<function>[^,\n]*)")
_OF_TORCH = re.compile(r"(?:.*[/\\](?:site|dist)-packages[/\\])?(?:torch|torch_npu|msprobe)[/\\]")


@dataclass(frozen=True)
class Place:
    """A dump.json, with the step and rank that its folders name."""

    path: Path
    step: int = -1
    rank: int = -1


def is_dump(path: Path) -> bool:
    """Whether a file begins like a dump.json."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(_SNIFFED_BYTES)
    except OSError:
        return False
    return start.lstrip().startswith(b"{") and b'"task"' in start and b'"dump_data_dir"' in start


def find_dumps(path: Path) -> tuple[list[Place], list[str]]:
    """Find the dumps at a path, in order of step and rank, with notes about them."""
    if path.is_file():
        return [Place(path)], []
    if (path / DUMP).is_file():
        return [Place(path / DUMP)], []
    steps = _numbered_folders(path, _STEP)
    places: list[Place] = []
    notes: list[str] = []
    for step, folder in steps or [(-1, path)]:
        ranks = _numbered_folders(folder, _RANK)
        processes = _numbered_folders(folder, _PROCESS)
        if ranks and processes:
            raise FormatError(
                f"{folder} holds folders of ranks (rank0) and of processes (proc1)",
                cure="give the path of a folder that holds only one of the two",
            )
        if len(processes) > 1:
            note = "processes have no rank: they are numbered in the order of their process ids"
            notes += [note] if note not in notes else []
            processes = list(enumerate(folder for _, folder in processes))
        for rank, inner in ranks or processes:
            if (inner / DUMP).is_file():
                places.append(Place(inner / DUMP, step, rank))
    several = [len({getattr(p, level) for p in places}) > 1 for level in ("step", "rank")]
    numbered = [
        Place(p.path, p.step if several[0] else -1, p.rank if several[1] else -1) for p in places
    ]
    return sorted(numbered, key=lambda p: (p.step, p.rank)), notes


def _numbered_folders(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Return the folders whose names match, sorted by number."""
    try:
        inner = [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []
    matches = [(pattern.fullmatch(entry.name), entry) for entry in inner]
    return sorted((int(match[1] or 0), entry) for match, entry in matches if match)


@dataclass(frozen=True, kw_only=True)
class Dump:
    """Contents of the JSON files of one dump."""

    place: Place
    task: str
    level: str
    data: dict[str, Any]
    values: Path | None
    """Folder of the tensors; None if there is none beside dump.json."""
    parents: dict[str, str] = field(default_factory=dict)
    """The module that called an API or a module, by the name of the latter."""
    stacks: dict[str, list[str]] = field(default_factory=dict)


def read_dump(place: Place) -> Dump:
    """Read dump.json and the JSON files beside it."""
    body = _read_json_object(place.path)
    framework = body.get("framework", "pytorch")
    if framework != "pytorch":
        raise Unsupported(
            f"{place.path} is a dump of {str(framework)[:40]}, and only dumps of PyTorch can be"
            " read",
            cure="convert its tensors to .npz",
        )
    data = body.get("data")
    if not isinstance(data, dict):
        raise FormatError(
            f"`data` in {place.path} must be a JSON object, not {type(data).__name__}",
            cure="dump it again",
        )
    folder = place.path.parent
    return Dump(
        place=place,
        task=str(body.get("task", ""))[:40],
        level=str(body.get("level", ""))[:40],
        data=data,
        values=_values_folder(folder, body.get("dump_data_dir")),
        parents=_parents(folder / "construct.json"),
        stacks=_stacks(folder / "stack.json"),
    )


def _values_folder(folder: Path, recorded_path: object) -> Path | None:
    """Return the folder of the tensors beside dump.json.

    The path recorded in the file may be of another machine, so only its last part is used.
    """
    names = [VALUES]
    if isinstance(recorded_path, str):
        is_windows = "\\" in recorded_path and "/" not in recorded_path
        name = (PureWindowsPath if is_windows else PurePosixPath)(recorded_path).name
        if name not in ("", ".", "..") and "\0" not in name:
            names.insert(0, name)
    try:
        name_of_folder = next((name for name in names if (folder / name).is_dir()), None)
    except OSError:
        return None
    return path_inside(folder, name_of_folder) if name_of_folder is not None else None


def _parents(path: Path) -> dict[str, str]:
    body = _read_json_object(path) if path.exists() else {}
    return {str(child): parent for child, parent in body.items() if isinstance(parent, str)}


def _stacks(path: Path) -> dict[str, list[str]]:
    """Read the stacks by name; names of one group share the list of lines."""
    body = _read_json_object(path) if path.exists() else {}
    stacks: dict[str, list[str]] = {}
    for number, group in body.items():
        if not isinstance(group, list) or len(group) != 2:
            raise FormatError(
                f"{number[:40]!r} in {path} must be a list of names and a stack",
                cure="dump it again",
            )
        names, lines = group
        if not isinstance(names, list) or not isinstance(lines, list):
            raise FormatError(
                f"{number[:40]!r} in {path} must hold two lists", cure="dump it again"
            )
        texts = [str(line) for line in lines]
        stacks.update({str(name): texts for name in names})
    return stacks


def parse_frames(stack: list[str]) -> tuple[Frame, ...]:
    """Parse a stack, innermost frame of the user's code last.

    Frames of torch are left out unless there are no others.
    """
    frames = []
    for line in stack:
        match = _FRAME.match(line)
        if match is not None:
            frames.append(Frame(match["file"], int(match["line"]), match["function"]))
    user_frames = [frame for frame in frames if not _OF_TORCH.match(frame.file)]
    return tuple(reversed(user_frames or frames))


def _read_json_object(path: Path) -> dict[str, Any]:
    with read_errors(path):
        text = read_whole(path, _MAX_JSON_BYTES)
    body = parse_foreign_json(text, str(path))
    if not isinstance(body, dict):
        raise FormatError(
            f"{path} must hold a JSON object, not {type(body).__name__}", cure="dump it again"
        )
    return body
