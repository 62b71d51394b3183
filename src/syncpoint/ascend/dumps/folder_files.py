"""The files of a dump folder with their full names, and notes on those that are not read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.file_names import NOT_DUMPS, full_name, read_mapping
from syncpoint.errors import FormatError
from syncpoint.run.model import Op, Role

SHOWN = 3
"""Names that a note gives as examples."""
_LONGEST = 160
"""Characters of a damage that a note shows."""
UNREADABLE = "unreadable"
"""Attribute of an op with `damage`: role and number of the first tensor that cannot be read; not
there where the damage is that of the whole file."""


@dataclass
class Listing:
    """The files of a folder, each with the name it would have if that were not too long."""

    files: dict[str, str]
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def skip(self, names: Sequence[str], why: str) -> None:
        """Say in a note that these files are not read."""
        if names:
            self.skipped += names
            self.notes.append(f"{_files(names)} not read: {why}")

    def summary(self) -> str:
        """What there is instead, in a few words."""
        return f"others, such as {self.skipped[0]}" if self.skipped else ""


def listing(root: Path) -> Listing:
    """The files of a folder in the order of their names; links that lead out are among them."""
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
        notes.append(f"mapping.csv is not used: {error}")
    if folders:
        notes.append(f"{folders} folder{'s' * (folders > 1)} inside not searched")
    found = Listing({n: full_name(n, mapping) for n in sorted(names)}, notes)
    found.skip(odd, "their names are no text")
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere or in circles
        return False


def _files(names: Sequence[str]) -> str:
    shown = ", ".join(n if len(n) <= 80 else n[:77] + "..." for n in names[:SHOWN])
    if len(names) > SHOWN:
        shown += ", ..."
    return f"{len(names)} file{'s' * (len(names) > 1)} ({shown})"


def unreadable_tensor(facts: Mapping[str, Any]) -> tuple[Role, int] | None:
    """Role and number of the first tensor of an op that cannot be read, by its attributes."""
    place = facts.get(UNREADABLE)
    return (Role(place[0]), int(place[1])) if place else None


def damage_note(ops: Sequence[Op]) -> list[str]:
    """A note on the ops of which something cannot be read, if there are any."""
    damaged = [(op.key, op.attributes["damage"]) for op in ops if "damage" in op.attributes]
    if not damaged:
        return []
    shown = " | ".join(f"{key}: {_short(damage)}" for key, damage in damaged[:SHOWN])
    more = " | ..." if len(damaged) > SHOWN else ""
    return [f"{len(damaged)} of {len(ops)} ops cannot be read in full: {shown}{more}"]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
