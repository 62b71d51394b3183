"""The protocol of a dump format: recognise a path (`sniff`), open it as a run, and optionally
save."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from syncpoint.run.reader import Run

API = 1
"""Version of this protocol; a plugin declares the version that it was written for."""


@runtime_checkable
class DumpFormat(Protocol):
    """A kind of file or folder that holds tensors.

    A format may have a `priority: int`, by default 1000. Of the plugins and the folder of .npy
    files, which has 900, the format with the lowest priority is tried first.
    """

    API: int
    name: str
    """Its name on the command line."""

    def sniff(self, path: Path) -> bool:
        """Whether the content of `path` looks like this format; never raises for damage."""

    def open(self, path: Path) -> Run:
        """Open it as a run, without reading values; damage is a FormatError."""


@runtime_checkable
class Saves(Protocol):
    """A format that can also be written."""

    def save(self, run: Run, path: Path) -> None:
        """Write the tensors of `run` that have values to `path`, which must not exist."""
