"""A Core AI asset that is loaded and can be run."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import coreai.runtime as rt
import numpy as np
from coreai.runtime import NDArray

from syncpoint.errors import CaptureError, InputError, Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Observer, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.coreai import debug_info, program
from syncpoint.runtimes.coreai.arrays import NAMES, to_coreai, to_numpy
from syncpoint.runtimes.coreai.callbacks import Watch
from syncpoint.runtimes.coreai.capture import Capture, record_inputs
from syncpoint.runtimes.coreai.event_loop import Loop
from syncpoint.runtimes.coreai.kernel_names import Names
from syncpoint.runtimes.coreai.load_asset import (
    choose_function,
    load_asset,
    private_attribute,
    specialize,
)
from syncpoint.runtimes.environment import describe_environment
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.inputs.bind_inputs import bind
from syncpoint.runtimes.observer_check import check_outputs
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec
from syncpoint.runtimes.session import BaseSession, RunTotals, recorder_for_step

_CPU = "CPU interpreter"
_NOT_EXERCISED = (
    "Core AI ran on its CPU interpreter: the Neural Engine and the GPU were not exercised"
)
_NO_DEBUG = (
    "the asset says nothing of the torch program it was made from (converted in RELEASE mode, or"
    " stripped): its ops are paired by structure and values only"
)
_NO_PROGRAM = (
    "this version of coreai-core does not show the program of an asset: the order of operands is"
    " not known, and origins of ops in shared bodies may be those of another call"
)


@dataclass
class _StateTotals(RunTotals):
    """What holds of all parts of a run together, and what its steps hand on."""

    parameters: set[int] = field(default_factory=set)
    states: dict[str, Array] = field(default_factory=dict)
    """What the last step left, where samples are steps."""


class CoreAISession(BaseSession):
    """One function of one asset under one set of options."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self.name = path.name
        asset = load_asset(path)
        specialization = specialize(options["compute_units"])
        self._device = _CPU if specialization is None else options["compute_units"]
        if specialization is None and rt._use_os_coreai:
            self._device = "as Core AI chose"
        loop = self._loop = Loop()
        weakref.finalize(self, loop.close)
        try:
            self._model = loop.enter(
                asset.executable() if specialization is None else asset.executable(specialization)
            )
        except Exception as error:
            raise InputError(
                f"{path} as an asset that Core AI can load", one_line(error)
            ) from error
        self._function = choose_function(options["function"], self._model.function_names, path)
        debug = debug_info.read(private_attribute(self._model, "_debug_infos"))
        private_attribute(NDArray, "_wrap")
        self._watch = Watch()
        self._program = program.read(asset, self._function)
        if self._program is not None:
            debug = {number: said.corrected(self._program.said) for number, said in debug.items()}
        self._names = Names(debug)
        self._plain = self._model.load_function(self._function)
        self._captured = self._model.load_function(
            self._function,
            intermediate_logger=rt.IntermediateLogger(
                requested_intermediates=[rt.CompileIdentifiers(i) for i in debug],
                callback=self._watch.values,
                is_enabled=True,
            ),
            profiler=rt.Profiler(
                on_log_event_begin=self._watch.begin, on_log_event_end=self._watch.end
            ),
        )
        self._watch.raise_error(self.name)
        self._has_debug = any(said.origins for said in debug.values())
        described = self._plain.desc
        self._outputs = tuple(described.output_names)
        self._specs = tuple(_spec(n, described.input_descriptor(n)) for n in described.input_names)
        self._states = tuple(
            _spec(n, described.state_descriptor(n), required=False) for n in described.state_names
        )

    def inputs(self) -> tuple[InputSpec, ...]:
        """What the function declares, states last; an axis it leaves open is -1."""
        return (*self._specs, *self._states)

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Record one execution, then run the function plainly and compare what it gives."""
        totals = self.totals(recorder)
        assert isinstance(totals, _StateTotals)
        if self._options["steps"]:
            recorder = recorder_for_step(recorder)
        given, notes = bind(inputs, self.inputs(), f"{self.name}:{self._function}")
        states, more = self._initial(given, totals)
        for note in (*notes, *more, *self._notes()):
            recorder.note(note)
        recorder.facts(
            runtime="coreai",
            runtime_version=version("coreai-core"),
            options={**self._options, "function": self._function},
            device=self._device,
            fusion="as-executed",
            environment=describe_environment(**{"coreai-core": version("coreai-core")}),
        )
        fed = {name: given[name] for name in given if name not in states}
        record_inputs(recorder, fed, states, frozenset(given))
        capture = Capture(
            recorder,
            self._watch.constants,
            self._names,
            self._program,
            {name: Edge(OpKey(name), role=Role.MODEL_INPUT) for name in fed}
            | {name: Edge(OpKey(name), 1, Role.STATE) for name in states},
            fed | states,
            self._device,
        )
        self._watch.capture = capture
        try:
            found, after = self._execute(self._captured, fed, states, capture)
        finally:
            self._watch.capture = None
        self._watch.raise_error(self.name)
        capture.record_results(found, after)
        capture.record_parameters(totals.parameters)
        totals.states = after

        def check() -> Observer:
            plain, plain_after = self._execute(self._plain, fed, states)
            captured = {**found, **after}
            return check_outputs((n, captured[n], v) for n, v in {**plain, **plain_after}.items())

        self.conclude(recorder, capture.computed, check)

    def new_totals(self) -> RunTotals:
        """The totals of a run before its first sample, without states."""
        return _StateTotals()

    def _initial(
        self, given: Mapping[str, Array], totals: _StateTotals
    ) -> tuple[dict[str, Array], list[str]]:
        """What the states hold before this execution."""
        states, notes = {}, []
        for spec in self._states:
            if spec.name in given:
                states[spec.name] = given[spec.name]
            elif self._options["steps"] and spec.name in totals.states:
                states[spec.name] = totals.states[spec.name]
            else:
                shape = tuple(max(n, 0) for n in spec.shape or ())
                states[spec.name] = np.zeros(shape, DTYPES[spec.dtype].numpy)
                notes.append(f"the state {spec.name} began as zeros: no value was given for it")
        return states, notes

    def _execute(
        self,
        function: Any,
        fed: Mapping[str, Array],
        states: Mapping[str, Array],
        capture: Capture | None = None,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Outputs in order and the states after one call."""
        given = {name: to_coreai(array) for name, array in fed.items()}
        held = {name: to_coreai(array) for name, array in states.items()}
        if capture is not None:
            for name, array in {**given, **held}.items():
                capture.lies(name, array)

        async def call() -> Any:
            return await function(given, state=held)

        try:
            found = self._loop.run(call())
        except Exception as error:
            said = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in {**fed, **states}.items())
            raise CaptureError(f"{self.name} to run on {said}", one_line(error)) from error
        outputs = {name: np.array(to_numpy(found[name])) for name in self._outputs}
        return outputs, {name: np.array(to_numpy(value)) for name, value in held.items()}

    def _notes(self) -> list[str]:
        notes = [_NOT_EXERCISED] if self._device == _CPU else []
        if not self._has_debug:
            notes.append(_NO_DEBUG)
        if self._program is None:
            notes.append(_NO_PROGRAM)
        return notes


def _spec(name: str, described: Any, required: bool = True) -> InputSpec:
    kind = NAMES.get(described.dtype)
    if kind is None:
        raise Unsupported(f"the input {name} of numbers", f"elements of {described.dtype}")
    shape = tuple(-1 if n is None or n < 0 else int(n) for n in described.shape)
    return InputSpec(name, shape, kind, required)
