"""Check pairs that only equal values support, by comparing both runs on a second input;
workflow/second_input.py records these runs.

On one input two different tensors may hold the same values by coincidence: a ReLU of values that
are all positive, or a maximum in which one operand is always larger.
"""

from __future__ import annotations

from typing import Protocol

from syncpoint.errors import SyncpointError
from syncpoint.matching.fingerprints import Fingerprints
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.protocol import Side
from syncpoint.matching.view_selection import ViewSelector
from syncpoint.run.model import TensorKey
from syncpoint.run.reader import Run


class SecondExecution(Protocol):
    """Runs both models of a comparison on a second input."""

    def record_runs(self) -> tuple[Run, Run]:
        """Record the target and the reference on the second input."""


class SecondInputConfirmation:
    """Compares pairs of tensors on a second input; the first call runs both models."""

    def __init__(self, second: SecondExecution) -> None:
        self._second = second
        self._view_selector: ViewSelector | None = None
        self._fingerprints: Fingerprints | None = None
        self._has_run = False
        self.problem = ""
        """Why the models could not be run on a second input; then no pair is rejected."""

    def agrees(self, target: TensorKey, reference: TensorKey) -> bool | None:
        """Whether two tensors hold equal values on the second input; None if unknown, because one
        of them is constant there or was not recorded."""
        if not self._has_run:
            self._has_run = True
            self._run_models()
        if self._fingerprints is None or self._view_selector is None:
            return None
        slots = Slot(target.op, target.index), Slot(reference.op, reference.index)
        if any(self._fingerprints.sample(side, slot) is None for side, slot in enumerate(slots)):
            return None
        return self._view_selector.find_best_view(*slots)[0] <= self._fingerprints.tolerance

    def _run_models(self) -> None:
        try:
            runs = self._second.record_runs()
        except SyncpointError as error:
            self.problem = (
                "tensors matched only by their values were not confirmed on a second input, so"
                f" these matches may be wrong: {error}"
            )
            return
        self._fingerprints = Fingerprints(*(SlotGraph(Side.of(run)) for run in runs))
        self._view_selector = ViewSelector(self._fingerprints)
