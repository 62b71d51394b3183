"""What the navigator asks of the rows of a comparison, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which rows, in which order."""

    metric: str = "psnr"
    sort: str = "similarity"
    descending: bool = False
    text: str = ""
    types: tuple[str, ...] = ()
    module: str = ""
    levels: tuple[str, ...] = ()
    """Of close, moderate, large, inherited, none; all if empty."""
    start: int = 0
    """The brush: first place in execution order, and one after the last; 0 for no end."""
    stop: int = 0
    grouped: bool = False
    open: frozenset[str] = frozenset()


@dataclass
class Selection:
    """The rows that a query lets through, in its order."""

    rows: NDArray[np.int64]
    counts: dict[str, int]
    """Before the filter by level."""
    groups: list[tuple[str, NDArray[np.int64]]] = field(default_factory=list)
