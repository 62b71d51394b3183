"""An ONNX model that ends at a chosen value, run as the black box that the whole one is.

The model is cut in the form it has in its file and then handed to ONNX Runtime with all the
rewriting that was asked for; only what it gives in the end is read.
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
from syncpoint.runtimes.onnx.inference_session import open_session, session_settings
from syncpoint.runtimes.onnx.load_model import Source
from syncpoint.runtimes.onnx.session import OnnxSession
from syncpoint.runtimes.protocol import Array, Inputs


class OnnxCutter:
    """Cuts one model; the guide is a run of its ops as the file has them."""

    def __init__(self, guide: OnnxSession, options: Mapping[str, Any]) -> None:
        self._session = guide
        self._options = options

    def run(self, edges: Sequence[Edge], inputs: Inputs, part: Part) -> list[Array | None]:
        """What the model gives when it ends in these values; None for what is no tensor."""
        names = self._names(edges)
        source = self._cut(names)
        settings = session_settings(self._options, self._options["optimization"])
        opened = open_session(source, self._options, settings)
        taken = {value.name for value in opened.get_inputs()}
        feeds = {n: to_ort(a) for n, a in self._session.fed(inputs).items() if n in taken}
        try:
            found = opened.run_with_ort_values(names, feeds)
        except Exception as error:
            raise CaptureError("the cut model to run", one_line(error)) from error
        return [to_numpy(value) if value.is_tensor() else None for value in found]

    def save(self, edges: Sequence[Edge], inputs: Inputs, part: Part, path: Path) -> Path:
        """Keep the cut model, with its weights in it or beside it."""
        source = self._cut(self._names(edges))
        made = path.with_suffix(".onnx")
        data = f"{made.name}.data" if source.folder else None
        with output_files(made) as folder:
            ir.save(source.graph(), folder / made.name, external_data=data)
        return made

    def _names(self, edges: Sequence[Edge]) -> list[str]:
        found = [self._session.value_of(edge) for edge in edges]
        if not all(found):
            raise InputError("a value at the top of the graph", "one that it does not have")
        return [name for name in found if name]

    def _cut(self, names: Sequence[str]) -> Source:
        whole = self._session.source
        model = whole.graph()
        values = {v.name: v for v in model.graph.inputs}
        for node in model.graph:
            values |= {v.name: v for v in node.outputs}
        missing = [name for name in names if name not in values]
        if missing:
            raise InputError("a value of the file", f"{missing[0]}, which ONNX Runtime added")
        model.graph.outputs[:] = [values[name] for name in names]
        proto: onnx.ModelProto = ir.to_proto(RemoveUnusedNodesPass()(model).model)
        with contextlib.suppress(Exception):
            # Outputs should say their type, which values in the middle of a graph need not; ONNX
            # Runtime finds it out itself where this cannot.
            proto = onnx.shape_inference.infer_shapes(proto)
        return Source(whole.name, proto, whole.folder)
