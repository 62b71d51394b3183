"""Recognise dumps of training runs, `time/device/model/model id/step/`: find and sort their step
folders, choose the last step of each model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncpoint.ascend.dumps.file_names import find_full_name, parse_device_name, read_mapping
from syncpoint.errors import FormatError, InputError
from syncpoint.files.untrusted_files import require_folder


@dataclass(frozen=True)
class StepFolder:
    """A folder of dump files, and its place in the tree."""

    path: Path
    device: str
    model: str
    model_id: str
    step: str

    @property
    def name(self) -> str:
        """Path below the root."""
        return f"{self.device}/{self.model}/{self.model_id}/{self.step}"


def is_tree(path: Path) -> bool:
    """Whether a folder is the root of such a tree; damage raises nothing."""
    try:
        return _is_number(path.resolve().name) and next(_walk_step_folders(path), None) is not None
    except (OSError, FormatError):
        return False


def find_step_folders(path: Path) -> list[StepFolder]:
    """Find all folders of dump files, ordered by the numbers of device, model, id and step."""
    root = require_folder(path, "a tree of device dumps")
    folders = sorted(_walk_step_folders(root), key=_sort_key)
    if not folders:
        raise InputError(
            f"{path} has no folders DEVICE/MODEL/ID/STEP with dump files",
            cure="give the path of the folder that holds such folders",
        )
    return folders


def latest_steps(folders: Iterable[StepFolder]) -> list[StepFolder]:
    """Return the last step of each device, model and id, by number: 10 comes after 9."""
    last: dict[tuple[str, str, str], StepFolder] = {}
    for folder in sorted(folders, key=_sort_key):
        last[folder.device, folder.model, folder.model_id] = folder
    return list(last.values())


def _walk_step_folders(root: Path) -> Iterator[StepFolder]:
    for device in _folders(root):
        if not _is_number(device):
            continue
        for model in _folders(root / device):
            for model_id in _folders(root / device / model):
                for step in _folders(root / device / model / model_id):
                    path = root / device / model / model_id / step
                    if _has_dumps(path):
                        yield StepFolder(path, device, model, model_id, step)


def _folders(path: Path) -> Sequence[str]:
    """List the folders inside, without links."""
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
        return any(parse_device_name(find_full_name(e.name, mapping)) is not None for e in entries)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _sort_key(folder: StepFolder) -> tuple[tuple[int, int, str], ...]:
    return tuple(_number(t) for t in (folder.device, folder.model, folder.model_id, folder.step))


def _number(text: str) -> tuple[int, int, str]:
    """Sort numbers by value, before texts."""
    return (0, int(text), "") if _is_number(text) and len(text) < 64 else (1, 0, text)
