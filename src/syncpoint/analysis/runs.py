"""The runs of an analysis, all on the same inputs."""

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
from syncpoint.runtimes.inputs.shapes import Shape
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
from syncpoint.runtimes.registry import runtime, runtimes
from syncpoint.supervision.scratch_folder import scratch_folder


@dataclass(kw_only=True)
class Runs:
    """What was recorded. None where a run could not be made; `missing` then says why."""

    compiled: Run
    graph: Run
    """The ops of the compiled graph, one by one, by eager kernels."""
    graph64: Run | None = None
    """The same in float64."""
    eager: Run | None = None
    float64: Run | None = None
    """The model as it was written, in float64: the truth."""
    missing: dict[str, str] = field(default_factory=dict)
    unsteady: dict[str, list[str]] = field(default_factory=dict)
    """Run -> ops that gave other bits the second time."""


Execute = Callable[[Inputs, Recorder], None]


class Maker:
    """Makes the runs of one model and one set of inputs."""

    def __init__(
        self,
        model: object,
        inputs: object,
        options: Mapping[str, Any],
        folder: Path,
        shapes: Mapping[str, Shape | tuple[int, ...]],
    ) -> None:
        compiler = _compiler_of(model)
        settings = parse_options(compiler, options)
        session = cast("CompiledSession", compiler.open(model, settings))
        self.session = session
        self._eager: Any = _open_uncompiled(compiler, model, settings)
        self.can_replace_values = cast("Compiles", compiler).can_replace_values(settings)
        """Whether the compiled code can go on from another value of a tensor."""
        samples = read_inputs(inputs, shapes, session.inputs())
        if len(samples) != 1:
            raise InputError("one sample to analyze", f"{len(samples)}", "name one of the files")
        self.inputs = samples[0]
        self._folder = folder
        self._name = model if isinstance(model, str) else type(model).__qualname__
        self._settings = settings

    def make(self) -> Runs:
        """Every run, and each of them a second time to see whether it gives the same bits."""
        session = self.session
        compiled = self._record("compiled", session.run, session)
        runs = Runs(compiled=compiled, graph=self._record("graph", session.run_op_by_op, session))
        again = {"compiled": session.run, "graph": session.run_op_by_op}
        runs.graph64 = self._attempt(runs, "graph64", session.run_wide, session)
        runs.eager = self._attempt(runs, "eager", self._eager.run, self._eager)
        if runs.eager is not None:
            again["eager"] = self._eager.run
            runs.float64 = self._attempt(runs, "float64", self._eager.run_wide, self._eager)
            if runs.float64 is not None:
                again["float64"] = self._eager.run_wide
        with scratch_folder() as aside:
            for name, execute in again.items():
                second = self._record(name, execute, None, Kept.DIGEST, Path(aside))
                runs.unsteady[name] = differing(getattr(runs, name), second)
        return runs

    def compiled(self) -> Run:
        """The compiled run alone."""
        return self._record("compiled", self.session.run, self.session)

    def _attempt(self, runs: Runs, name: str, execute: Execute, session: object) -> Run | None:
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
    """The model and inputs of a file that a compiler wrote to have a failure repeated; None where
    `model` is something else."""
    if not isinstance(model, str):
        return None
    loaders = (each for each in runtimes() if isinstance(each, LoadsRepros))
    repros = (loader.load_repro(model) for loader in loaders)
    return next((repro for repro in repros if repro is not None), None)


def _compiler_of(model: object) -> Runtime:
    """The runtime that compiles the model; where none takes it, the first says why."""
    compilers = [candidate for candidate in runtimes() if isinstance(candidate, Compiles)]
    return next((each for each in compilers if each.accepts(model)), compilers[0])


def _open_uncompiled(compiler: Runtime, model: object, settings: Mapping[str, Any]) -> Session:
    """The model as it was written, with the options that compiled and uncompiled share."""
    assert isinstance(compiler, Compiles)
    eager = runtime(compiler.uncompiled)
    shared = {name: settings[name] for name in compiler.shared_options}
    return eager.open(model, parse_options(eager, shared))


def differing(first: Run, second: Run) -> list[str]:
    """Tensors that two runs of the same thing have with other bits, or that only one has."""
    mine = {t.key: t.digest for t in first.tensors}
    theirs = {t.key: t.digest for t in second.tensors}
    return [str(key) for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
