"""The flags of the mode `torchair`, as a data class; the dialects of its report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Dialect(StrEnum):
    """The tool whose columns the report has."""

    SEED = "seed"
    """The columns that the manual documents."""
    V26_2 = "26.2"
    """The columns that msProbe 26.2 writes."""


class Summary(StrEnum):
    """What the columns of the manual compare."""

    VALUES = "values"
    STATISTICS = "statistics"
    MD5 = "md5"
    """Its name in the manual; the checksum is CRC-32."""


@dataclass(frozen=True, kw_only=True)
class TorchairFlags:
    """The flags of the mode."""

    target: Path
    """A GE dump."""
    golden: Path
    """An FX dump, or a GE dump without fusion."""
    output: Path = Path()
    """Folder of the report."""
    dialect: Dialect = Dialect.SEED
    xlsx: bool = False
    """Also write the report as a coloured sheet."""
    threads: int = 0
    summary: Summary = Summary.VALUES
