"""The events of a comparison, and the adapters of `progress` and `watch` onto its event sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from syncpoint.comparison.judge_rows import Choice
from syncpoint.comparison.rows import Row
from syncpoint.metrics import Pair
from syncpoint.run.events import Event


class Stage(StrEnum):
    """What a comparison goes through, in this order."""

    REFERENCE = "reference"
    """The reference is captured or opened."""
    TARGET = "target"
    MATCH = "match"
    MEASURE = "measure"
    INTRODUCED = "introduced"
    DIAGNOSIS = "diagnosis"


@dataclass(frozen=True)
class ErrorDrift:
    """How far the two are apart over the execution order of the target, in at most 160 pieces."""

    levels: str
    """A letter for each piece, the worst in it: close, moderate, large, n for no verdict, and a dot
    where nothing is measured yet."""
    psnr: tuple[int, ...]
    """The least in each piece in whole dB, cut to 0 to 120; -1 where there is none."""


@dataclass(frozen=True, kw_only=True)
class Step(Event):
    """Where one stage stands."""

    stage: Stage
    done: int = 0
    """Ops recorded, pairs found, sync points measured, ops looked into, causes found."""
    total: int = 0
    """0 where it is not known."""
    finished: bool = False
    text: str = ""
    """What came out, once it is finished."""
    opened: bool = False
    """Of a side, once it is finished: whether a recording was opened, and no model run."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """While measuring: sync points by their total error so far, before it is known which of them
    only inherited it."""

    drift: ErrorDrift | None = None
    """While measuring, now and then."""


@dataclass(frozen=True)
class MeasuringStarted(Event):
    """The pairs are known and will now be measured."""

    total: int
    """Sync points to measure."""
    target_ops: int
    choice: Choice
    """The limits that the rows will be judged by."""


@dataclass(frozen=True)
class RowsRestored(Event):
    """Rows that an earlier, interrupted attempt has measured."""

    rows: Sequence[Row]


@dataclass(frozen=True)
class BatchMeasured(Event):
    """A batch of rows has been measured, and the values of its pairs are still in memory."""

    rows: Sequence[Row]
    pairs: Sequence[tuple[Row, Pair]]
    """The rows that were measured by values, with these values. A sink must not keep them."""
    done: int
    """Sync points measured so far, with those restored."""
    total: int


@dataclass(frozen=True)
class MeasuringFinished(Event):
    """Every sync point is measured."""

    total: int
