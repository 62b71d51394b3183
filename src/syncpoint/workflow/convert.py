"""Convert a run or dump to another format, and report what was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncpoint.run.reader import Run


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion."""

    path: Path
    tensors: int
    """Number of tensors that were written."""
    left_out: int
    """Number of tensors without values, which only a run can store."""


def convert(run: Run, path: Path, to: str) -> Conversion:
    """Write a run in the format called `to`."""
    from syncpoint.dumps.save_dump import save_dump
    from syncpoint.run.model import Kept

    save_dump(run, path, to)
    left_out = 0 if to == "run" else sum(tensor.kept is not Kept.VALUES for tensor in run.tensors)
    return Conversion(path, len(run.tensors) - left_out, left_out)
