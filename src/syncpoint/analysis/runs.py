"""Record the runs of an analysis on the same inputs (compiled, eager, float64), load a compiler's
repro file, and list tensors that vary between runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from syncpoint.errors import InputError, SyncpointError
from syncpoint.run.model import Kept, RunInfo
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import read_inputs
from syncpoint.runtimes.inputs.shapes import InputShape
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import (
    CompiledSession,
    Compiles,
    Inputs,
    LoadsRepros,
    Repro,
    Runtime,
    Session,
)
from syncpoint.runtimes.registry import load_runtime, load_runtimes
from syncpoint.supervision.scratch_folder import scratch_folder


@dataclass(kw_only=True)
class AnalysisRuns:
    """The runs of an analysis. A run that could not be recorded is None; `missing` says why."""

    compiled: Run
    graph: Run
    """The compiled graph, executed op by op with eager kernels."""
    graph64: Run | None = None
    """The same in float64."""
    eager: Run | None = None
    float64: Run | None = None
    """The model as it was written, in float64: the most exact run."""
    missing: dict[str, str] = field(default_factory=dict)
    unsteady: dict[str, list[str]] = field(default_factory=dict)
    """For each run, the tensors whose bits differ in a second execution."""


Execute = Callable[[Inputs, Recorder], None]


class AnalysisRecorder:
    """Records the runs of one model on one set of inputs."""

    def __init__(
        self,
        model: object,
        inputs: object,
        options: Mapping[str, Any],
        folder: Path,
        shapes: Mapping[str, InputShape | tuple[int, ...]],
    ) -> None:
        compiler = _compiler_of(model)
        settings = parse_options(compiler, options)
        session = cast("CompiledSession", compiler.open(model, settings))
        self.session = session
        self._eager: Any = _open_uncompiled(compiler, model, settings)
        self.can_replace_values = cast("Compiles", compiler).can_replace_values(settings)
        """Whether a value can be replaced while the compiled code runs."""
        samples = read_inputs(inputs, shapes, session.inputs())
        if len(samples) != 1:
            raise InputError(
                f"analyze takes one sample, but the inputs contain {len(samples)}",
                cure="give the path of one of the files",
            )
        self.inputs = samples[0]
        self._folder = folder
        self._name = model if isinstance(model, str) else type(model).__qualname__
        self._settings = settings

    def record_all(self) -> AnalysisRuns:
        """Record every run, and execute each a second time to see whether its bits are the same."""
        session = self.session
        compiled = self._record("compiled", session.run, session)
        graph = self._record("graph", session.run_op_by_op, session)
        runs = AnalysisRuns(compiled=compiled, graph=graph)
        executions = {"compiled": session.run, "graph": session.run_op_by_op}
        runs.graph64 = self._attempt(runs, "graph64", session.run_wide, session)
        runs.eager = self._attempt(runs, "eager", self._eager.run, self._eager)
        if runs.eager is not None:
            executions["eager"] = self._eager.run
            runs.float64 = self._attempt(runs, "float64", self._eager.run_wide, self._eager)
            if runs.float64 is not None:
                executions["float64"] = self._eager.run_wide
        with scratch_folder() as folder:
            for name, execute in executions.items():
                second = self._record(name, execute, None, Kept.DIGEST, Path(folder))
                runs.unsteady[name] = differing_tensors(getattr(runs, name), second)
        return runs

    def record_compiled(self) -> Run:
        """Record the compiled run alone."""
        return self._record("compiled", self.session.run, self.session)

    def _attempt(
        self, runs: AnalysisRuns, name: str, execute: Execute, session: object
    ) -> Run | None:
        try:
            return self._record(name, execute, session)
        except SyncpointError as error:
            runs.missing[name] = str(error)
            return None

    def _record(
        self,
        name: str,
        execute: Execute,
        session: object,
        record: Kept = Kept.VALUES,
        folder: Path | None = None,
    ) -> Run:
        path = (folder or self._folder) / f"{name}.run"
        info = RunInfo(model=self._name, options=self._settings, record=record)
        with RunWriter(path, info, overwrite=True) as writer:
            execute(self.inputs, Recorder(writer, record=record))
        run = Run.open(path)
        run.session = session
        return run


def load_repro(model: object) -> Repro | None:
    """The model and inputs of a file that a compiler wrote to reproduce a failure; None where
    `model` is something else."""
    if not isinstance(model, str):
        return None
    loaders = (each for each in load_runtimes() if isinstance(each, LoadsRepros))
    repros = (loader.load_repro(model) for loader in loaders)
    return next((repro for repro in repros if repro is not None), None)


def _compiler_of(model: object) -> Runtime:
    """The runtime that compiles the model; the first one where none accepts it, for its error."""
    compilers = [candidate for candidate in load_runtimes() if isinstance(candidate, Compiles)]
    return next((each for each in compilers if each.accepts(model)), compilers[0])


def _open_uncompiled(compiler: Runtime, model: object, settings: Mapping[str, Any]) -> Session:
    """The model as it was written, with the options that compiled and uncompiled share."""
    assert isinstance(compiler, Compiles)
    eager = load_runtime(compiler.uncompiled)
    shared = {name: settings[name] for name in compiler.shared_options}
    return eager.open(model, parse_options(eager, shared))


def differing_tensors(first: Run, second: Run) -> list[str]:
    """Tensors whose bits differ between two runs, or that only one of them has."""
    digests = [{tensor.key: tensor.digest for tensor in run.tensors} for run in (first, second)]
    keys = {**digests[0], **digests[1]}
    return [str(key) for key in keys if digests[0].get(key) != digests[1].get(key)]
