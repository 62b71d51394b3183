"""A second look at pairs that values alone speak for: do they agree on another input too?

On one input two different tensors may hold the same numbers by accident: a ReLU of what happens
to be positive, a maximum that one side always wins.
"""

from __future__ import annotations

from typing import Protocol

from syncpoint.errors import SyncpointError
from syncpoint.matching.fingerprints import Fingerprints
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.layouts import Layouts
from syncpoint.matching.protocol import Side
from syncpoint.run.model import TensorKey
from syncpoint.run.reader import Run


class SecondExecution(Protocol):
    """Runs the models of a comparison once more, on another input than the first."""

    def record_runs(self) -> tuple[Run, Run]:
        """Record the target and the reference on that input."""


class Confirmation:
    """Answers for pairs of tensors; both models are run when the first is asked about."""

    def __init__(self, second: SecondExecution) -> None:
        self._second = second
        self._layouts: Layouts | None = None
        self._prints: Fingerprints | None = None
        self._asked = False
        self.trouble = ""
        """Why no second input could be had; then nothing is denied."""

    def agrees(self, target: TensorKey, reference: TensorKey) -> bool | None:
        """Whether two tensors hold the same numbers there too; None where that cannot be told,
        because one of them is constant there or was not recorded."""
        if not self._asked:
            self._asked = True
            self._run()
        if self._prints is None or self._layouts is None:
            return None
        slots = Slot(target.op, target.index), Slot(reference.op, reference.index)
        if any(self._prints.sample(side, slot) is None for side, slot in enumerate(slots)):
            return None
        return self._layouts.best(*slots)[0] <= self._prints.tolerance

    def _run(self) -> None:
        try:
            runs = self._second.record_runs()
        except SyncpointError as error:
            self.trouble = f"pairs by values were not confirmed on a second input: {error}"
            return
        self._prints = Fingerprints(*(Graph(Side.of(run)) for run in runs))
        self._layouts = Layouts(self._prints)
