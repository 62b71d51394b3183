"""A PyTorch model that is loaded and can be run, whole or in pieces."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
from syncpoint.runtimes.loading import load_object, one_line
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec, Region, Tree
from syncpoint.runtimes.torch_capture import Capture, Ledger, OpFailed
from syncpoint.runtimes.torch_evaluate import Evaluator, choose
from syncpoint.runtimes.torch_program import Program, export, input_path, model_input
from syncpoint.runtimes.torch_tensors import (
    describe,
    dtype_name,
    same_bits,
    to_numpy,
    to_torch,
    torch_dtype,
)

_STATE = threading.RLock()
"""Threads, seed, default dtype and training mode are global in torch: one execution at a time."""


@dataclass
class _Totals:
    """What holds of all parts of a run together: one sample that differs is enough."""

    computed: Counter[str] = field(default_factory=Counter)
    observer: Observer = field(default_factory=lambda: Observer(True))


_TOTALS: WeakKeyDictionary[RunWriter, _Totals] = WeakKeyDictionary()


def open_session(model: object, options: Mapping[str, Any]) -> TorchSession:
    """The session of an nn.Module or of a `file.py:attribute` that gives one."""
    return TorchSession(*load_model(model), options)


def load_model(model: object) -> tuple[nn.Module, str]:
    """An nn.Module, given as it is or by `file.py:attribute`, and what to call it."""
    name = model if isinstance(model, str) else type(model).__qualname__
    found: Any = load_object(model) if isinstance(model, str) else model
    if not isinstance(found, nn.Module) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise CaptureError(
                f"{name} to return a model", f"it raised {one_line(error)}"
            ) from error
    if not isinstance(found, nn.Module):
        raise InputError(
            f"an nn.Module, or a function that returns one, in {name}",
            f"a {type(found).__qualname__}",
        )
    return found, name


class TorchSession:
    """One model under one set of options. The model given is left as it was."""

    def __init__(self, model: nn.Module, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._options = dict(options)
        self._dtype = torch_dtype(options["dtype"]) if options["dtype"] else None
        self._device = _device(options["device"])
        self._given_training = any(module.training for module in model.modules())
        self._model = self._adapted(model)
        self._programs: dict[Any, Program] = {}
        """By the signature of the inputs; the one used last comes last."""
        self._by_part: dict[Part, Program] = {}
        """The program that each part last ran."""
        self._evaluator = Evaluator()

    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model's forward takes; PyTorch says the names only."""
        parameters = inspect.signature(self._model.forward).parameters.values()
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
                device=str(self._device),
                environment=environment(),
            )
            if self._given_training and self._options["mode"] == "eval":
                recorder.note("the model was in training mode; it was captured in eval mode")
            program = self._program(args, kwargs)
            self._by_part[recorder.part] = program
            for note in program.notes:
                recorder.note(note)
            ledger = Ledger(program, recorder)
            outputs = self._captured(program, ledger, args, kwargs)
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
            program = self._program(args, kwargs)
            recorder.facts(
                runtime="torch",
                runtime_version=torch.__version__,
                options=self._options,
                device=str(self._device),
                precision="f64",
            )
            ledger = Ledger(program, recorder)
            leaves = pytree.tree_leaves((args, kwargs))
            given = {}
            for (name, path), value in zip(program.placeholders, leaves, strict=True):
                if isinstance(value, torch.Tensor):
                    ledger.tensor(model_input(name), value, name=path)
                    given[model_input(name)] = value
            results = self._evaluator.run_all(program, given, ledger)
            for position, (edge, value) in enumerate(results):
                if edge is not None and value is not None:
                    ledger.model_output(edge, position, value, program.outputs[position])

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form without running the model."""
        with self._in_effect():
            self._by_part[part] = self._program(*self._bind(inputs))

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

    def _adapted(self, model: nn.Module) -> nn.Module:
        """The model itself, or a copy where type or device must change."""
        tensors = [*model.parameters(), *model.buffers()]
        moves = any(t.device != self._device for t in tensors)
        casts = self._dtype is not None and any(
            t.is_floating_point() and t.dtype != self._dtype for t in tensors
        )
        if not moves and not casts:
            return model
        try:
            return copy.deepcopy(model).to(device=self._device, dtype=self._dtype)
        except Exception as error:
            raise CaptureError(
                f"{self.name} to be copied to {self._options['dtype'] or self._device}",
                f"it raised {one_line(error)}",
            ) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _STATE, torch.no_grad():
            yield

    @contextlib.contextmanager
    def _in_effect(self) -> Iterator[None]:
        """The options, for as long as something runs; everything is put back afterwards."""
        with _STATE, torch.random.fork_rng(devices=[]), torch.no_grad():
            threads = torch.get_num_threads()
            modes = {module: module.training for module in self._model.modules()}
            try:
                if self._options["threads"]:
                    torch.set_num_threads(self._options["threads"])
                if self._options["mode"] != "as-is":
                    self._model.train(self._options["mode"] == "train")
                torch.manual_seed(self._options["seed"])
                yield
            finally:
                torch.set_num_threads(threads)
                for module, training in modes.items():
                    module.training = training

    def _bind(self, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of forward as tensors of the right type, each with memory of its own."""
        positional = self._positional()
        if len(inputs.args) > len(positional) and not self._open_ended()[0]:
            raise InputError(
                f"at most {len(positional)} inputs by position for {self._signature()}",
                f"{len(inputs.args)}",
            )
        fitted = fit(inputs, self.inputs(), self._signature(), self._open_ended())
        seen: set[int] = set()

        def leaf(value: Tree) -> Tree:
            if isinstance(value, (np.ndarray, np.generic)):
                value = to_torch(np.asarray(value))
            if not isinstance(value, torch.Tensor):
                return value
            value = value.detach()
            cast = self._dtype if self._dtype is not None and value.is_floating_point() else None
            moved = value.to(device=self._device, dtype=cast)
            # Export takes one tensor given twice for one input.
            if moved.data_ptr() in seen:
                moved = moved.clone()
            seen.add(moved.data_ptr())
            return moved

        return (
            pytree.tree_map(leaf, fitted.args),
            pytree.tree_map(leaf, dict(fitted.kwargs)),
        )

    def _signature(self) -> str:
        text = str(inspect.signature(self._model.forward)).partition(" -> ")[0]
        return f"{type(self._model).__name__}.forward{text}"

    def _open_ended(self) -> tuple[bool, bool]:
        kinds = {p.kind for p in inspect.signature(self._model.forward).parameters.values()}
        return inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (str(spec), tuple(form(leaf) for leaf in leaves), self._model.training)
        program = self._programs.pop(key, None)
        if program is None:
            program = self._exported(args, kwargs)
        self._programs[key] = program
        return program

    def _positional(self) -> tuple[str, ...]:
        parameters = inspect.signature(self._model.forward).parameters.values()
        return tuple(
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        )

    def _exported(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
        """A new program. Where export fails: because of the inputs, the model, or by itself?"""
        names = self._positional()
        try:
            return export(self._model, args, kwargs, names)
        except Exception as error:
            failed = error
        try:
            self._plain(args, kwargs)
        except Exception as raised:
            raise self._raised(raised, args, kwargs) from raised
        try:
            program = export(self._model, args, kwargs, names, strict=True)
        except Exception:
            raise CaptureError(
                f"{self.name} to be exported by torch.export",
                f"the model runs but its export raised {one_line(failed)}",
                "export takes no branches on values: use torch.cond or capture a part of it",
            ) from failed
        program.notes += (f"exported in strict mode, since otherwise {one_line(failed)}",)
        return program

    def _raised(
        self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], op: str = ""
    ) -> InputError | CaptureError:
        """The error of a model that raised; what smells of ill-fitting inputs says so."""
        given = ", ".join(
            f"{name} {describe(value)}"
            for name, value in _named((args, kwargs), self._positional())
        )
        floats = {p.dtype for p in self._model.parameters() if p.is_floating_point()}
        for name, value in _named((args, kwargs), self._positional()):
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            if floats and value.dtype not in floats:
                return InputError(
                    f"{self._signature()} to be given floating-point inputs in "
                    + " or ".join(sorted(dtype_name(d) for d in floats)),
                    f"{name} {describe(value)}, and it raised {one_line(error)}",
                    "convert the input, or set the option dtype",
                )
        text = str(error).lower()
        if isinstance(error, (RuntimeError, IndexError)) and any(w in text for w in _ILL_FITTING):
            return InputError(
                f"inputs that fit {self._signature()}",
                f"{given}, with which it raised {one_line(error)}{op}",
            )
        return CaptureError(f"{self._signature()} to run on {given}", f"{one_line(error)}{op}")

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        """Run the model as it is."""
        return self._undone(self._model, args, kwargs)

    def _undone(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tree:
        """Call the model on copies of the inputs, and undo what it does to its buffers."""

        def own(value: Tree) -> Tree:
            return value.clone() if isinstance(value, torch.Tensor) else value

        before = {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        torch.manual_seed(self._options["seed"])
        try:
            return call(*pytree.tree_map(own, args), **pytree.tree_map(own, kwargs))
        finally:
            for name, buffer in self._model.named_buffers():
                if name in before and not same_bits(buffer, before[name]):
                    buffer.copy_(before[name])

    def _captured(
        self, program: Program, ledger: Ledger, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Run the program node by node; gives the flattened final outputs."""
        leaves = pytree.tree_leaves((args, kwargs))
        for (name, path), value in zip(program.placeholders, leaves, strict=True):
            if isinstance(value, torch.Tensor):
                ledger.tensor(model_input(name), value, name=path)
            elif value is not None:
                ledger.recorder.note(f"the input {path} was {value!r}: no tensor, not recorded")
        for edge, value in program.parameters():
            ledger.parameter(edge, value)
        torch.manual_seed(self._options["seed"])
        capture = Capture(ledger, program.module, program.edges)
        try:
            result = capture.run(*leaves, enable_io_processing=False)
        except OpFailed as failed:
            cause = failed.__cause__
            assert isinstance(cause, Exception)
            place = f" in the op {failed.key} ({failed.type})"
            place += f" at {failed.place}" if failed.place else ""
            raise self._raised(cause, args, kwargs, place) from cause
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
        try:
            plain = pytree.tree_leaves(self._plain(args, kwargs))
        except Exception as error:
            return Observer(False, f"the plain model raised {one_line(error)}")
        if len(plain) != len(outputs):
            return Observer(False, f"{len(plain)} outputs, {len(outputs)} when captured")
        for name, left, right in zip(program.outputs, outputs, plain, strict=True):
            detail = difference(left, right)
            if detail:
                return Observer(False, f"{name}: {detail}{self._fast_path(outputs, args, kwargs)}")
        return Observer(True)

    def _fast_path(self, outputs: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Whether a difference comes of the fused encoder that eager mode has and export not."""
        mha = torch.backends.mha
        if not mha.get_fastpath_enabled():
            return ""
        mha.set_fastpath_enabled(False)
        try:
            plain = pytree.tree_leaves(self._plain(args, kwargs))
        finally:
            mha.set_fastpath_enabled(True)
        if any(difference(*pair) for pair in zip(outputs, plain, strict=True)):
            return ""
        return "; equal without the fused encoder (torch.backends.mha.set_fastpath_enabled(False))"


_ILL_FITTING = ("shape", "size", "dimension", "channels", "dtype", "out of range", "expected")


def difference(captured: Tree, plain: Tree) -> str:
    """How two results differ, in words; "" where they have the same bits."""
    if not isinstance(captured, torch.Tensor) or not isinstance(plain, torch.Tensor):
        return "" if captured == plain else f"{plain!r}, {captured!r} when captured"
    if same_bits(captured, plain):
        return ""
    if captured.dtype != plain.dtype or captured.shape != plain.shape:
        return f"{describe(plain)}, {describe(captured)} when captured"
    left, right = (to_numpy(t).astype(np.complex128) for t in (captured, plain))
    differ = int(np.sum((left != right) & ~(np.isnan(left) & np.isnan(right))))
    with np.errstate(invalid="ignore"):
        greatest = float(np.nanmax(np.abs(left - right))) if differ else 0.0
    return f"{differ} of {left.size} elements differ, by at most {greatest:.3g}"


def form(leaf: Tree) -> Tree:
    """What a program depends on of one input."""
    if isinstance(leaf, torch.Tensor):
        return (leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()))
    return repr(leaf)


def _named(tree: Tree, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for path, value in pytree.tree_flatten_with_path(tree)[0]:
        yield input_path(path, names), value


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError("a device that torch can use", repr(name), one_line(error)) from None
    return torch.empty(0, device=device).device


def environment() -> dict[str, str]:
    """What a reader may want to know of the machine and its software."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": str(os.cpu_count() or 0),
        "threads": str(torch.get_num_threads()),
    }


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
