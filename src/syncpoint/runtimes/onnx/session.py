"""The Session of an ONNX model: runs it, replays it with values replaced (refused ops with reason),
evaluates it; instrumented graphs; observer check.

An extra output in the middle of a graph keeps ONNX Runtime from fusing the ops around it, and that
changes numbers: for int8 by far more than rounding. So the graph is first optimised and saved, as
for a plain run. The extra outputs are added to the saved graph, which runs without optimisation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from syncpoint.errors import SyncpointError, Unsupported
from syncpoint.run.model import WHOLE, Edge, Observer, OpKey, Part
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.environment import describe_environment
from syncpoint.runtimes.inputs.bind_inputs import bind
from syncpoint.runtimes.observer_check import check_outputs
from syncpoint.runtimes.onnx.arrays import to_numpy, to_ort
from syncpoint.runtimes.onnx.capture import OnnxCapture, OrtOutputs
from syncpoint.runtimes.onnx.evaluate import OnnxEvaluator
from syncpoint.runtimes.onnx.graph import OnnxGraph, sub_graphs
from syncpoint.runtimes.onnx.inputs import list_input_specs
from syncpoint.runtimes.onnx.instrument import Instrumented, open_instrumented
from syncpoint.runtimes.onnx.load_model import OnnxModel, ir_from_proto, load_model
from syncpoint.runtimes.onnx.open_in_onnxruntime import (
    has_more_casts,
    load_optimized,
    open_and_save_optimized,
    open_session,
    session_settings,
)
from syncpoint.runtimes.onnx.replay import IsolatedOps, OnnxReplay
from syncpoint.runtimes.protocol import (
    Array,
    EdgeValues,
    Inputs,
    InputSpec,
    Region,
    Replacement,
)
from syncpoint.runtimes.session import BaseSession, describe_failed_run
from syncpoint.supervision.scratch_folder import scratch_folder

_AS_EXECUTED = "as-executed"


class OnnxSession(BaseSession):
    """One model under one set of options."""

    def __init__(self, model: object, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._fused = options["fusion"] == _AS_EXECUTED
        self._source = load_model(model)
        self.name = self._source.name
        self._scratch = scratch_folder()
        self._shipped = self._open_plain(options["optimization"], save=self._fused)
        """The model as a user runs it with these options."""
        self._plain = self._shipped if self._fused else self._open_plain("disabled", save=True)
        """The graph that is recorded, without the outputs that recording adds."""
        original = self._source.build_graph()
        self._executed, self._folder = load_optimized(
            Path(self._scratch.name), self._source, self._shipped
        )
        if not self._fused and not has_more_casts(self._executed, self._source.proto):
            self._executed, self._folder = self._source.proto, self._source.folder
        self._graph = OnnxGraph(ir_from_proto(self._executed, self._folder), original)
        self._specs = list_input_specs(
            [v for v in original.graph.inputs if v.name],
            frozenset(original.graph.initializers),
        )
        self._instrumented, self._captured = self._open_instrumented()
        self._evaluator = OnnxEvaluator(self._graph)

    def inputs(self) -> tuple[InputSpec, ...]:
        """List the inputs that the graph declares; an open axis is -1."""
        return self._specs

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Session.run: capture one execution, then compare its outputs with a plain one."""
        feeds, notes = bind(inputs, self._specs, Path(self.name).name)
        recorder.facts(
            runtime="onnxruntime",
            runtime_version=ort.__version__,
            options=self._options,
            device="+".join(self._captured.get_providers()),
            fusion=self._options["fusion"],
            environment=describe_environment(onnxruntime=ort.__version__, onnx=onnx.__version__),
        )
        for note in notes:
            recorder.note(note)
        outputs = self._compute_all_values(feeds, recorder)
        capture = OnnxCapture(self._graph, outputs, recorder, self._captured.get_providers()[0])
        capture.record(feeds)
        self.conclude(
            recorder, capture.computed, lambda: self._check_observer(outputs, feeds, recorder)
        )
        if self._instrumented.hidden:
            recorder.note(
                f"{self._instrumented.hidden} ops inside sub-graphs were not recorded:"
                f" {', '.join(self._list_sub_graph_ops())}"
            )

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Session.replay: run the ops one by one; record each value, then replace it by `value`."""
        feeds, _ = bind(inputs, self._specs, Path(self.name).name)

        def run_model() -> OrtOutputs:
            return self._compute_all_values(feeds, recorder)

        isolated_ops = IsolatedOps(
            self._graph.model, feeds, self._open_unoptimized, cache(run_model)
        )
        provider = self._captured.get_providers()[0]
        replay = OnnxReplay(self._graph, isolated_ops, recorder, provider, value)
        replay.record(feeds)
        return replay.refused

    def value_of(self, edge: Edge) -> str | None:
        """Return the name of an edge's value in the graph; None where it has none."""
        value = self._graph.value(edge)
        return value.name if value is not None else None

    @property
    def source(self) -> OnnxModel:
        """The model as it was loaded."""
        return self._source

    def bind_inputs(self, inputs: Inputs) -> dict[str, Array]:
        """Return the arrays for the inputs that a model declares, by name."""
        return bind(inputs, self._specs, Path(self.name).name)[0]

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Do nothing: the graph is the same for inputs of any shape."""

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """Session.evaluate: compute a region's outputs, with all float arithmetic in `dtype`."""
        return self._evaluator.evaluate(region, inputs, dtype, parameter_dtype)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """List the parameters and constants that the region's ops read, each once."""
        return self._evaluator.parameters_of(region)

    def _compute_all_values(self, feeds: Mapping[str, Array], recorder: Recorder) -> OrtOutputs:
        try:
            values = self._run(self._captured, feeds)
        except SyncpointError as error:
            if not self._instrumented.exposed:
                raise
            # A loop may compute another shape in each iteration; such values cannot be stacked.
            self._instrumented, self._captured = self._open_instrumented(deep=False)
            values = self._run(self._captured, feeds)
            recorder.note(f"values inside sub-graphs were not recorded: {error.problem}")
        return OrtOutputs(values, self._instrumented.exposed)

    def _run(self, session: Any, feeds: Mapping[str, Array]) -> dict[str, Any]:
        names = [output.name for output in session.get_outputs()]
        ort_feeds = {name: to_ort(array) for name, array in feeds.items()}
        try:
            values = session.run_with_ort_values(names, ort_feeds)
        except Exception as error:
            raise describe_failed_run(self.name, feeds, error) from error
        return dict(zip(names, values, strict=True))

    def _check_observer(
        self, outputs: OrtOutputs, feeds: Mapping[str, Array], recorder: Recorder
    ) -> Observer:
        """Check whether the plain model computes the same bits as the captured one."""
        observer = check_outputs(_pair_outputs(outputs, self._run(self._plain, feeds)))
        if self._fused:
            return observer
        as_executed = check_outputs(_pair_outputs(outputs, self._run(self._shipped, feeds)))
        if observer.equal and not as_executed.equal:
            recorder.note(
                f"with optimization={self._options['optimization']} the model has other outputs"
                f" than the ops recorded here: {as_executed.detail}"
            )
        return observer

    def _open_plain(self, level: str, save: bool) -> Any:
        if save:
            return open_and_save_optimized(
                self._source, self._options, level, Path(self._scratch.name)
            )
        return open_session(self._source, self._options, session_settings(self._options, level))

    def _open_instrumented(self, deep: bool = True) -> tuple[Instrumented, Any]:
        top = self._graph.model.graph
        return open_instrumented(self._executed, top, self._folder, self._open_unoptimized, deep)

    def _open_unoptimized(self, model: onnx.ModelProto) -> Any:
        """Open a graph that is executed without optimisation."""
        source = OnnxModel(self.name, model, self._folder)
        return open_session(source, self._options, session_settings(self._options, "disabled"))

    def _list_sub_graph_ops(self) -> list[str]:
        """Name the ops that have sub-graphs, at most three of them."""
        nodes = [
            f"{n.op_type} {n.outputs[0].name}" for n in self._graph.nodes.values() if sub_graphs(n)
        ]
        return nodes if len(nodes) <= 3 else [*nodes[:3], f"{len(nodes) - 3} more"]


def _pair_outputs(
    captured: OrtOutputs, plain: Mapping[str, Any]
) -> Iterator[tuple[str, Array | None, Array]]:
    """Yield name, captured value and plain value of the outputs that are tensors."""
    for name, value in plain.items():
        with contextlib.suppress(Unsupported):
            yield name, captured.array(name), to_numpy(value)
