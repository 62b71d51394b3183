"""An ONNX model that is loaded and can be run by ONNX Runtime, whole or in pieces.

Asking ONNX Runtime for a value in the middle of a graph keeps it from fusing the ops around it,
and that changes numbers: for int8 by far more than rounding. So the graph is optimised first, as
for a plain run, and saved; the values are asked of the saved graph, which is then run as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from syncpoint.errors import CaptureError, SyncpointError, Unsupported
from syncpoint.run.model import WHOLE, Edge, Observer, OpKey, Part
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.environment import describe_environment
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.inputs.bind_inputs import bind
from syncpoint.runtimes.observer_check import check_outputs
from syncpoint.runtimes.onnx.arrays import to_numpy, to_ort
from syncpoint.runtimes.onnx.capture import Capture, Results
from syncpoint.runtimes.onnx.evaluate import Evaluator
from syncpoint.runtimes.onnx.graph import Graph, sub_graphs
from syncpoint.runtimes.onnx.inference_session import open_session, session_settings
from syncpoint.runtimes.onnx.inputs import declared
from syncpoint.runtimes.onnx.instrument import Instrumented, open_instrumented
from syncpoint.runtimes.onnx.load_model import Source, from_proto, load
from syncpoint.runtimes.onnx.optimized_graph import (
    has_more_casts,
    load_optimized,
    open_and_save_optimized,
)
from syncpoint.runtimes.onnx.replay import Alone, Replay
from syncpoint.runtimes.protocol import (
    Array,
    EdgeValues,
    Inputs,
    InputSpec,
    Region,
    Replacement,
)
from syncpoint.runtimes.session import BaseSession
from syncpoint.supervision.scratch_folder import scratch_folder

_AS_EXECUTED = "as-executed"


class OnnxSession(BaseSession):
    """One model under one set of options."""

    def __init__(self, model: object, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._fused = options["fusion"] == _AS_EXECUTED
        self._source = load(model)
        self.name = self._source.name
        self._keep = scratch_folder()
        self._shipped = self._open_plain(options["optimization"], save=self._fused)
        """The model as anyone would run it under these options."""
        self._plain = self._shipped if self._fused else self._open_plain("disabled", save=True)
        """What is recorded here, run without anybody asking for values."""
        original = self._source.graph()
        self._executed, self._folder = load_optimized(
            Path(self._keep.name), self._source, self._shipped
        )
        if not self._fused and not has_more_casts(self._executed, self._source.proto):
            self._executed, self._folder = self._source.proto, self._source.folder
        self._graph = Graph(from_proto(self._executed, self._folder), original)
        self._specs = declared(
            [v for v in original.graph.inputs if v.name],
            frozenset(original.graph.initializers),
        )
        self._instrumented, self._captured = self._open_instrumented()
        self._evaluator = Evaluator(self._graph)

    def inputs(self) -> tuple[InputSpec, ...]:
        """What the graph declares; an axis it leaves open is -1."""
        return self._specs

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Record one execution, then run the model plainly and compare the final outputs."""
        given, notes = bind(inputs, self._specs, Path(self.name).name)
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
        results = self._results(given, recorder)
        capture = Capture(self._graph, results, recorder, self._captured.get_providers()[0])
        capture.record(given)
        self.conclude(recorder, capture.computed, lambda: self._observed(results, given, recorder))
        if self._instrumented.hidden:
            recorder.note(
                f"{self._instrumented.hidden} ops inside sub-graphs were not recorded:"
                f" {', '.join(self._holders())}"
            )

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Run the ops one by one; each value is recorded, then `value` is put in its place."""
        given, _ = bind(inputs, self._specs, Path(self.name).name)

        def whole() -> Results:
            return self._results(given, recorder)

        alone = Alone(self._graph.model, given, self._open_unoptimized, cache(whole))
        provider = self._captured.get_providers()[0]
        replay = Replay(self._graph, alone, recorder, provider, value)
        replay.record(given)
        return replay.refused

    def value_of(self, edge: Edge) -> str | None:
        """The name in the graph of the value that an edge means; None where it has none."""
        value = self._graph.value(edge)
        return value.name if value is not None else None

    @property
    def source(self) -> Source:
        """The model as it was given."""
        return self._source

    def fed(self, inputs: Inputs) -> dict[str, Array]:
        """The arrays that a model with these inputs is given, by name."""
        return bind(inputs, self._specs, Path(self.name).name)[0]

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Nothing to do: the graph is the same for inputs of any form."""

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs with all floating-point arithmetic done in `dtype`."""
        return self._evaluator.evaluate(region, inputs, dtype, parameter_dtype)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """The parameters and constants that the region's ops read, each once."""
        return self._evaluator.parameters_of(region)

    def _results(self, given: Mapping[str, Array], recorder: Recorder) -> Results:
        try:
            values = self._run(self._captured, given)
        except SyncpointError as error:
            if not self._instrumented.exposed:
                raise
            # A loop may give values of another shape in each round, which cannot be stacked.
            self._instrumented, self._captured = self._open_instrumented(deep=False)
            values = self._run(self._captured, given)
            recorder.note(f"values inside sub-graphs cannot be had: {error.found}")
        return Results(values, self._instrumented.exposed)

    def _run(self, session: Any, given: Mapping[str, Array]) -> dict[str, Any]:
        names = [output.name for output in session.get_outputs()]
        feeds = {name: to_ort(array) for name, array in given.items()}
        try:
            found = session.run_with_ort_values(names, feeds)
        except Exception as error:
            fed = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in given.items())
            raise CaptureError(f"{self.name} to run on {fed}", one_line(error)) from error
        return dict(zip(names, found, strict=True))

    def _observed(
        self, results: Results, given: Mapping[str, Array], recorder: Recorder
    ) -> Observer:
        """Whether the plain model gives the same bits as the captured one."""
        observer = check_outputs(_paired_outputs(results, self._run(self._plain, given)))
        if self._fused:
            return observer
        shipped = self._run(self._shipped, given)
        as_executed = check_outputs(_paired_outputs(results, shipped))
        if observer.equal and not as_executed.equal:
            recorder.note(
                "the model as it is executed, with optimization="
                f"{self._options['optimization']}, gives other outputs than the ops recorded here:"
                f" {as_executed.detail}"
            )
        return observer

    def _open_plain(self, level: str, save: bool) -> Any:
        if save:
            return open_and_save_optimized(
                self._source, self._options, level, Path(self._keep.name)
            )
        return open_session(self._source, self._options, session_settings(self._options, level))

    def _open_instrumented(self, deep: bool = True) -> tuple[Instrumented, Any]:
        top = self._graph.model.graph
        return open_instrumented(self._executed, top, self._folder, self._open_unoptimized, deep)

    def _open_unoptimized(self, model: onnx.ModelProto) -> Any:
        """Open a graph that is executed as it is written."""
        source = Source(self.name, model, self._folder)
        return open_session(source, self._options, session_settings(self._options, "disabled"))

    def _holders(self) -> list[str]:
        nodes = [
            f"{n.op_type} {n.outputs[0].name}" for n in self._graph.nodes.values() if sub_graphs(n)
        ]
        return nodes if len(nodes) <= 3 else [*nodes[:3], f"{len(nodes) - 3} more"]


def _paired_outputs(
    results: Results, plain: Mapping[str, Any]
) -> Iterator[tuple[str, Array | None, Array]]:
    """Name, captured and plain value of the outputs that are tensors."""
    for name, value in plain.items():
        with contextlib.suppress(Unsupported):
            yield name, results.array(name), to_numpy(value)
