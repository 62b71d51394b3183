"""A PyTorch model that is loaded and can be run, whole or in pieces."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, InputError, Unsupported
from syncpoint.run.model import WHOLE, Observer, OpKey, Part
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import Array, EdgeValues, Inputs, InputSpec, Region, Tree
from syncpoint.runtimes.session import BaseSession, RunTotals, recorder_of_step
from syncpoint.runtimes.torch.arrays import cloned
from syncpoint.runtimes.torch.capture import Capture, record_by_nodes, record_in_float64
from syncpoint.runtimes.torch.captured_vs_plain import observed, observed_states
from syncpoint.runtimes.torch.dispatch_capture import record_by_dispatch
from syncpoint.runtimes.torch.environment import environment
from syncpoint.runtimes.torch.evaluate import Evaluator, choose
from syncpoint.runtimes.torch.export import export, program_of
from syncpoint.runtimes.torch.inputs import Args, Kwargs, bind, key_of
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.load_model import Subject, subject_of
from syncpoint.runtimes.torch.model_errors import raised
from syncpoint.runtimes.torch.model_tensors import unchanged
from syncpoint.runtimes.torch.non_tensors import note_other_inputs, other_outputs
from syncpoint.runtimes.torch.program import Observed, Program
from syncpoint.runtimes.torch.replay import Replay, Value
from syncpoint.runtimes.torch.steps import Loop, LoopTotals

_STATE = threading.RLock()
"""Threads, seed, default dtype and training mode are global in torch: one execution at a time."""


def open_session(model: object, options: Mapping[str, Any]) -> TorchSession:
    """The session of a model, of a file that holds one, or of a `file.py:attribute`."""
    return TorchSession(subject_of(model, options), options)


class TorchSession(BaseSession):
    """One model under one set of options. The model given is left as it was."""

    def __init__(self, subject: Subject, options: Mapping[str, Any]) -> None:
        self._subject = subject
        self._options = dict(options)
        self._given_training = subject.has_modes and any(
            module.training for module in subject.plain.modules()
        )
        self._programs: dict[Any, Program] = {}
        """By the signature of the inputs; the one used last comes last."""
        self._by_part: dict[Part, Program] = {}
        """The program that each part last ran."""
        self._fallback = ""
        """Why the model is recorded while it runs and not exported; "" while that is open."""
        self._evaluator = Evaluator()
        self._loop: Loop | None = None
        """The loop whose step is being captured."""
        if subject.script is not None:
            self._fallback = "captured by dispatch from the TorchScript interpreter, unoptimised"
        elif options["capture"] == "dispatch":
            self._fallback = "captured by dispatch, as asked"

    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model's forward takes; PyTorch says the names only."""
        parameters = self._subject.signature.parameters.values()
        return tuple(
            InputSpec(p.name, required=p.default is p.empty)
            for p in parameters
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )

    def program_of(self, part: Part) -> Program | None:
        """The program that a part last ran; None where none was exported."""
        return self._by_part.get(part)

    def leaves(self, inputs: Inputs) -> list[Any]:
        """What the program of these inputs is given, in the order of its placeholders."""
        return pytree.tree_leaves(self._bind(inputs))

    @contextlib.contextmanager
    def in_effect(self) -> Iterator[None]:
        """Threads, seed and mode as the options ask, for who runs a piece of the program."""
        with self._in_effect():
            yield

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture one execution, then run the model plainly and compare the final outputs."""
        totals = self.totals(recorder)
        assert isinstance(totals, LoopTotals)
        if self._options.get("steps"):
            recorder = recorder_of_step(recorder)
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            self._record_facts(recorder, environment=environment())
            with self._stepping(totals, args, kwargs):
                self._recorded_run(args, kwargs, recorder)

    def new_totals(self) -> RunTotals:
        """The totals of a run before its first sample, without a loop."""
        return LoopTotals()

    def _record_facts(self, recorder: Recorder, **more: Any) -> None:
        """What runs the model, and where."""
        recorder.facts(
            runtime="torch",
            runtime_version=torch.__version__,
            options=self._options,
            device=str(self._subject.device),
            **more,
        )

    @contextlib.contextmanager
    def _stepping(self, totals: LoopTotals, args: Args, kwargs: Kwargs) -> Iterator[None]:
        """Make the next step of the loop, if the samples are steps; nothing of it stays in the
        session, which may run several loops."""
        if self._options.get("steps"):
            totals.run_next_step(self._subject, args, kwargs, self._options["seed"])
        self._loop = totals.loop
        try:
            yield
        finally:
            self._loop = None

    def _recorded_run(self, args: Args, kwargs: Kwargs, recorder: Recorder) -> None:
        if self._given_training and self._options["mode"] == "eval":
            recorder.note("the model was in training mode; it was captured in eval mode")
        program = self._program(args, kwargs)
        if program is None:
            program, ledger, outputs = self._traced(args, kwargs, recorder, recorder.part)
        else:
            ledger = Ledger(program.observed, recorder, program.nests)
            outputs = self._captured(program, ledger, args, kwargs)
        self._by_part[recorder.part] = program
        for note in program.notes:
            recorder.note(note)
        self.conclude(
            recorder,
            ledger.computed,
            lambda: self._observed(program, outputs, args, kwargs),
            other_outputs=other_outputs(program.outputs, outputs, recorder.part),
        )

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """Record one execution with all floating-point arithmetic done in float64, whatever the
        model says: casts and types given as arguments too."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            self._record_facts(recorder, precision="f64")
            program = self._program(args, kwargs)
            if program is None:
                program, _, _ = self._traced(args, kwargs, None, recorder.part)
            leaves = pytree.tree_leaves((args, kwargs))
            record_in_float64(program, self._evaluator, leaves, recorder)

    def replay(self, inputs: Inputs, value: Value, recorder: Recorder) -> Mapping[OpKey, str]:
        """Run the program once; each op's result is recorded, then `value` is put in its place."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            program = self._program(args, kwargs) if not self._options.get("steps") else None
            if program is None:
                raise Unsupported(
                    "a model that torch.export takes, without steps, to feed its ops other values",
                    self._fallback or "steps",
                    "use --introduced local",
                )
            ledger = Ledger(program.observed, recorder, program.nests)
            self._captured(
                program, ledger, args, kwargs, partial(Replay, value=value, part=recorder.part)
            )
        return {}

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form without recording anything.

        The model is run only where it cannot be exported, or makes steps.
        """
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            with self._stepping(LoopTotals(), args, kwargs):
                program = self._program(args, kwargs)
                if program is None:
                    program, _, _ = self._traced(args, kwargs, None, part)
            self._by_part[part] = program

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs with all floating-point arithmetic done in `dtype`."""
        # Nodes of the graph run here, no modules: their mode and the seed play no part.
        with self._locked():
            program = self._chosen(region, inputs)
            return self._evaluator.evaluate(program, region, inputs, dtype, parameter_dtype)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """The parameters, buffers and constants that the region's ops read, each once."""
        return self._evaluator.parameters_of(self._chosen(region, {}), region)

    def _chosen(self, region: Region, inputs: EdgeValues) -> Program:
        wanted = self._by_part.get(region.part)
        return choose(list(self._programs.values()), region, inputs, wanted)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _STATE, torch.no_grad():
            yield

    @contextlib.contextmanager
    def _in_effect(self) -> Iterator[None]:
        """The options, for as long as something runs; everything is put back afterwards."""
        with _STATE, torch.random.fork_rng(devices=[]), torch.no_grad():
            threads = torch.get_num_threads()
            models = [self._subject.plain, self._subject.module] if self._subject.has_modes else []
            modes = {module: module.training for model in models for module in model.modules()}
            try:
                if self._options["threads"]:
                    torch.set_num_threads(self._options["threads"])
                if self._options["mode"] != "as-is":
                    for model in models:
                        model.train(self._options["mode"] == "train")
                torch.manual_seed(self._options["seed"])
                yield
            finally:
                torch.set_num_threads(threads)
                for module, training in modes.items():
                    module.training = training

    def _bind(self, inputs: Inputs) -> tuple[Args, Kwargs]:
        return bind(self._subject, inputs, self.inputs())

    def _raised(
        self, error: Exception, args: Args, kwargs: Kwargs, op: str = ""
    ) -> InputError | CaptureError:
        return raised(self._subject, error, args, kwargs, op)

    def _program(self, args: Args, kwargs: Kwargs) -> Program | None:
        """The program for inputs of this form; None where the model is recorded as it runs."""
        hidden = () if self._loop is None else self._loop.hidden
        if hidden and not self._fallback and self._subject.exported is None:
            self._dispatch_only(hidden)
        if self._fallback:
            return None
        key = key_of(args, kwargs, self._options["mode"])
        program = self._programs.pop(key, None)
        if program is None:
            exported = self._subject.exported is not None
            program = self._given(args, kwargs) if exported else self._exported(args, kwargs)
        if program is not None:
            if self._loop is not None:
                program = program.keeping(self._loop.states)
            self._programs[key] = program
        return program

    def _dispatch_only(self, hidden: tuple[str, ...]) -> None:
        """Steps of a model that counts in Python are not those of one exported program."""
        said = f"the model keeps {', '.join(hidden[:3])} from step to step, and not as a buffer"
        said += " of one shape, which is all that an export carries on"
        if self._options["capture"] == "export" or self._programs:
            raise CaptureError(
                f"the steps of {self._subject.name} to be those of one exported program",
                said,
                "set the option capture to dispatch",
            )
        self._fallback = f"captured by dispatch, since {said}"

    def _given(self, args: Args, kwargs: Kwargs) -> Program:
        """The program that the user gave, for inputs that its guards let pass."""
        exported = self._subject.exported
        assert exported is not None
        try:
            self._plain(args, kwargs)
        except Exception as error:
            raise self._raised(error, args, kwargs) from error
        for known in self._programs.values():
            return known.for_other_inputs()
        tensors = {**exported.state_dict, **exported.constants}
        named = ((name, t) for name, t in tensors.items() if isinstance(t, torch.Tensor))
        return program_of(exported, (args, kwargs), self._subject.positional, named)

    def _exported(self, args: Args, kwargs: Kwargs) -> Program | None:
        """A new program. Where export fails: because of the inputs, the model, or by itself?"""
        names, model = self._subject.positional, self._subject.module
        try:
            return export(model, args, kwargs, names)
        except Exception as error:
            failed = error
        try:
            self._plain(args, kwargs)
        except Exception as raised:
            raise self._raised(raised, args, kwargs) from raised
        try:
            program = export(model, args, kwargs, names, strict=True)
        except Exception:
            if self._options["capture"] == "export":
                raise CaptureError(
                    f"{self._subject.name} to be exported by torch.export",
                    f"the model runs but its export raised {one_line(failed)}",
                    "set the option capture to auto or dispatch",
                ) from failed
            self._fallback = f"captured by dispatch, since torch.export raised {one_line(failed)}"
            return None
        program.notes += (f"exported in strict mode, since otherwise {one_line(failed)}",)
        return program

    def _plain(self, args: Args, kwargs: Kwargs) -> Tree:
        """Run the model as it is, on copies of the inputs; a step has been run already."""
        if self._loop is not None:
            return self._loop.result()
        return self._undone(self._subject.plain, args, kwargs)

    def _undone(self, call: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tree:
        """Call the model on copies of the inputs, and undo what it does to its buffers."""
        with unchanged(self._subject.plain):
            torch.manual_seed(self._options["seed"])
            return call(*pytree.tree_map(cloned, args), **pytree.tree_map(cloned, kwargs))

    def _traced(
        self, args: Args, kwargs: Kwargs, recorder: Recorder | None, part: Part
    ) -> tuple[Program, Ledger, list[Any]]:
        """Record the model while it runs."""
        ledger = Ledger(Observed(), recorder)
        note_other_inputs((args, kwargs), self._subject.positional, ledger)
        seed = self._options["seed"]
        program, outputs = record_by_dispatch(
            self._subject, self._loop, (args, kwargs), ledger, seed, self._fallback
        )
        self._programs[key_of(args, kwargs, part)] = program
        return program, ledger, outputs

    def _captured(
        self,
        program: Program,
        ledger: Ledger,
        args: Args,
        kwargs: Kwargs,
        kind: Callable[..., Capture] = Capture,
    ) -> list[Any]:
        """Record the program node by node; gives the flattened final outputs."""
        note_other_inputs((args, kwargs), self._subject.positional, ledger)
        return record_by_nodes(
            program, ledger, self._subject, self._loop, (args, kwargs), self._options["seed"], kind
        )

    def _observed(
        self, program: Program, outputs: list[Any], args: Args, kwargs: Kwargs
    ) -> Observer:
        """Whether the plain model gives the same bits as the captured one."""
        found = observed(program.outputs, outputs, lambda: self._plain(args, kwargs))
        if self._loop is None or not found.equal:
            return found
        traced = program.module is None
        kept = self._loop.left_traced() if traced else self._loop.states
        return observed_states(kept, self._loop.left())
