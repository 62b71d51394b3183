"""The Session of a PyTorch model: chooses capture, replay, evaluation; sets threads, seed, mode;
runs samples and steps; exports and caches programs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, InputError, Unsupported
from syncpoint.run.model import WHOLE, Observer, OpKey, Part
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import (
    Array,
    EdgeValues,
    Inputs,
    InputSpec,
    Region,
    Replacement,
    Tree,
)
from syncpoint.runtimes.session import BaseSession, RunTotals, recorder_for_step
from syncpoint.runtimes.torch.arrays import clone_tensor
from syncpoint.runtimes.torch.capture import (
    CaptureLedger,
    NodeCapture,
    describe_other_outputs,
    note_other_inputs,
    record_by_nodes,
)
from syncpoint.runtimes.torch.dispatch_capture import record_by_dispatch
from syncpoint.runtimes.torch.environment import describe_torch_environment
from syncpoint.runtimes.torch.evaluate import TorchEvaluator, choose_program, record_in_float64
from syncpoint.runtimes.torch.export import export_program, input_signature, make_program
from syncpoint.runtimes.torch.inputs import Args, Kwargs, bind_arguments, has_open_ends
from syncpoint.runtimes.torch.load_model import LoadedModel, load_model
from syncpoint.runtimes.torch.model_errors import make_model_error
from syncpoint.runtimes.torch.observer_check import compare_states, compare_with_plain
from syncpoint.runtimes.torch.program import Observations, TorchProgram
from syncpoint.runtimes.torch.replay import NodeReplay
from syncpoint.runtimes.torch.states_and_steps import StepLoop, preserve_state

_TORCH_LOCK = threading.RLock()
"""Threads, seed, default dtype and training mode are global in torch: one run at a time."""


def open_session(model: object, options: Mapping[str, Any]) -> TorchSession:
    """Open a model, a file that holds one, or `file.py:attribute`."""
    return TorchSession(load_model(model, options), options)


@dataclass
class LoopTotals(RunTotals):
    """The totals of a run, and the loop whose steps its samples may be."""

    loop: StepLoop | None = None
    """None where the samples are not steps."""

    def run_next_step(
        self, loaded_model: LoadedModel, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
    ) -> None:
        """Make the next step of the loop; the first call starts the loop."""
        if self.loop is None:
            self.loop = StepLoop(loaded_model, args, kwargs)
        torch.manual_seed(seed)
        self.loop.step(args, kwargs)


class TorchSession(BaseSession):
    """One model under one set of options. The given model is not changed."""

    def __init__(self, loaded_model: LoadedModel, options: Mapping[str, Any]) -> None:
        self._loaded_model = loaded_model
        self._options = dict(options)
        self._was_training = loaded_model.has_modes and any(
            module.training for module in loaded_model.plain.modules()
        )
        self._programs: dict[Any, TorchProgram] = {}
        """By the signature of the inputs; the last used program is last."""
        self._program_by_part: dict[Part, TorchProgram] = {}
        """The program that each part last ran."""
        self._fallback = ""
        """Why the model is captured by dispatch and not exported; "" if it may be exported."""
        self._evaluator = TorchEvaluator()
        self._loop: StepLoop | None = None
        """The loop whose step is being captured."""
        if loaded_model.script is not None:
            self._fallback = "captured by dispatch from the TorchScript interpreter, unoptimised"
        elif options["capture"] == "dispatch":
            self._fallback = "captured by dispatch, as the option capture sets"

    def inputs(self) -> tuple[InputSpec, ...]:
        """The inputs of forward; PyTorch declares only their names."""
        parameters = self._loaded_model.signature.parameters.values()
        return tuple(
            InputSpec(p.name, required=p.default is p.empty)
            for p in parameters
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )

    def takes_any_name(self) -> bool:
        """Whether forward has `**kwargs`."""
        return has_open_ends(self._loaded_model)[1]

    def program_of(self, part: Part) -> TorchProgram | None:
        """The program that a part last ran; None where there is none."""
        return self._program_by_part.get(part)

    def bind_leaves(self, inputs: Inputs) -> list[Any]:
        """The flattened inputs of the program, in the order of its placeholders."""
        return pytree.tree_leaves(self._bind(inputs))

    @contextlib.contextmanager
    def options_in_effect(self) -> Iterator[None]:
        """Set threads, seed and mode as the options say, to run a piece of the program."""
        with self._options_in_effect():
            yield

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture one execution, then run the plain model and compare the final outputs."""
        totals = self.totals(recorder)
        assert isinstance(totals, LoopTotals)
        if self._options.get("steps"):
            recorder = recorder_for_step(recorder)
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            self._record_facts(recorder, environment=describe_torch_environment())
            with self._step_in_effect(totals, args, kwargs):
                self._record_sample(args, kwargs, recorder)

    def new_totals(self) -> RunTotals:
        """The totals of a run before its first sample, without a loop."""
        return LoopTotals()

    def _record_facts(self, recorder: Recorder, **more: Any) -> None:
        """Record the runtime, its version, the options and the device."""
        recorder.facts(
            runtime="torch",
            runtime_version=torch.__version__,
            options=self._options,
            device=str(self._loaded_model.device),
            **more,
        )

    @contextlib.contextmanager
    def _step_in_effect(self, totals: LoopTotals, args: Args, kwargs: Kwargs) -> Iterator[None]:
        """Run the next plain step of the loop, if the samples are steps.

        The loop is in the session only during the step: a session may run several loops.
        """
        if self._options.get("steps"):
            totals.run_next_step(self._loaded_model, args, kwargs, self._options["seed"])
        self._loop = totals.loop
        try:
            yield
        finally:
            self._loop = None

    def _record_sample(self, args: Args, kwargs: Kwargs, recorder: Recorder) -> None:
        if self._was_training and self._options["mode"] == "eval":
            recorder.note("the model was in training mode; it was captured in eval mode")
        program = self._find_program(args, kwargs)
        if program is None:
            program, ledger, outputs = self._trace(args, kwargs, recorder, recorder.part)
        else:
            ledger = CaptureLedger(program.observed, recorder, program.has_subgraphs)
            outputs = self._capture(program, ledger, args, kwargs)
        self._program_by_part[recorder.part] = program
        for note in program.notes:
            recorder.note(note)
        self.conclude(
            recorder,
            ledger.computed,
            lambda: self._check_observer(program, outputs, args, kwargs),
            other_outputs=describe_other_outputs(program.outputs, outputs, recorder.part),
        )

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """Record one execution with all floating-point arithmetic in float64.

        Casts and dtype arguments of the model are changed too.
        """
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            self._record_facts(recorder, precision="f64")
            program = self._find_program(args, kwargs)
            if program is None:
                program, _, _ = self._trace(args, kwargs, None, recorder.part)
            leaves = pytree.tree_leaves((args, kwargs))
            record_in_float64(program, self._evaluator, leaves, recorder)

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Run the program once; each output is recorded, then replaced by `value`."""
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            program = self._find_program(args, kwargs) if not self._options.get("steps") else None
            if program is None:
                raise Unsupported(
                    "replay needs a model that torch.export can export, without the option steps:"
                    f" {self._fallback or 'the option steps is set'}",
                    cure="use --introduced local",
                )
            ledger = CaptureLedger(program.observed, recorder, program.has_subgraphs)
            self._capture(
                program, ledger, args, kwargs, partial(NodeReplay, value=value, part=recorder.part)
            )
        return {}

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form without recording anything.

        The model is run only if it cannot be exported, or if the samples are steps.
        """
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            with self._step_in_effect(LoopTotals(), args, kwargs):
                program = self._find_program(args, kwargs)
                if program is None:
                    program, _, _ = self._trace(args, kwargs, None, part)
            self._program_by_part[part] = program

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs with all floating-point arithmetic done in `dtype`."""
        # This runs nodes of the graph, not modules: mode and seed have no effect.
        with self._locked():
            program = self._choose_program(region, inputs)
            return self._evaluator.evaluate(program, region, inputs, dtype, parameter_dtype)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """The parameters, buffers and constants that the region's ops read, each once."""
        return self._evaluator.parameters_of(self._choose_program(region, {}), region)

    def _choose_program(self, region: Region, inputs: EdgeValues) -> TorchProgram:
        preferred = self._program_by_part.get(region.part)
        return choose_program(list(self._programs.values()), region, inputs, preferred)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _TORCH_LOCK, torch.no_grad():
            yield

    @contextlib.contextmanager
    def _options_in_effect(self) -> Iterator[None]:
        """Set the options while something runs; restore the previous settings afterwards."""
        with _TORCH_LOCK, torch.random.fork_rng(devices=[]), torch.no_grad():
            threads_before = torch.get_num_threads()
            models = (
                [self._loaded_model.plain, self._loaded_model.module]
                if self._loaded_model.has_modes
                else []
            )
            training_before = {
                module: module.training for model in models for module in model.modules()
            }
            try:
                if self._options["threads"]:
                    torch.set_num_threads(self._options["threads"])
                if self._options["mode"] != "as-is":
                    for model in models:
                        model.train(self._options["mode"] == "train")
                torch.manual_seed(self._options["seed"])
                yield
            finally:
                torch.set_num_threads(threads_before)
                for module, training in training_before.items():
                    module.training = training

    def _bind(self, inputs: Inputs) -> tuple[Args, Kwargs]:
        return bind_arguments(self._loaded_model, inputs, self.inputs())

    def _make_model_error(
        self, error: Exception, args: Args, kwargs: Kwargs, location: str = ""
    ) -> InputError | CaptureError:
        return make_model_error(self._loaded_model, error, args, kwargs, location)

    def _find_program(self, args: Args, kwargs: Kwargs) -> TorchProgram | None:
        """The program for inputs of this form; None if the model is captured by dispatch."""
        hidden = () if self._loop is None else self._loop.hidden
        if hidden and not self._fallback and self._loaded_model.exported is None:
            self._require_dispatch(hidden)
        if self._fallback:
            return None
        key = input_signature(args, kwargs, self._options["mode"])
        program = self._programs.pop(key, None)
        if program is None:
            exported = self._loaded_model.exported is not None
            program = (
                self._adopt_exported_program(args, kwargs)
                if exported
                else self._export_model(args, kwargs)
            )
        if program is not None:
            if self._loop is not None:
                program = program.with_states(self._loop.states)
            self._programs[key] = program
        return program

    def _require_dispatch(self, hidden: tuple[str, ...]) -> None:
        """Fall back to dispatch: the model keeps state that an exported program cannot carry."""
        reason = f"the model keeps {', '.join(hidden[:3])} from step to step, not as a buffer"
        reason += " of fixed shape, the only state that an export carries from step to step"
        if self._options["capture"] == "export" or self._programs:
            raise CaptureError(
                f"the steps of {self._loaded_model.name} cannot be captured as a single exported"
                f" program: {reason}",
                cure="use capture=dispatch",
            )
        self._fallback = f"captured by dispatch, since {reason}"

    def _adopt_exported_program(self, args: Args, kwargs: Kwargs) -> TorchProgram:
        """The program of an exported model, for inputs that its guards accept."""
        exported = self._loaded_model.exported
        assert exported is not None
        try:
            self._run_plain(args, kwargs)
        except Exception as error:
            raise self._make_model_error(error, args, kwargs) from error
        for program in self._programs.values():
            return program.for_other_inputs()
        tensors = {**exported.state_dict, **exported.constants}
        named_state = ((name, t) for name, t in tensors.items() if isinstance(t, torch.Tensor))
        return make_program(exported, (args, kwargs), self._loaded_model.positional, named_state)

    def _export_model(self, args: Args, kwargs: Kwargs) -> TorchProgram | None:
        """Export the model; if that fails, tell whether inputs, model or export is at fault."""
        names, model = self._loaded_model.positional, self._loaded_model.module
        try:
            return export_program(model, args, kwargs, names)
        except Exception as error:
            export_error = error
        try:
            self._run_plain(args, kwargs)
        except Exception as model_error:
            raise self._make_model_error(model_error, args, kwargs) from model_error
        try:
            program = export_program(model, args, kwargs, names, strict=True)
        except Exception:
            if self._options["capture"] == "export":
                raise CaptureError(
                    f"torch.export cannot export {self._loaded_model.name}: the model runs but"
                    f" its export raised {one_line(export_error)}",
                    cure="use capture=auto or capture=dispatch",
                ) from export_error
            self._fallback = (
                f"captured by dispatch, since torch.export raised {one_line(export_error)}"
            )
            return None
        program.notes += (
            f"exported in strict mode, since the default mode raised {one_line(export_error)}",
        )
        return program

    def _run_plain(self, args: Args, kwargs: Kwargs) -> Tree:
        """Run the plain model on copies of the inputs; in a loop, return the step already run."""
        if self._loop is not None:
            return self._loop.result()
        return self._call_and_restore(self._loaded_model.plain, args, kwargs)

    def _call_and_restore(self, call: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tree:
        """Call the model on copies of the inputs, then restore its buffers."""
        with preserve_state(self._loaded_model.plain):
            torch.manual_seed(self._options["seed"])
            return call(
                *pytree.tree_map(clone_tensor, args), **pytree.tree_map(clone_tensor, kwargs)
            )

    def _trace(
        self, args: Args, kwargs: Kwargs, recorder: Recorder | None, part: Part
    ) -> tuple[TorchProgram, CaptureLedger, list[Any]]:
        """Capture the model by dispatch, while it runs."""
        ledger = CaptureLedger(Observations(), recorder)
        has_numbers = self._loaded_model.script is not None
        names = self._loaded_model.positional
        note_other_inputs((args, kwargs), names, ledger, with_numbers=not has_numbers)
        seed = self._options["seed"]
        program, outputs = record_by_dispatch(
            self._loaded_model, self._loop, (args, kwargs), ledger, seed, self._fallback
        )
        self._programs[input_signature(args, kwargs, part)] = program
        return program, ledger, outputs

    def _capture(
        self,
        program: TorchProgram,
        ledger: CaptureLedger,
        args: Args,
        kwargs: Kwargs,
        kind: Callable[..., NodeCapture] = NodeCapture,
    ) -> list[Any]:
        """Capture the program node by node; returns the flattened final outputs."""
        note_other_inputs((args, kwargs), self._loaded_model.positional, ledger)
        return record_by_nodes(
            program,
            ledger,
            self._loaded_model,
            self._loop,
            (args, kwargs),
            self._options["seed"],
            kind,
        )

    def _check_observer(
        self, program: TorchProgram, outputs: list[Any], args: Args, kwargs: Kwargs
    ) -> Observer:
        """Check that the plain model gives the same bits as the captured one."""
        observer = compare_with_plain(
            program.outputs, outputs, lambda: self._run_plain(args, kwargs)
        )
        if self._loop is None or not observer.equal:
            return observer
        is_traced = program.module is None
        states = self._loop.traced_states() if is_traced else self._loop.states
        return compare_states(states, self._loop.plain_states())
