"""How far the work on a comparison is, told to whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from syncpoint.comparison.judging import Choice, judged
from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import Verdict

_PIECES = 160
_PAUSE = 0.5
"""Seconds between two drawings of the drift."""
_WORST = "lmcn."
"""First letters of the verdicts, the worst first; a dot is none yet."""


class Stage(StrEnum):
    """What a comparison goes through, in this order."""

    REFERENCE = "reference"
    """The reference is captured or opened."""
    TARGET = "target"
    MATCH = "match"
    MEASURE = "measure"
    INTRODUCED = "introduced"


@dataclass(frozen=True)
class Drift:
    """How far the two are apart over the execution order of the target, in at most 160 pieces."""

    levels: str
    """A letter for each piece, the worst in it: close, moderate, large, n for no verdict, and a dot
    where nothing is measured yet."""
    psnr: tuple[int, ...]
    """The least in each piece in whole dB, cut to 0 to 120; -1 where there is none."""


@dataclass(frozen=True)
class Step:
    """Where one stage stands."""

    stage: Stage
    done: int = 0
    """Ops recorded, pairs found, sync points measured, ops looked into."""
    total: int = 0
    """0 where it is not known."""
    finished: bool = False
    text: str = ""
    """What came out, once it is finished."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """While measuring: sync points by their total error so far, before it is known which of them
    only inherited it."""

    drift: Drift | None = None
    """While measuring, now and then."""


Watch = Callable[[Step], None]


def unwatched(_: Step) -> None:
    """Nobody looks."""


class Tally:
    """Counts sync points by their total error while they are measured."""

    def __init__(self, watch: Watch, choice: Choice, ops: int) -> None:
        """`ops` is how many the target has."""
        self._watch = watch
        self._choice = choice
        self._counts: dict[str, int] = {}
        self._ops = max(ops, 1)
        self._levels = ["."] * min(self._ops, _PIECES)
        self._psnr = [-1] * len(self._levels)
        self._drawn = 0.0

    def add(self, rows: list[Row]) -> None:
        """Take rows that have just been measured."""
        for row in judged(rows, self._choice):
            # Whether small errors grew on the way is known at the end only.
            verdict = Verdict.LARGE if row.verdict is Verdict.AMPLIFIED else row.verdict
            self._counts[verdict.value] = self._counts.get(verdict.value, 0) + 1
            if row.target.order >= 0:
                self._draw(row, verdict.value[0])

    def tell(self, done: int, total: int) -> None:
        """Say how far it is."""
        drift = None
        if self._counts and time.monotonic() - self._drawn >= _PAUSE:
            self._drawn, drift = time.monotonic(), self._drift()
        self._watch(Step(Stage.MEASURE, done, total, counts=dict(self._counts), drift=drift))

    def finish(self, total: int) -> None:
        """Say that all are measured."""
        text = f"{total} sync points"
        self._watch(
            Step(Stage.MEASURE, total, total, True, text, dict(self._counts), self._drift())
        )

    def _draw(self, row: Row, level: str) -> None:
        at = row.target.order * len(self._levels) // self._ops
        if _WORST.index(level) < _WORST.index(self._levels[at]):
            self._levels[at] = level
        psnr = (row.numbers or {}).get("psnr")
        if psnr is not None and psnr == psnr:
            least = round(min(max(psnr, 0.0), 120.0))
            self._psnr[at] = least if self._psnr[at] < 0 else min(least, self._psnr[at])

    def _drift(self) -> Drift:
        return Drift("".join(self._levels), tuple(self._psnr))
