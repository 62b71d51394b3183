"""List the files of a dump folder with their full names (links included); notes on skipped files
and on ops that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.file_names import NOT_DUMPS, find_full_name, read_mapping
from syncpoint.errors import FormatError
from syncpoint.run.model import Op, Role

MAX_SHOWN_NAMES = 3
"""Number of names that a note shows."""
_MAX_DAMAGE_CHARACTERS = 160
"""Length of a damage in a note."""
UNREADABLE = "unreadable"
"""Attribute of a damaged op: role and number of its first unreadable tensor. Absent if the whole
file is damaged."""


@dataclass
class Listing:
    """The files of a folder, each with its full name."""

    files: dict[str, str]
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def skip(self, names: Sequence[str], reason: str) -> None:
        """Add a note that these files are not read."""
        if names:
            self.skipped += names
            self.notes.append(f"{_describe_files(names)} not read: {reason}")

    def summary(self) -> str:
        """Return an example of the files that were skipped, or ""."""
        return f"other files, such as {self.skipped[0]}" if self.skipped else ""


def list_folder(root: Path) -> Listing:
    """List the files of a folder by name, including links that lead out of it."""
    names, odd, folders = [], [], 0
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name in NOT_DUMPS:
                continue
            if _is_folder(entry):
                folders += 1
            elif entry.name.isprintable():
                names.append(entry.name)
            else:
                odd.append(ascii(entry.name))
    notes = []
    mapping: Mapping[str, str] = {}
    try:
        mapping = read_mapping(root)
    except FormatError as error:
        notes.append(
            f"mapping.csv is not used, so numbered files keep their numbers as names: {error}"
        )
    if folders:
        notes.append(f"{folders} folder{'s' * (folders > 1)} inside not searched")
    folder_listing = Listing({n: find_full_name(n, mapping) for n in sorted(names)}, notes)
    folder_listing.skip(odd, "their names are not printable")
    return folder_listing


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a broken or circular link
        return False


def _describe_files(names: Sequence[str]) -> str:
    shown = ", ".join(n if len(n) <= 80 else n[:77] + "..." for n in names[:MAX_SHOWN_NAMES])
    if len(names) > MAX_SHOWN_NAMES:
        shown += ", ..."
    return f"{len(names)} file{'s' * (len(names) > 1)} ({shown})"


def unreadable_tensor(facts: Mapping[str, Any]) -> tuple[Role, int] | None:
    """Return role and number of the first unreadable tensor of an op, or None."""
    place = facts.get(UNREADABLE)
    return (Role(place[0]), int(place[1])) if place else None


def describe_damage(ops: Sequence[Op]) -> list[str]:
    """Return a note on the ops that cannot be read completely, if there are any."""
    damaged = [(op.key, op.attributes["damage"]) for op in ops if "damage" in op.attributes]
    if not damaged:
        return []
    shown = " | ".join(f"{key}: {_shorten(damage)}" for key, damage in damaged[:MAX_SHOWN_NAMES])
    more = " | ..." if len(damaged) > MAX_SHOWN_NAMES else ""
    return [f"{len(damaged)} of {len(ops)} ops cannot be read completely: {shown}{more}"]


def _shorten(text: str) -> str:
    return (
        text if len(text) <= _MAX_DAMAGE_CHARACTERS else text[: _MAX_DAMAGE_CHARACTERS - 3] + "..."
    )
