"""Base class of the sessions of all runtimes: facts of a run over all its samples, error of a
failed run, and the recorder of each step.

A runtime of another package may use it too; the protocol does not require it. Model outputs need
no code here: the recorder finds the op that each output comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from syncpoint.errors import CaptureError
from syncpoint.run.model import Observer, Part
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.exception_text import one_line


@dataclass
class RunTotals:
    """Facts about all parts of a run together; the observer check fails if one sample differs."""

    computed: Counter[str] = field(default_factory=Counter)
    """Number of elements computed in each element type."""
    observer: Observer = field(default_factory=lambda: Observer(True))


_TOTALS: WeakKeyDictionary[RunWriter, RunTotals] = WeakKeyDictionary()


class BaseSession:
    """Keeps the totals of each run that a session records, and writes them as facts."""

    def new_totals(self) -> RunTotals:
        """The totals of a run before its first sample; a session may keep more in a subclass."""
        return RunTotals()

    def totals(self, recorder: Recorder) -> RunTotals:
        """The totals of the run that is being recorded."""
        run_totals = _TOTALS.get(recorder.writer)
        if run_totals is None:
            run_totals = _TOTALS[recorder.writer] = self.new_totals()
        return run_totals

    def conclude(
        self,
        recorder: Recorder,
        computed: Mapping[str, int],
        check: Callable[[], Observer] | None = None,
        **facts: Any,
    ) -> None:
        """Record the facts of the run after one more sample.

        `computed` is how much of the sample was computed in each element type. `check` runs the
        plain model and compares the outputs; it is not called after a sample that differed.
        """
        totals = self.totals(recorder)
        totals.computed.update(computed)
        if check is not None:
            if totals.observer.equal:
                totals.observer = check()
            facts["observer"] = totals.observer
        recorder.facts(
            precision="+".join(name for name, _ in totals.computed.most_common()), **facts
        )


def describe_failed_run(
    name: str, arrays: Mapping[str, NDArray[Any]], error: Exception
) -> CaptureError:
    """The error that says on which inputs a model failed."""
    shapes = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())
    return CaptureError(
        f"{name} failed on the inputs {shapes}: {one_line(error)}",
        cure="check the shapes, types and values of the inputs (--inputs)",
    )


def recorder_for_step(recorder: Recorder) -> Recorder:
    """The recorder of the step that a sample is, where samples are steps of a sequence."""
    return recorder.for_part(Part(step=max(recorder.part.sample, 0)))
