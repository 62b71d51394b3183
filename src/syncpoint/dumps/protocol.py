"""What every dump format offers: the seam between other tools' files and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from syncpoint.run.reader import Run

API = 1
"""Version of this protocol; a format from elsewhere declares the one it was written for."""


@runtime_checkable
class DumpFormat(Protocol):
    """A kind of file or folder that holds tensors.

    A format may have a `priority: int`: of the formats of other packages and the folder of .npy
    files, which has 900, the one of the lowest priority is asked first. Without one it is 1000.
    """

    API: int
    name: str
    """What the command line calls it."""

    def sniff(self, path: Path) -> bool:
        """Whether `path` looks like this format, by its content; never raises for its damage."""

    def open(self, path: Path) -> Run:
        """The run it holds, without reading values; damage is a FormatError."""


@runtime_checkable
class Saves(Protocol):
    """A format that can be written as well."""

    def save(self, run: Run, path: Path) -> None:
        """Write the tensors of `run` that have values to `path`, which must not exist."""
