"""Cut an ONNX model at chosen values and run or save the cut model, as bisection needs.

The graph of the file is cut, then optimised by ONNX Runtime with the user's options. Only its
final outputs are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from syncpoint.errors import CaptureError, InputError
from syncpoint.files.outputs import output_files
from syncpoint.run.model import Edge, Part
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.arrays import to_numpy, to_ort
from syncpoint.runtimes.onnx.load_model import OnnxModel
from syncpoint.runtimes.onnx.open_in_onnxruntime import open_session, session_settings
from syncpoint.runtimes.onnx.session import OnnxSession
from syncpoint.runtimes.protocol import Array, Inputs


class OnnxCutter:
    """Cuts one model; the guide is a session with the ops of its file."""

    def __init__(self, guide: OnnxSession, options: Mapping[str, Any]) -> None:
        self._session = guide
        self._options = options

    def run(self, edges: Sequence[Edge], inputs: Inputs, part: Part) -> list[Array | None]:
        """Compute the values of these edges as outputs of a cut model; None for non-tensors."""
        names = self._value_names(edges)
        cut_model = self._cut(names)
        settings = session_settings(self._options, self._options["optimization"])
        session = open_session(cut_model, self._options, settings)
        input_names = {value.name for value in session.get_inputs()}
        arrays = self._session.bind_inputs(inputs)
        feeds = {name: to_ort(array) for name, array in arrays.items() if name in input_names}
        try:
            values = session.run_with_ort_values(names, feeds)
        except Exception as error:
            raise CaptureError(f"the cut model failed: {one_line(error)}") from error
        return [to_numpy(value) if value.is_tensor() else None for value in values]

    def save(self, edges: Sequence[Edge], inputs: Inputs, part: Part, path: Path) -> Path:
        """Save the cut model, with its weights inside or in a file beside it; returns its path."""
        cut_model = self._cut(self._value_names(edges))
        model_path = path.with_suffix(".onnx")
        weights_name = f"{model_path.name}.data" if cut_model.folder else None
        with output_files(model_path) as folder:
            graph = cut_model.build_graph()
            ir.save(graph, folder / model_path.name, external_data=weights_name)
        return model_path

    def _value_names(self, edges: Sequence[Edge]) -> list[str]:
        names = [self._session.value_of(edge) for edge in edges]
        if not all(names):
            missing = edges[names.index(next(name for name in names if not name))]
            raise InputError(
                f"the model cannot be cut at '{missing.op}', because that is no value of its top"
                " level: it is inside a subgraph (If, Loop, Scan) or not in the file",
                cure="choose an op of the top level; 'syncpoint inspect RUN' lists them",
            )
        return [name for name in names if name]

    def _cut(self, names: Sequence[str]) -> OnnxModel:
        """Cut the model of the file so that it ends at these values."""
        source = self._session.source
        model = source.build_graph()
        values = {v.name: v for v in model.graph.inputs}
        for node in model.graph:
            values |= {v.name: v for v in node.outputs}
        missing = [name for name in names if name not in values]
        if missing:
            raise InputError(
                f"the model cannot be cut at '{missing[0]}', because ONNX Runtime added it to the"
                " graph",
                cure="cut at another op, or capture with fusion=unfused",
            )
        model.graph.outputs[:] = [values[name] for name in names]
        proto: onnx.ModelProto = ir.to_proto(RemoveUnusedNodesPass()(model).model)
        with contextlib.suppress(Exception):
            # Outputs should declare their type, which inner values need not. ONNX Runtime infers
            # it where this fails.
            proto = onnx.shape_inference.infer_shapes(proto)
        return OnnxModel(source.name, proto, source.folder)
