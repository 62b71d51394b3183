"""The events of a comparison: stages, steps, and measured batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from syncpoint.comparison.judge_rows import Choice
from syncpoint.comparison.rows import Row
from syncpoint.metrics import Pair
from syncpoint.run.events import Event


class Stage(StrEnum):
    """The stages of a comparison, in this order."""

    REFERENCE = "reference"
    """The reference is captured or opened."""
    TARGET = "target"
    MATCH = "match"
    MEASURE = "measure"
    INTRODUCED = "introduced"
    DIAGNOSIS = "diagnosis"


@dataclass(frozen=True)
class ErrorDrift:
    """The error along the execution order of the target, in at most 160 pieces."""

    levels: str
    """One letter per piece, for its worst verdict: c(lose), m(oderate), l(arge), n(one), and a dot
    where nothing is measured yet."""
    psnr: tuple[int, ...]
    """The minimum PSNR of each piece in whole dB, from 0 to 120; -1 where there is none."""


@dataclass(frozen=True, kw_only=True)
class Step(Event):
    """Progress of one stage."""

    stage: Stage
    done: int = 0
    """Ops recorded, pairs found, sync points measured, ops examined, or causes found."""
    total: int = 0
    """0 if unknown."""
    finished: bool = False
    text: str = ""
    """The outcome, once the stage is finished."""
    opened: bool = False
    """Of a finished side: whether a recording was opened instead of running a model."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """While measuring: sync points by verdict on their total error, inherited errors included."""

    drift: ErrorDrift | None = None
    """Sent from time to time while measuring."""


@dataclass(frozen=True)
class MeasuringStarted(Event):
    """Measuring starts."""

    total: int
    """Sync points to measure."""
    target_ops: int
    choice: Choice
    """The limits that judge the rows."""


@dataclass(frozen=True)
class RowsRestored(Event):
    """Rows that an earlier, interrupted attempt measured."""

    rows: Sequence[Row]


@dataclass(frozen=True)
class BatchMeasured(Event):
    """A batch of rows has been measured, and the values of its pairs are still in memory."""

    rows: Sequence[Row]
    pairs: Sequence[tuple[Row, Pair]]
    """The rows measured by values, with these values. A sink must not keep them."""
    done: int
    """Sync points measured so far, including restored ones."""
    total: int


@dataclass(frozen=True)
class MeasuringFinished(Event):
    """Every sync point is measured."""

    total: int
