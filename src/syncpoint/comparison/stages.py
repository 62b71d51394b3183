"""How far the work on a comparison is, told to whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from syncpoint.comparison.judging import Choice, judged
from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import Verdict


class Stage(StrEnum):
    """What a comparison goes through, in this order."""

    REFERENCE = "reference"
    """The reference is captured or opened."""
    TARGET = "target"
    MATCH = "match"
    MEASURE = "measure"
    INTRODUCED = "introduced"


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


Watch = Callable[[Step], None]


def unwatched(_: Step) -> None:
    """Nobody looks."""


class Tally:
    """Counts sync points by their total error while they are measured."""

    def __init__(self, watch: Watch, choice: Choice) -> None:
        self._watch = watch
        self._choice = choice
        self._counts: dict[str, int] = {}

    def add(self, rows: list[Row]) -> None:
        """Take rows that have just been measured."""
        for row in judged(rows, self._choice):
            # Whether small errors grew on the way is known at the end only.
            verdict = Verdict.LARGE if row.verdict is Verdict.AMPLIFIED else row.verdict
            self._counts[verdict.value] = self._counts.get(verdict.value, 0) + 1

    def tell(self, done: int, total: int) -> None:
        """Say how far it is."""
        self._watch(Step(Stage.MEASURE, done, total, counts=dict(self._counts)))

    def finish(self, total: int) -> None:
        """Say that all are measured."""
        text = f"{total} sync points"
        self._watch(Step(Stage.MEASURE, total, total, True, text, dict(self._counts)))
