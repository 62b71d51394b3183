"""What the user asked for in the mode `torchair`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Dialect(StrEnum):
    """Whose columns the report has."""

    SEED = "seed"
    """Those that the manual documents."""
    V26_2 = "26.2"
    """Those that msProbe 26.2 writes."""


class Summary(StrEnum):
    """What the columns of the manual are made of."""

    VALUES = "values"
    STATISTICS = "statistics"
    MD5 = "md5"
    """So called there; it is CRC-32."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags of the mode."""

    target: Path
    """A GE dump."""
    golden: Path
    """An FX dump, or a GE dump without fusion."""
    output: Path = Path()
    """Folder of the report."""
    dialect: Dialect = Dialect.SEED
    xlsx: bool = False
    """Also as a coloured sheet."""
    threads: int = 0
    summary: Summary = Summary.VALUES
