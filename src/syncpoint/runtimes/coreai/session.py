"""The Session of a Core AI asset: runs one of its functions, passes states from step to step,
declares inputs, notes what a run lacks."""

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

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Observer, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.coreai.arrays import DTYPE_NAMES, to_coreai, to_numpy
from syncpoint.runtimes.coreai.callbacks import RuntimeCallbacks
from syncpoint.runtimes.coreai.capture import CoreAICapture, record_inputs
from syncpoint.runtimes.coreai.event_loop import EventLoop
from syncpoint.runtimes.coreai.load_model import (
    choose_function,
    load_asset,
    private_attribute,
    specialize,
)
from syncpoint.runtimes.coreai.node_metadata import KernelNames, parse_debug_info
from syncpoint.runtimes.coreai.program import read_program
from syncpoint.runtimes.environment import describe_environment
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.inputs.bind_inputs import bind
from syncpoint.runtimes.observer_check import check_outputs
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec
from syncpoint.runtimes.session import (
    BaseSession,
    RunTotals,
    describe_failed_run,
    recorder_for_step,
)

_CPU = "CPU interpreter"
_NOT_EXERCISED = (
    "Core AI ran on its CPU interpreter: the Neural Engine and the GPU were not exercised"
)
_NO_DEBUG_INFO = (
    "the asset has no debug information about its torch program (converted in RELEASE mode, or"
    " stripped): its ops are paired by structure and values only"
)
_NO_PROGRAM = (
    "this version of coreai-core does not show the program of an asset: the order of operands is"
    " unknown, and origins of ops in shared bodies may be those of another call"
)


@dataclass
class _StateTotals(RunTotals):
    """The totals of a run, with the states that a step passes to the next."""

    parameters: set[int] = field(default_factory=set)
    """Constants that are already recorded."""
    states: dict[str, Array] = field(default_factory=dict)
    """The states after the last step, where samples are steps."""


class CoreAISession(BaseSession):
    """One function of one asset under one set of options."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self.name = path.name
        asset = load_asset(path)
        specialization = specialize(options["compute_units"])
        self._device = _CPU if specialization is None else options["compute_units"]
        if specialization is None and rt._use_os_coreai:
            self._device = "chosen by Core AI"
        loop = self._loop = EventLoop()
        weakref.finalize(self, loop.close)
        try:
            self._model = loop.enter(
                asset.executable() if specialization is None else asset.executable(specialization)
            )
        except Exception as error:
            raise InputError(
                f"Core AI cannot load {path}: {one_line(error)}",
                cure="convert the model again with this version of coreai-core",
            ) from error
        self._function = choose_function(options["function"], self._model.function_names, path)
        debug = parse_debug_info(private_attribute(self._model, "_debug_infos"))
        private_attribute(NDArray, "_wrap")
        self._callbacks = RuntimeCallbacks()
        self._program = read_program(asset, self._function)
        if self._program is not None:
            debug_by_node = self._program.debug_by_node
            debug = {kernel: info.correct(debug_by_node) for kernel, info in debug.items()}
        self._names = KernelNames(debug)
        self._plain = self._model.load_function(self._function)
        self._captured = self._model.load_function(
            self._function,
            intermediate_logger=rt.IntermediateLogger(
                requested_intermediates=[rt.CompileIdentifiers(i) for i in debug],
                callback=self._callbacks.values,
                is_enabled=True,
            ),
            profiler=rt.Profiler(
                on_log_event_begin=self._callbacks.begin, on_log_event_end=self._callbacks.end
            ),
        )
        self._callbacks.raise_error(self.name)
        self._has_debug_info = any(kernel_debug.origins for kernel_debug in debug.values())
        interface = self._plain.desc
        self._outputs = tuple(interface.output_names)
        self._specs = tuple(
            _make_spec(n, interface.input_descriptor(n)) for n in interface.input_names
        )
        self._states = tuple(
            _make_spec(n, interface.state_descriptor(n), required=False)
            for n in interface.state_names
        )

    def inputs(self) -> tuple[InputSpec, ...]:
        """List the inputs that the function declares, states last; an open axis is -1."""
        return (*self._specs, *self._states)

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Session.run: capture one execution, then compare its outputs with a plain one."""
        totals = self.totals(recorder)
        assert isinstance(totals, _StateTotals)
        if self._options["steps"]:
            recorder = recorder_for_step(recorder)
        passed, notes = bind(inputs, self.inputs(), f"{self.name}:{self._function}")
        states, state_notes = self._initial_states(passed, totals)
        for note in (*notes, *state_notes, *self._make_notes()):
            recorder.note(note)
        recorder.facts(
            runtime="coreai",
            runtime_version=version("coreai-core"),
            options={**self._options, "function": self._function},
            device=self._device,
            fusion="as-executed",
            environment=describe_environment(**{"coreai-core": version("coreai-core")}),
        )
        feeds = {name: passed[name] for name in passed if name not in states}
        record_inputs(recorder, feeds, states, frozenset(passed))
        capture = CoreAICapture(
            recorder,
            self._callbacks.constants,
            self._names,
            self._program,
            {name: Edge(OpKey(name), role=Role.MODEL_INPUT) for name in feeds}
            | {name: Edge(OpKey(name), 1, Role.STATE) for name in states},
            feeds | states,
            self._device,
        )
        self._callbacks.capture = capture
        try:
            outputs, new_states = self._execute(self._captured, feeds, states, capture)
        finally:
            self._callbacks.capture = None
        self._callbacks.raise_error(self.name)
        capture.record_results(outputs, new_states)
        capture.record_parameters(totals.parameters)
        totals.states = new_states

        def check_observer() -> Observer:
            plain_outputs, plain_states = self._execute(self._plain, feeds, states)
            captured = {**outputs, **new_states}
            plain = {**plain_outputs, **plain_states}
            return check_outputs((name, captured[name], value) for name, value in plain.items())

        self.conclude(recorder, capture.computed, check_observer)

    def new_totals(self) -> RunTotals:
        """Return the totals of a run before its first sample, without states."""
        return _StateTotals()

    def _initial_states(
        self, passed: Mapping[str, Array], totals: _StateTotals
    ) -> tuple[dict[str, Array], list[str]]:
        """The values of the states before this execution, and notes about them."""
        states, notes = {}, []
        for spec in self._states:
            if spec.name in passed:
                states[spec.name] = passed[spec.name]
            elif self._options["steps"] and spec.name in totals.states:
                states[spec.name] = totals.states[spec.name]
            else:
                shape = tuple(max(n, 0) for n in spec.shape or ())
                states[spec.name] = np.zeros(shape, DTYPES[spec.dtype].numpy)
                notes.append(f"the state {spec.name} began as zeros: no value was passed for it")
        return states, notes

    def _execute(
        self,
        function: Any,
        feeds: Mapping[str, Array],
        states: Mapping[str, Array],
        capture: CoreAICapture | None = None,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Call a function; returns its outputs in order, and the states after the call."""
        inputs = {name: to_coreai(array) for name, array in feeds.items()}
        state_arrays = {name: to_coreai(array) for name, array in states.items()}
        if capture is not None:
            for name, array in {**inputs, **state_arrays}.items():
                capture.add_input(name, array)

        async def call() -> Any:
            return await function(inputs, state=state_arrays)

        try:
            values = self._loop.run(call())
        except Exception as error:
            raise describe_failed_run(self.name, {**feeds, **states}, error) from error
        outputs = {name: np.array(to_numpy(values[name])) for name in self._outputs}
        return outputs, {name: np.array(to_numpy(array)) for name, array in state_arrays.items()}

    def _make_notes(self) -> list[str]:
        notes = [_NOT_EXERCISED] if self._device == _CPU else []
        if not self._has_debug_info:
            notes.append(_NO_DEBUG_INFO)
        if self._program is None:
            notes.append(_NO_PROGRAM)
        return notes


def _make_spec(name: str, descriptor: Any, required: bool = True) -> InputSpec:
    dtype = DTYPE_NAMES.get(descriptor.dtype)
    if dtype is None:
        raise Unsupported(
            f"the elements of the input {name} have the type {descriptor.dtype}, which is not"
            " numeric",
            cure="convert the model again with numeric inputs only",
        )
    shape = tuple(-1 if n is None or n < 0 else int(n) for n in descriptor.shape)
    return InputSpec(name, shape, dtype, required)
