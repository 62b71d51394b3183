"""Listeners of the events of a comparison: the callbacks `progress` and `watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from syncpoint.comparison.events import (
    BatchMeasured,
    ErrorDrift,
    MeasuringFinished,
    MeasuringStarted,
    RowsRestored,
    Stage,
    Step,
)
from syncpoint.comparison.judge_rows import Choice, judge_row
from syncpoint.comparison.rows import Row
from syncpoint.run.events import NULL_SINK, Event, EventSink, FanOut, OpsRecorded

_MAX_DRIFT_PIECES = 160


_DRIFT_INTERVAL_SECONDS = 0.5
"""Seconds between two drawings of the drift."""


_WORST_FIRST = "lmcn."
"""First letters of the verdicts, the worst first; a dot is none yet."""


Progress = Callable[[int, int], None]
"""Public callback: the sync points measured so far, and all of them."""


Watch = Callable[[Step], None]
"""Public callback: every step of every stage."""


def sink_for(progress: Progress | None, watch: Watch | None) -> EventSink:
    """The event sink for the public callbacks of a comparison, as far as there are some."""
    sinks: list[EventSink] = []
    if watch is not None:
        sinks.append(WatchSink(watch))
    if progress is not None:
        sinks.append(ProgressSink(progress))
    return FanOut(*sinks) if sinks else NULL_SINK


class CaptureSteps:
    """Makes steps of a stage of the ops that are recorded in it."""

    def __init__(self, events: EventSink, stage: Stage) -> None:
        self._events = events
        self._stage = stage

    def send(self, event: Event) -> None:
        """Send a step on for every op."""
        if isinstance(event, OpsRecorded):
            self._events.send(Step(stage=self._stage, done=event.count))


class ProgressSink:
    """Tells a callback how many sync points are measured."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def send(self, event: Event) -> None:
        """Report the number after each batch."""
        if isinstance(event, BatchMeasured):
            self._progress(event.done, event.total)


class WatchSink:
    """Tells a callback of every step, with the verdicts so far while rows are measured."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._tally: Tally | None = None

    def send(self, event: Event) -> None:
        """Pass a step on, or make one of what was measured."""
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
        """`ops` is how many the target has."""
        self._watch = watch
        self._choice = choice
        self._counts: dict[str, int] = {}
        self._ops = max(ops, 1)
        self._levels = ["."] * min(self._ops, _MAX_DRIFT_PIECES)
        self._psnr = [-1] * len(self._levels)
        self._drawn = 0.0

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows that have just been measured."""
        for row in rows:
            verdict = judge_row(row, self._choice).verdict.value
            self._counts[verdict] = self._counts.get(verdict, 0) + 1
            if row.target.order >= 0:
                self._draw(row, verdict[0])

    def report(self, done: int, total: int) -> None:
        """Say how far it is."""
        drift = None
        if self._counts and time.monotonic() - self._drawn >= _DRIFT_INTERVAL_SECONDS:
            self._drawn, drift = time.monotonic(), self._drift()
        self._watch(
            Step(
                stage=Stage.MEASURE, done=done, total=total, counts=dict(self._counts), drift=drift
            )
        )

    def finish(self, total: int) -> None:
        """Say that all are measured."""
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

    def _draw(self, row: Row, level: str) -> None:
        at = row.target.order * len(self._levels) // self._ops
        if _WORST_FIRST.index(level) < _WORST_FIRST.index(self._levels[at]):
            self._levels[at] = level
        psnr = (row.numbers or {}).get("psnr")
        if psnr is not None and psnr == psnr:
            least = round(min(max(psnr, 0.0), 120.0))
            self._psnr[at] = least if self._psnr[at] < 0 else min(least, self._psnr[at])

    def _drift(self) -> ErrorDrift:
        return ErrorDrift("".join(self._levels), tuple(self._psnr))
