"""A PyTorch model that is loaded and can be run, whole or in pieces."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, InputError
from syncpoint.run.model import WHOLE, Edge, Observer, OpKey, Part
from syncpoint.run.recorder import Recorder
from syncpoint.run.writer import RunWriter
from syncpoint.runtimes.inputs import fit
from syncpoint.runtimes.loading import one_line
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec, Region, Tree
from syncpoint.runtimes.torch_capture import Capture
from syncpoint.runtimes.torch_environment import environment
from syncpoint.runtimes.torch_evaluate import Evaluator, choose
from syncpoint.runtimes.torch_exporting import export, program_of
from syncpoint.runtimes.torch_ledger import Ledger, OpFailed, place_of
from syncpoint.runtimes.torch_modules import python_stack
from syncpoint.runtimes.torch_observer import observed
from syncpoint.runtimes.torch_program import Observed, Program, input_path, model_input
from syncpoint.runtimes.torch_subject import Subject, subject_of
from syncpoint.runtimes.torch_tensors import describe, dtype_name, same_bits, to_torch
from syncpoint.runtimes.torch_trace import Tracer

_STATE = threading.RLock()
"""Threads, seed, default dtype and training mode are global in torch: one execution at a time."""


@dataclass
class _Totals:
    """What holds of all parts of a run together: one sample that differs is enough."""

    computed: Counter[str] = field(default_factory=Counter)
    observer: Observer = field(default_factory=lambda: Observer(True))


_TOTALS: WeakKeyDictionary[RunWriter, _Totals] = WeakKeyDictionary()


def open_session(model: object, options: Mapping[str, Any]) -> TorchSession:
    """The session of a model, of a file that holds one, or of a `file.py:attribute`."""
    return TorchSession(subject_of(model, options), options)


class TorchSession:
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

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture one execution, then run the model plainly and compare the final outputs."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            recorder.facts(
                runtime="torch",
                runtime_version=torch.__version__,
                options=self._options,
                device=str(self._subject.device),
                environment=environment(),
            )
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
            totals = _TOTALS.setdefault(recorder.writer, _Totals())
            totals.computed.update(ledger.computed)
            if totals.observer.equal:
                totals.observer = self._observed(program, outputs, args, kwargs)
            recorder.facts(
                precision="+".join(name for name, _ in totals.computed.most_common()),
                observer=totals.observer,
            )

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """Record one execution with all floating-point arithmetic done in float64, whatever the
        model says: casts and types given as arguments too."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            recorder.facts(
                runtime="torch",
                runtime_version=torch.__version__,
                options=self._options,
                device=str(self._subject.device),
                precision="f64",
            )
            program = self._program(args, kwargs)
            if program is None:
                program, _, _ = self._traced(args, kwargs, None, recorder.part)
            ledger = Ledger(Observed(), recorder)
            leaves = pytree.tree_leaves((args, kwargs))
            given = {}
            for (name, path), value in zip(program.placeholders, leaves, strict=True):
                if isinstance(value, torch.Tensor):
                    ledger.tensor(model_input(name), value, name=path)
                    given[model_input(name)] = value
            results = self._evaluator.run_all(program, given, ledger)
            for position, (edge, value) in enumerate(results):
                if edge is not None and isinstance(value, torch.Tensor):
                    ledger.model_output(edge, position, value, program.outputs[position])

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form without recording anything.

        The model is run only where it cannot be exported.
        """
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            program = self._program(args, kwargs)
            if program is None:
                program, _, _ = self._traced(args, kwargs, None, part)
            self._by_part[part] = program

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None = None,
    ) -> Sequence[Array | None]:
        """The region's outputs with all floating-point arithmetic done in `dtype`."""
        # Nodes of the graph run here, no modules: their mode and the seed play no part.
        with self._locked():
            program = self._chosen(region, inputs)
            return self._evaluator.evaluate(program, region, inputs, dtype, parameter_dtype)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """The parameters, buffers and constants that the region's ops read, each once."""
        return self._evaluator.parameters_of(self._chosen(region, {}), region)

    def _chosen(self, region: Region, inputs: Mapping[Edge, Array]) -> Program:
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

    def _bind(self, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of forward as tensors of the right type, each with memory of its own."""
        subject = self._subject
        positional = subject.positional
        if len(inputs.args) > len(positional) and not self._open_ended()[0]:
            raise InputError(
                f"at most {len(positional)} inputs by position for {subject.title}",
                f"{len(inputs.args)}",
            )
        fitted = fit(inputs, self.inputs(), subject.title, self._open_ended())
        seen: set[int] = set()

        def leaf(value: Tree) -> Tree:
            if isinstance(value, (np.ndarray, np.generic)):
                value = to_torch(np.asarray(value))
            if not isinstance(value, torch.Tensor):
                return value
            value = value.detach()
            moved = value.to(
                device=subject.device, dtype=subject.dtype if value.is_floating_point() else None
            )
            # Export takes one tensor given twice for one input.
            if moved.data_ptr() in seen:
                moved = moved.clone()
            seen.add(moved.data_ptr())
            return moved

        args = pytree.tree_map(leaf, fitted.args)
        kwargs = pytree.tree_map(leaf, dict(fitted.kwargs))
        return self._as_exported(args, kwargs) if subject.exported is not None else (args, kwargs)

    def _as_exported(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs in the structure that an exported program insists on."""
        assert self._subject.exported is not None
        bound = self._subject.signature.bind(*args, **kwargs)
        wanted = self._subject.exported.call_spec.in_spec
        leaves, found = pytree.tree_flatten((bound.args, bound.kwargs))
        if found != wanted:
            # A recorded run gives tuples for lists and the like.
            names = [p for p, _ in _named((bound.args, bound.kwargs), self._subject.positional)]
            places = pytree.tree_unflatten(list(range(wanted.num_leaves)), wanted)
            if names != [p for p, _ in _named(places, self._subject.positional)]:
                raise InputError(
                    f"inputs in the structure that {self._subject.title} was exported with",
                    ", ".join(names),
                )
        made: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(leaves, wanted)
        return made

    def _open_ended(self) -> tuple[bool, bool]:
        kinds = {p.kind for p in self._subject.signature.parameters.values()}
        return (
            inspect.Parameter.VAR_POSITIONAL in kinds,
            inspect.Parameter.VAR_KEYWORD in kinds,
        )

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program | None:
        """The program for inputs of this form; None where the model is recorded as it runs."""
        if self._fallback:
            return None
        key = key_of(args, kwargs, self._options["mode"])
        program = self._programs.pop(key, None)
        if program is None:
            exported = self._subject.exported is not None
            program = self._given(args, kwargs) if exported else self._exported(args, kwargs)
        if program is not None:
            self._programs[key] = program
        return program

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
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

    def _exported(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program | None:
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

    def _raised(
        self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], op: str = ""
    ) -> InputError | CaptureError:
        """The error of a model that raised; what smells of ill-fitting inputs says so."""
        given = ", ".join(
            f"{name} {describe(value)}"
            for name, value in _named((args, kwargs), self._subject.positional)
        )
        floats = {p.dtype for p in self._subject.plain.parameters() if p.is_floating_point()}
        for name, value in _named((args, kwargs), self._subject.positional):
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            if floats and value.dtype not in floats:
                return InputError(
                    f"{self._subject.title} to be given floating-point inputs in "
                    + " or ".join(sorted(dtype_name(d) for d in floats)),
                    f"{name} {describe(value)}, and it raised {one_line(error)}",
                    "convert the input, or set the option dtype",
                )
        text = str(error).lower()
        misfit = isinstance(error, (RuntimeError, IndexError)) and any(
            word in text for word in _ILL_FITTING
        )
        # What an exported program says of sizes it was not exported for.
        if misfit or (isinstance(error, AssertionError) and text.startswith("guard failed")):
            return InputError(
                f"inputs that fit {self._subject.title}",
                f"{given}, with which it raised {one_line(error)}{op}",
            )
        return CaptureError(f"{self._subject.title} to run on {given}", f"{one_line(error)}{op}")

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        """Run the model as it is, on copies of the inputs."""
        return self._undone(self._subject.plain, args, kwargs)

    def _undone(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tree:
        """Call the model on copies of the inputs, and undo what it does to its buffers."""
        with _unchanged(self._subject.plain):
            torch.manual_seed(self._options["seed"])
            return call(*pytree.tree_map(_copied, args), **pytree.tree_map(_copied, kwargs))

    def _traced(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder | None, part: Part
    ) -> tuple[Program, Ledger, list[Any]]:
        """Record the model while it runs."""
        subject, model = self._subject, self._subject.module
        ledger = Ledger(Observed(), recorder)
        self._tell_of_numbers(args, kwargs, ledger)
        stack = python_stack if subject.script is None else subject.script.here
        tracer = Tracer(model, ledger, stack)
        paths = [path for path, _ in _named((args, kwargs), subject.positional)]
        with _unchanged(model), _unoptimised() if subject.script else contextlib.nullcontext():
            torch.manual_seed(self._options["seed"])
            try:
                result = tracer.run(
                    pytree.tree_map(_copied, args), pytree.tree_map(_copied, kwargs), paths
                )
            except Exception as error:
                cause, place = tracer.cause_of(error)
                raise self._raised(cause, args, kwargs, place) from error
            notes: tuple[str, ...] = (f"{self._fallback}: {_BELOW}",)
            if subject.script is not None and tracer.unplaced:
                notes += (
                    f"the module of {tracer.unplaced} of {tracer.ops} ops is not known: a line of"
                    " the script calls several modules of one class",
                )
            program, outputs = tracer.program(result, notes)
            # The outputs may be memory of the model, which is put back.
            outputs = pytree.tree_map(_copied, outputs)
        self._programs[key_of(args, kwargs, part)] = program
        return program, ledger, outputs

    def _tell_of_numbers(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ledger: Ledger
    ) -> None:
        for path, value in _named((args, kwargs), self._subject.positional):
            if value is not None and not isinstance(value, torch.Tensor):
                ledger.note(f"the input {path} was {value!r}: no tensor, not recorded")

    def _captured(
        self, program: Program, ledger: Ledger, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Run the program node by node; gives the flattened final outputs."""
        leaves = pytree.tree_leaves((args, kwargs))
        self._tell_of_numbers(args, kwargs, ledger)
        for (name, path), value in zip(program.placeholders, leaves, strict=True):
            if isinstance(value, torch.Tensor):
                ledger.tensor(model_input(name), value, name=path)
        for edge, value in program.parameters():
            ledger.parameter(edge, value)
        torch.manual_seed(self._options["seed"])
        assert program.module is not None
        capture = Capture(ledger, program, program.module, program.edges)
        try:
            result = capture.run(*leaves, enable_io_processing=False)
        except OpFailed as failed:
            cause = failed.__cause__
            assert isinstance(cause, Exception)
            raise self._raised(cause, args, kwargs, place_of(failed.op)) from cause
        outputs = pytree.tree_leaves(result)
        for position, value in enumerate(outputs):
            made_by = capture.results[position]
            if isinstance(value, torch.Tensor) and made_by is not None:
                ledger.model_output(made_by, position, value, program.outputs[position])
        return outputs

    def _observed(
        self, program: Program, outputs: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Observer:
        """Whether the plain model gives the same bits as the captured one."""
        return observed(program.outputs, outputs, lambda: self._plain(args, kwargs))


_BELOW = "ops are those below autograd, a linear layer is t and addmm"
_ILL_FITTING = ("shape", "size", "dimension", "channels", "dtype", "out of range", "expected")


@contextlib.contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Undo what a run does to the buffers of a model."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            if name in kept and not same_bits(buffer, kept[name]):
                buffer.copy_(kept[name])


@contextlib.contextmanager
def _unoptimised() -> Iterator[None]:
    """Let TorchScript run op by op: what it fuses, nobody sees."""
    before = torch._C._get_graph_executor_optimize()
    torch._C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before)


def _copied(value: Tree) -> Tree:
    return value.clone() if isinstance(value, torch.Tensor) else value


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any], more: Tree) -> Tree:
    """What a program depends on of its inputs."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return (str(spec), tuple(_form(leaf) for leaf in leaves), more)


def _form(leaf: Tree) -> Tree:
    """What a program depends on of one input."""
    if isinstance(leaf, torch.Tensor):
        return (leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()))
    return repr(leaf)


def _named(tree: Tree, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for path, value in pytree.tree_flatten_with_path(tree)[0]:
        yield input_path(path, names), value
