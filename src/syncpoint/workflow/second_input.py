"""Run both models on one second input and record the runs, when matching asks; the input itself is
computed in runtimes/inputs/perturbed.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from syncpoint.errors import CaptureError, InputError
from syncpoint.supervision.scratch_folder import scratch_folder
from syncpoint.workflow.resolve_sides import runtime_options

if TYPE_CHECKING:
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.protocol import Inputs, Session
    from syncpoint.workflow.resolve_sides import ResolvedSide


def prepare_second_runs(target: ResolvedSide, reference: ResolvedSide) -> SecondInputRuns | None:
    """Prepare to run both models on another input; None if one of the models is not available."""
    if any(side.run.session is None and side.model is None for side in (target, reference)):
        return None
    return SecondInputRuns(target, reference)


class SecondInputRuns:
    """Records both models on other inputs than the first; matching calls it if needed."""

    def __init__(self, target: ResolvedSide, reference: ResolvedSide) -> None:
        self._sides = (target, reference)

    def record_runs(self) -> tuple[Run, Run]:
        """Record the target and the reference on a perturbed input."""
        from syncpoint.runtimes.inputs.perturbed import perturb_inputs

        target, reference = self._sides
        for name, side in (("target", target), ("reference", reference)):
            if side.samples is None:
                raise InputError(
                    f"the {name} run has no recorded inputs, so its model cannot be run again",
                    cure=f"record the {name} again with --inputs",
                )
        assert target.samples is not None and reference.samples is not None
        quantized = any(t.quantization is not None for s in self._sides for t in s.run.tensors)
        inputs = perturb_inputs(target.samples, reference.samples, signs=not quantized)
        return _record_side(target, inputs[0]), _record_side(reference, inputs[1])


def _record_side(side: ResolvedSide, samples: list[Inputs]) -> Run:
    from syncpoint.runtimes.registry import RUNTIMES

    with RUNTIMES.contain_errors(side.run.info.runtime, CaptureError, "to run the model again"):
        return _record_run(_session_of(side), samples)


def _session_of(side: ResolvedSide) -> Session:
    """The session that produced the run, or a new session of its model."""
    if side.run.session is not None:
        return cast("Session", side.run.session)
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.registry import find_runtime

    runtime = find_runtime(side.model, side.options.get("runtime"))
    return runtime.open(side.model, parse_options(runtime, runtime_options(side.options)))


def _record_run(session: Session, samples: list[Inputs]) -> Run:
    from syncpoint.run.model import Part, RunInfo
    from syncpoint.run.reader import Run
    from syncpoint.run.recorder import Recorder
    from syncpoint.run.storage.writer import RunWriter

    folder = scratch_folder()
    path = Path(folder.name) / "second.run"
    with RunWriter(path, RunInfo()) as writer:
        recorder = Recorder(writer)
        for number, sample in enumerate(samples, start=len(samples)):
            # A session stores what it ran by part; the parts of the first inputs must stay.
            session.run(sample, recorder.for_part(Part(sample=number)))
    run = Run.open(path)
    run.keep = folder
    return run
