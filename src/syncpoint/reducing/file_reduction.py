"""What both ways of reducing a run or a dump share (`FileReduction`): the arguments, and the files
that are not reduced so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.reducing.folder_watch import FolderWatch, Progress


@dataclass(kw_only=True)
class FileReduction:
    """One call of reduce."""

    path: Path
    out: Path
    """The reduced run; for min-max the folder of the reduced files."""
    delete: bool
    watch: FolderWatch
    progress: Progress | None = None
    _not_reduced: dict[str, str] = field(default_factory=dict)
    """Files that could not be reduced, and why."""
    _skipped: dict[str, str] = field(default_factory=dict)
    """Files that hold nothing to reduce, and why."""
