"""The Session of a compiled model: compiles it, chooses a capture, replays, and checks against the
plain model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, SyncpointError, Unsupported
from syncpoint.run.model import WHOLE, Observer, OpKey, Part, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.inductor.capture import (
    BufferCapture,
    Float64Capture,
    GraphRecording,
    OpByOpCapture,
    UnfusedCapture,
)
from syncpoint.runtimes.inductor.compile import Compilation, Listener
from syncpoint.runtimes.inductor.graph import GraphWatch, WatchedModel
from syncpoint.runtimes.inductor.replay import BufferReplay, ValueReplacement
from syncpoint.runtimes.protocol import Array, EdgeValues, Inputs, Region, Replacement, Tree
from syncpoint.runtimes.torch.arrays import to_numpy
from syncpoint.runtimes.torch.capture import describe_other_outputs
from syncpoint.runtimes.torch.environment import describe_torch_environment
from syncpoint.runtimes.torch.evaluate import choose_program
from syncpoint.runtimes.torch.export import input_signature
from syncpoint.runtimes.torch.load_model import LoadedModel
from syncpoint.runtimes.torch.model_errors import OpFailure, describe_op_location
from syncpoint.runtimes.torch.observer_check import compare_with_plain
from syncpoint.runtimes.torch.program import TorchProgram
from syncpoint.runtimes.torch.session import TorchSession
from syncpoint.runtimes.torch.silence import silence_torch
from syncpoint.runtimes.torch.tree_paths import path_text


class InductorSession(TorchSession):
    """One model, compiled under one set of options. The given model is not changed."""

    def __init__(self, loaded_model: LoadedModel, options: Mapping[str, Any]) -> None:
        super().__init__(loaded_model, options)
        if loaded_model.exported is not None or loaded_model.script is not None:
            raise Unsupported(
                "an exported program or TorchScript cannot be compiled by torch.compile",
                cure="give the code that makes the model: file.py:attribute",
            )
        self._compilations: dict[Any, Compilation] = {}
        self._programs_by_part: dict[Part, list[TorchProgram]] = {}
        """The programs that each part ran, one per graph."""

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture one execution, and compare its outputs with those of a plain compilation."""
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            self._add_notes(recorder)
            self._record(args, kwargs, recorder, self._capture_class(), is_checked=True)

    def run_op_by_op(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture the ops of the compiled graphs, run one by one with eager kernels."""
        with self._options_in_effect():
            recorder.note("the ops of the compiled graph, run one by one with eager kernels")
            self._record(*self._bind(inputs), recorder, OpByOpCapture)

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture the ops of the compiled graphs with all float arithmetic in float64."""
        with self._options_in_effect():
            recorder.note("the ops of the compiled graph, run one by one in float64")
            self._record(*self._bind(inputs), recorder, Float64Capture)

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Execute once; each buffer is recorded, then replaced by `value`."""
        if self._capture_class() is not BufferCapture:
            raise Unsupported(
                "replay needs the compiled code as it is, not backend=aot_eager, kernels=eager"
                " or fusion=unfused",
                cure="use --introduced local",
            )
        with self._options_in_effect():
            capture_class = partial(BufferReplay, value=value)
            self._record(*self._bind(inputs), recorder, capture_class)
        return {}

    def with_value(
        self, inputs: Inputs, key: TensorKey | None, value: Array | None
    ) -> list[Array | None]:
        """The flattened final outputs with one buffer replaced; a key of None replaces nothing."""
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            compilation = self._find_compilation(args, kwargs)
            watch = ValueReplacement(self._make_watched_model(compilation), key, value)
            outputs = pytree.tree_leaves(self._call_compiled(compilation, args, kwargs, watch))
            return [to_numpy(out) if isinstance(out, torch.Tensor) else None for out in outputs]

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form: the model is compiled and run."""
        with self._options_in_effect():
            args, kwargs = self._bind(inputs)
            compilation = self._find_compilation(args, kwargs)
            watch = GraphWatch(self._make_watched_model(compilation))
            self._call_compiled(compilation, args, kwargs, watch)
            self._programs_by_part[part] = list(watch.programs.values())

    def _choose_program(self, region: Region, inputs: EdgeValues) -> TorchProgram:
        programs = self._programs_by_part.get(region.part)
        if programs is None:
            programs = [
                program for programs in self._programs_by_part.values() for program in programs
            ]
        return choose_program(programs, region, inputs, None)

    def _make_watched_model(self, compilation: Compilation) -> WatchedModel:
        return WatchedModel(
            self._loaded_model.module, self._loaded_model.positional, compilation, self._evaluator
        )

    def _capture_class(self) -> type[GraphRecording]:
        if "eager" in (self._options["kernels"], self._options["backend"][-5:]):
            return OpByOpCapture
        return UnfusedCapture if self._options["fusion"] == "unfused" else BufferCapture

    def _add_notes(self, recorder: Recorder) -> None:
        if self._was_training and self._options["mode"] == "eval":
            recorder.note("the model was in training mode; it was captured in eval mode")
        device = self._loaded_model.device.type
        if device != "cpu":
            recorder.note(
                f"not verified on this hardware: on {device} only the buffers that torch's"
                " own intermediate hooks show were captured"
            )
        if self._options["kernels"] == "eager":
            recorder.note("the ops of the compiled graph, run one by one with eager kernels")

    def _find_compilation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compilation:
        """The compilation for inputs of this form; run once, so that all graphs are known."""
        key = input_signature(args, kwargs, self._options["mode"])
        compilation = self._compilations.get(key)
        if compilation is None or not compilation.is_valid:
            compilation = Compilation(self._loaded_model.module, self._options)
            self._call_compiled(compilation, args, kwargs, None)
            self._compilations[key] = compilation
        return compilation

    def _call_compiled(
        self,
        compilation: Compilation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        listener: Listener | None,
    ) -> Tree:
        def call(*args: Any, **kwargs: Any) -> Tree:
            return compilation.run(args, kwargs, listener)

        try:
            return self._call_and_restore(call, args, kwargs)
        except SyncpointError:
            raise
        except OpFailure as failed:
            raise self._make_model_error(
                _cause_of(failed), args, kwargs, describe_op_location(failed.op)
            ) from failed
        except Exception as error:
            inner = getattr(error, "inner_exception", None)
            if isinstance(inner, SyncpointError):
                raise inner from error
            try:
                self._run_plain(args, kwargs)
            except Exception as model_error:
                raise self._make_model_error(model_error, args, kwargs) from model_error
            raise CaptureError(
                f"torch.compile cannot compile {self._loaded_model.name}: the model runs but"
                f" its compilation raised {one_line(inner or error)}",
                cure="set backend=aot_eager, or use the runtime torch",
            ) from error

    def _record(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        recorder: Recorder,
        capture_class: Callable[[WatchedModel, Recorder], GraphRecording],
        is_checked: bool = False,
    ) -> None:
        """Record one execution; with `is_checked` compare it with a plain compilation."""
        recorder.facts(
            runtime="inductor",
            runtime_version=torch.__version__,
            options=self._options,
            device=str(self._loaded_model.device),
            fusion="unfused"
            if capture_class in (OpByOpCapture, Float64Capture, UnfusedCapture)
            else "as-executed",
            compiled=True,
            environment=describe_torch_environment(),
        )
        compilation = self._find_compilation(args, kwargs)
        watch = capture_class(self._make_watched_model(compilation), recorder)
        outputs_tree = self._call_compiled(compilation, args, kwargs, watch)
        self._programs_by_part[recorder.part] = list(watch.programs.values())
        leaves = pytree.tree_flatten_with_path(outputs_tree)[0]
        for position, (path, value) in enumerate(leaves):
            if isinstance(value, torch.Tensor):
                watch.model_output(position, value, path_text("out", path))
        if len(compilation.graphs) > 1:
            recorder.note(
                f"{len(compilation.graphs)} graphs: torch.compile split the model at graph breaks"
            )
        if not compilation.graphs:
            recorder.note("torch.compile found no graph to compile: nothing was captured")
        names = [path_text("out", path) for path, _ in leaves]
        values = [value for _, value in leaves]
        self.conclude(
            recorder,
            watch.computed,
            (lambda: self._compare_with_plain(args, kwargs, values)) if is_checked else None,
            other_outputs=describe_other_outputs(names, values, recorder.part),
        )

    def _compare_with_plain(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Any]
    ) -> Observer:
        """Check that the model, compiled without hooks, gives the same bits."""
        compilation = self._find_compilation(args, kwargs)

        def plain() -> Tree:
            with silence_torch():
                return self._call_and_restore(compilation.plain, args, kwargs)

        names = [f"out[{position}]" for position in range(len(outputs))]
        return compare_with_plain(names, outputs, plain)


def _cause_of(failed: OpFailure) -> Exception:
    cause = failed.__cause__
    assert isinstance(cause, Exception)
    return cause
