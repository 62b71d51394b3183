"""A compiled PyTorch model that can be run: as executed, op by op, or with values put in."""

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
from syncpoint.runtimes.inductor.capture import Buffers, OpByOp, Recording, Unfused, Wide
from syncpoint.runtimes.inductor.compile import Compilation, Listener
from syncpoint.runtimes.inductor.graph_calls import Watch, Watched
from syncpoint.runtimes.inductor.replay import Replacing, Replay
from syncpoint.runtimes.protocol import Array, EdgeValues, Inputs, Region, Replacement, Tree
from syncpoint.runtimes.torch.arrays import to_numpy
from syncpoint.runtimes.torch.captured_vs_plain import observed
from syncpoint.runtimes.torch.environment import environment
from syncpoint.runtimes.torch.evaluate import choose
from syncpoint.runtimes.torch.inputs import key_of
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.model_errors import OpFailed, place_of
from syncpoint.runtimes.torch.non_tensors import other_outputs
from syncpoint.runtimes.torch.program import Program
from syncpoint.runtimes.torch.session import TorchSession
from syncpoint.runtimes.torch.silence import silence_torch
from syncpoint.runtimes.torch.tree_paths import path_text


class InductorSession(TorchSession):
    """One model, compiled under one set of options. The model given is left as it was."""

    def __init__(self, subject: Subject, options: Mapping[str, Any]) -> None:
        super().__init__(subject, options)
        if subject.exported is not None or subject.script is not None:
            raise Unsupported(
                "an nn.Module to compile",
                "an exported program or TorchScript",
                "name the code that makes the model: file.py:attribute",
            )
        self._compilations: dict[Any, Compilation] = {}
        self._graphs: dict[Part, list[Program]] = {}
        """The programs that each part ran, one a graph."""

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture one execution, and compare its outputs with those of a plain compilation."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            self._say(recorder)
            self._recorded(args, kwargs, recorder, self._kind(), is_checked=True)

    def run_op_by_op(self, inputs: Inputs, recorder: Recorder) -> None:
        """Capture the ops of the compiled graphs, run one by one with eager kernels."""
        with self._in_effect():
            recorder.note("the ops of the compiled graph, run one by one with eager kernels")
            self._recorded(*self._bind(inputs), recorder, OpByOp)

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """The same with all floating-point arithmetic done in float64."""
        with self._in_effect():
            recorder.note("the ops of the compiled graph, run one by one in float64")
            self._recorded(*self._bind(inputs), recorder, Wide)

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Execute once; each buffer is recorded, then `value` is put in its place."""
        if self._kind() is not Buffers:
            raise Unsupported(
                "compiled code that is run as it is",
                "another way to run the graph",
                "use --introduced local",
            )
        with self._in_effect():
            kind = partial(Replay, value=value)
            self._recorded(*self._bind(inputs), recorder, kind)
        return {}

    def with_value(
        self, inputs: Inputs, key: TensorKey | None, value: Array | None
    ) -> list[Array | None]:
        """The flattened final outputs when one buffer holds another value; None leaves it."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            compilation = self._compilation(args, kwargs)
            watch = Replacing(self._watched(compilation), key, value)
            outputs = pytree.tree_leaves(self._call(compilation, args, kwargs, watch))
            return [to_numpy(out) if isinstance(out, torch.Tensor) else None for out in outputs]

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form: the model is compiled and run."""
        with self._in_effect():
            args, kwargs = self._bind(inputs)
            compilation = self._compilation(args, kwargs)
            watch = Watch(self._watched(compilation))
            self._call(compilation, args, kwargs, watch)
            self._graphs[part] = list(watch.programs.values())

    def _chosen(self, region: Region, inputs: EdgeValues) -> Program:
        known = self._graphs.get(region.part)
        if known is None:
            known = [program for programs in self._graphs.values() for program in programs]
        return choose(known, region, inputs, None)

    def _watched(self, compilation: Compilation) -> Watched:
        return Watched(self._subject.module, self._subject.positional, compilation, self._evaluator)

    def _kind(self) -> type[Recording]:
        if "eager" in (self._options["kernels"], self._options["backend"][-5:]):
            return OpByOp
        return Unfused if self._options["fusion"] == "unfused" else Buffers

    def _say(self, recorder: Recorder) -> None:
        if self._given_training and self._options["mode"] == "eval":
            recorder.note("the model was in training mode; it was captured in eval mode")
        device = self._subject.device.type
        if device != "cpu":
            recorder.note(
                f"not verified on this hardware: on {device} only buffers that torch's"
                " own intermediate hooks show were captured"
            )
        if self._options["kernels"] == "eager":
            recorder.note("the ops of the compiled graph, run one by one with eager kernels")

    def _compilation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compilation:
        """Compiled once for inputs of one form, and run once to have all graphs."""
        key = key_of(args, kwargs, self._options["mode"])
        found = self._compilations.get(key)
        if found is None or not found.valid:
            found = Compilation(self._subject.module, self._options)
            self._call(found, args, kwargs, None)
            self._compilations[key] = found
        return found

    def _call(
        self,
        compilation: Compilation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        listener: Listener | None,
    ) -> Tree:
        def call(*args: Any, **kwargs: Any) -> Tree:
            return compilation.run(args, kwargs, listener)

        try:
            return self._undone(call, args, kwargs)
        except SyncpointError:
            raise
        except OpFailed as failed:
            raise self._raised(_cause(failed), args, kwargs, place_of(failed.op)) from failed
        except Exception as error:
            inner = getattr(error, "inner_exception", None)
            if isinstance(inner, SyncpointError):
                raise inner from error
            try:
                self._plain(args, kwargs)
            except Exception as raised:
                raise self._raised(raised, args, kwargs) from raised
            raise CaptureError(
                f"{self._subject.name} to be compiled by torch.compile",
                f"the model runs but its compilation raised {one_line(inner or error)}",
            ) from error

    def _recorded(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        recorder: Recorder,
        kind: Callable[[Watched, Recorder], Recording],
        is_checked: bool = False,
    ) -> None:
        """Record one execution, and where `is_checked` compare it with a plain compilation."""
        recorder.facts(
            runtime="inductor",
            runtime_version=torch.__version__,
            options=self._options,
            device=str(self._subject.device),
            fusion="unfused" if kind in (OpByOp, Wide, Unfused) else "as-executed",
            compiled=True,
            environment=environment(),
        )
        compilation = self._compilation(args, kwargs)
        watch = kind(self._watched(compilation), recorder)
        result = self._call(compilation, args, kwargs, watch)
        self._graphs[recorder.part] = list(watch.programs.values())
        leaves = pytree.tree_flatten_with_path(result)[0]
        for position, (path, value) in enumerate(leaves):
            if isinstance(value, torch.Tensor):
                watch.model_output(position, value, path_text("out", path))
        if len(compilation.graphs) > 1:
            recorder.note(f"{len(compilation.graphs)} graphs: torch.compile broke the model up")
        if not compilation.graphs:
            recorder.note("torch.compile found no graph to compile: nothing was captured")
        names = [path_text("out", path) for path, _ in leaves]
        values = [value for _, value in leaves]
        self.conclude(
            recorder,
            watch.computed,
            (lambda: self._compared(args, kwargs, values)) if is_checked else None,
            other_outputs=other_outputs(names, values, recorder.part),
        )

    def _compared(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Any]
    ) -> Observer:
        """Whether the model, compiled as anybody would, gives the same bits."""
        compilation = self._compilation(args, kwargs)

        def plain() -> Tree:
            with silence_torch():
                return self._undone(compilation.plain, args, kwargs)

        names = [f"out[{position}]" for position in range(len(outputs))]
        return observed(names, outputs, plain)


def _cause(failed: OpFailed) -> Exception:
    cause = failed.__cause__
    assert isinstance(cause, Exception)
    return cause
