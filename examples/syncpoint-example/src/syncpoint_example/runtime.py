"""The runtime `numpy-chain`: a .chain.json file of layers that NumPy computes in their order."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inputs.bind_inputs import bind
from syncpoint.runtimes.protocol import Inputs, InputSpec, Option


class ChainSession:
    """A model that is loaded and can be run."""

    def __init__(self, layers: list[dict[str, Any]], dtype: str) -> None:
        self._layers, self._dtype = layers, dtype

    def inputs(self) -> tuple[InputSpec, ...]:
        """The model has one input, called x."""
        return (InputSpec("x", dtype=self._dtype),)

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Compute the layers and record what each of them gives."""
        value = bind(inputs, self.inputs(), "the chain")[0]["x"]
        recorder.tensor(OpKey("x"), value, role=Role.MODEL_INPUT, name="x")
        edge = Edge(OpKey("x"), role=Role.MODEL_INPUT)
        for layer in self._layers:
            edges = [edge]
            if layer["type"] == "MatMul":
                weight = np.asarray(layer["weight"], DTYPES[self._dtype].numpy)
                parameter = OpKey(f"{layer['name']}.weight")
                recorder.tensor(parameter, weight, role=Role.PARAMETER, name=parameter.op)
                edges.append(Edge(parameter, role=Role.PARAMETER))
            value = value @ weight if layer["type"] == "MatMul" else np.maximum(value, 0)
            key = recorder.op(Op(OpKey(layer["name"]), layer["type"], tuple(edges)))
            recorder.tensor(key, value)
            edge = Edge(key)
        recorder.tensor(OpKey("y"), value, role=Role.MODEL_OUTPUT, name="y")
        recorder.facts(device="cpu", precision=self._dtype)


class ChainRuntime:
    """What Syncpoint asks of a runtime."""

    API = 1
    name = "numpy-chain"
    extra = ""

    def version(self) -> str | None:
        """Version of the engine; None where it is not installed."""
        return np.__version__

    def accepts(self, model: object) -> bool:
        """Whether this runtime can open the model; do not read the file for it."""
        return str(model).endswith(".chain.json")

    def options(self) -> tuple[Option, ...]:
        """The settings that `--set` takes."""
        return (Option("dtype", str, "f32", "element type to compute in", ("f16", "f32", "f64")),)

    def open(self, model: object, options: Mapping[str, Any]) -> ChainSession:
        """Load the model."""
        return ChainSession(json.loads(Path(str(model)).read_text()), options["dtype"])
