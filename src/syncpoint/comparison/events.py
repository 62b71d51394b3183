"""The events of a comparison (stages, progress, batches of rows), the callbacks `progress` and
`watch` that receive them, and the tally of errors so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from syncpoint.comparison.judge_rows import Choice, judge_row
from syncpoint.comparison.rows import Row
from syncpoint.metrics import Pair
from syncpoint.run.events import NULL_SINK, Event, EventSink, FanOut, OpsRecorded

_MAX_DRIFT_PIECES = 160
_DRIFT_INTERVAL_SECONDS = 0.5
"""Seconds between two drift updates."""
_WORST_FIRST = "lmcn."
"""First letters of the verdicts, worst first; a dot means not measured yet."""


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


Progress = Callable[[int, int], None]
"""Public callback: sync points measured so far, and in total."""
Watch = Callable[[Step], None]
"""Public callback: receives every step of every stage."""


def sink_for(progress: Progress | None, watch: Watch | None) -> EventSink:
    """The event sink that calls `progress` and `watch`, where they are given."""
    sinks: list[EventSink] = []
    if watch is not None:
        sinks.append(WatchSink(watch))
    if progress is not None:
        sinks.append(ProgressSink(progress))
    return FanOut(*sinks) if sinks else NULL_SINK


class CaptureSteps:
    """Turns the events of a recorder into steps of a stage."""

    def __init__(self, events: EventSink, stage: Stage) -> None:
        self._events = events
        self._stage = stage

    def send(self, event: Event) -> None:
        """Send a step for every recorded op."""
        if isinstance(event, OpsRecorded):
            self._events.send(Step(stage=self._stage, done=event.count))


class ProgressSink:
    """Calls `progress` with the number of measured sync points."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def send(self, event: Event) -> None:
        """Call it after each batch."""
        if isinstance(event, BatchMeasured):
            self._progress(event.done, event.total)


class WatchSink:
    """Calls `watch` with every step, and with the verdicts so far while rows are measured."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._tally: Tally | None = None

    def send(self, event: Event) -> None:
        """Pass a step on, or build one from measured rows."""
        if isinstance(event, Step):
            self._watch(event)
        elif isinstance(event, MeasuringStarted):
            self._tally = Tally(self._watch, event.choice, event.target_ops)
            self._tally.report(0, event.total)
        elif self._tally is not None:
            self._send_to_tally(self._tally, event)

    def _send_to_tally(self, tally: Tally, event: Event) -> None:
        if isinstance(event, RowsRestored):
            tally.add(event.rows)
        elif isinstance(event, BatchMeasured):
            tally.add(event.rows)
            tally.report(event.done, event.total)
        elif isinstance(event, MeasuringFinished):
            tally.finish(event.total)
            self._tally = None


class Tally:
    """Counts sync points by their total error while they are measured."""

    def __init__(self, watch: Watch, choice: Choice, ops: int) -> None:
        """`ops` is the number of ops of the target."""
        self._watch = watch
        self._choice = choice
        self._counts: dict[str, int] = {}
        self._ops = max(ops, 1)
        self._levels = ["."] * min(self._ops, _MAX_DRIFT_PIECES)
        self._psnr = [-1] * len(self._levels)
        self._drift_time = 0.0

    def add(self, rows: Sequence[Row]) -> None:
        """Count rows that have just been measured."""
        for row in rows:
            verdict = judge_row(row, self._choice).verdict.value
            self._counts[verdict] = self._counts.get(verdict, 0) + 1
            if row.target.order >= 0:
                self._add_to_drift(row, verdict[0])

    def report(self, done: int, total: int) -> None:
        """Report the progress."""
        drift = None
        if self._counts and time.monotonic() - self._drift_time >= _DRIFT_INTERVAL_SECONDS:
            self._drift_time, drift = time.monotonic(), self._drift()
        self._watch(
            Step(
                stage=Stage.MEASURE, done=done, total=total, counts=dict(self._counts), drift=drift
            )
        )

    def finish(self, total: int) -> None:
        """Report that all sync points are measured."""
        text = f"{total} sync points"
        self._watch(
            Step(
                stage=Stage.MEASURE,
                done=total,
                total=total,
                finished=True,
                text=text,
                counts=dict(self._counts),
                drift=self._drift(),
            )
        )

    def _add_to_drift(self, row: Row, level: str) -> None:
        piece = row.target.order * len(self._levels) // self._ops
        if _WORST_FIRST.index(level) < _WORST_FIRST.index(self._levels[piece]):
            self._levels[piece] = level
        psnr = (row.numbers or {}).get("psnr")
        if psnr is not None and psnr == psnr:
            psnr_db = round(min(max(psnr, 0.0), 120.0))
            self._psnr[piece] = (
                psnr_db if self._psnr[piece] < 0 else min(psnr_db, self._psnr[piece])
            )

    def _drift(self) -> ErrorDrift:
        return ErrorDrift("".join(self._levels), tuple(self._psnr))
