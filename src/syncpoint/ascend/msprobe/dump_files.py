"""The files of one dump: where they are, and what is in the three that are JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from syncpoint.errors import FormatError, InputError, Unsupported, describe_error
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.untrusted_json import parse_foreign_json
from syncpoint.run.model import Frame

DUMP = "dump.json"
VALUES = "dump_tensor_data"
_MAX_JSON = 4 << 30
_BEGINNING = 4096
_STEP = re.compile(r"step([0-9]{1,12})")
_RANK = re.compile(r"rank([0-9]{0,12})")
_PROCESS = re.compile(r"proc([0-9]{1,12})")
_FRAME = re.compile(r"File (?P<file>.+?), line (?P<line>[0-9]{1,9}), in (?P<function>[^,\n]*)")
_OF_TORCH = re.compile(r"(?:.*[/\\](?:site|dist)-packages[/\\])?(?:torch|torch_npu|msprobe)[/\\]")


@dataclass(frozen=True)
class Place:
    """One dump.json, and the step and rank that its folders say."""

    path: Path
    step: int = -1
    rank: int = -1


def is_dump(path: Path) -> bool:
    """Whether a file begins as dump.json does."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(_BEGINNING)
    except OSError:
        return False
    return start.lstrip().startswith(b"{") and b'"task"' in start and b'"dump_data_dir"' in start


def find(path: Path) -> tuple[list[Place], list[str]]:
    """The dumps at a path, in order of step and rank, and what is to be said of them."""
    if path.is_file():
        return [Place(path)], []
    if (path / DUMP).is_file():
        return [Place(path / DUMP)], []
    steps = _numbered(path, _STEP)
    places: list[Place] = []
    notes: list[str] = []
    for step, folder in steps or [(-1, path)]:
        ranks = _numbered(folder, _RANK)
        processes = _numbered(folder, _PROCESS)
        if ranks and processes:
            raise FormatError(f"folders of ranks or of processes in {folder}", "both")
        if len(processes) > 1:
            said = "processes have no ranks: they are numbered by their process ids"
            notes += [said] if said not in notes else []
            processes = list(enumerate(folder for _, folder in processes))
        for rank, inner in ranks or processes:
            if (inner / DUMP).is_file():
                places.append(Place(inner / DUMP, step, rank))
    several = [len({getattr(p, level) for p in places}) > 1 for level in ("step", "rank")]
    kept = [
        Place(p.path, p.step if several[0] else -1, p.rank if several[1] else -1) for p in places
    ]
    return sorted(kept, key=lambda p: (p.step, p.rank)), notes


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """The folders of that name, by number."""
    try:
        inner = [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []
    found = [(pattern.fullmatch(entry.name), entry) for entry in inner]
    return sorted((int(match[1] or 0), entry) for match, entry in found if match)


@dataclass(frozen=True, kw_only=True)
class Dump:
    """What the JSON files of one dump say."""

    place: Place
    task: str
    level: str
    data: dict[str, Any]
    values: Path | None
    """The folder with the tensors, where there is one beside dump.json."""
    parents: dict[str, str] = field(default_factory=dict)
    """By the name of an API or a module: the module that called it."""
    stacks: dict[str, list[str]] = field(default_factory=dict)


def read(place: Place) -> Dump:
    """Read dump.json and what lies beside it."""
    body = _object(place.path)
    framework = body.get("framework", "pytorch")
    if framework != "pytorch":
        raise Unsupported(
            f"a dump of PyTorch at {place.path}",
            f"one of {str(framework)[:40]}",
            "convert its tensors to .npz",
        )
    data = body.get("data")
    if not isinstance(data, dict):
        raise FormatError(f"an object under data in {place.path}", type(data).__name__)
    folder = place.path.parent
    return Dump(
        place=place,
        task=str(body.get("task", ""))[:40],
        level=str(body.get("level", ""))[:40],
        data=data,
        values=_values(folder, body.get("dump_data_dir")),
        parents=_parents(folder / "construct.json"),
        stacks=_stacks(folder / "stack.json"),
    )


def _values(folder: Path, said: object) -> Path | None:
    """The folder of that name beside dump.json. Where the file itself says it is may be on
    another machine, or anywhere on this one."""
    names = [VALUES]
    if isinstance(said, str):
        windows = "\\" in said and "/" not in said
        name = (PureWindowsPath(said) if windows else PurePosixPath(said)).name
        if name not in ("", ".", "..") and "\0" not in name:
            names.insert(0, name)
    try:
        found = next((name for name in names if (folder / name).is_dir()), None)
    except OSError:
        return None
    return path_inside(folder, found) if found is not None else None


def _parents(path: Path) -> dict[str, str]:
    body = _object(path) if path.exists() else {}
    return {str(child): parent for child, parent in body.items() if isinstance(parent, str)}


def _stacks(path: Path) -> dict[str, list[str]]:
    """By name; the lines of the stacks are shared."""
    body = _object(path) if path.exists() else {}
    found: dict[str, list[str]] = {}
    for number, group in body.items():
        if not isinstance(group, list) or len(group) != 2:
            raise FormatError(f"names and a stack under {number[:40]!r} of {path}", "other things")
        names, lines = group
        if not isinstance(names, list) or not isinstance(lines, list):
            raise FormatError(f"two lists under {number[:40]!r} of {path}", "other things")
        texts = [str(line) for line in lines]
        found.update({str(name): texts for name in names})
    return found


def frames(stack: list[str]) -> tuple[Frame, ...]:
    """The stack with the innermost frame of the user's code last; torch's own are left out
    unless there are no others."""
    found = []
    for line in stack:
        match = _FRAME.match(line)
        if match is not None:
            found.append(Frame(match["file"], int(match["line"]), match["function"]))
    mine = [frame for frame in found if not _OF_TORCH.match(frame.file)]
    return tuple(reversed(mine or found))


def _object(path: Path) -> dict[str, Any]:
    try:
        text = read_whole(path, _MAX_JSON)
    except OSError as error:
        raise InputError(f"a readable file at {path}", describe_error(error)) from error
    body = parse_foreign_json(text, str(path))
    if not isinstance(body, dict):
        raise FormatError(f"an object in {path}", type(body).__name__)
    return body
