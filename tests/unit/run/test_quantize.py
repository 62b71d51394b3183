"""Real numbers on a grid, against ONNX Runtime's own QuantizeLinear."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from syncpoint.errors import Unsupported
from syncpoint.run.model import Quantization
from syncpoint.run.quantize import quantize_values


def by_onnxruntime(x, scale, zero, axis):
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize("axis", [None, 1])
def test_the_integers_are_those_of_quantize_linear(dtype, axis):
    generator = np.random.default_rng(0)
    x = (20 * generator.standard_normal((4, 3, 50))).astype(np.float32)
    x.flat[:4] = (1e9, -1e9, 0.125, 0.375)  # out of range, and halves
    scale = np.array([0.25, 0.5, 2.0], np.float32) if axis else np.float32(0.25)
    zero = np.array([0, 3, 7], dtype) if axis else np.array(5, dtype)
    meaning = Quantization(
        tuple(np.atleast_1d(scale).tolist()), tuple(np.atleast_1d(zero).tolist()), axis
    )
    found = quantize_values(x, meaning, np.dtype(dtype), "x")
    assert found.dtype == dtype
    assert (found == by_onnxruntime(x, scale, zero, axis or 1)).all()


def test_a_table_is_refused():
    with pytest.raises(Unsupported, match="w is quantized with a look-up table"):
        quantize_values(
            np.zeros(3), Quantization((1.0,), table=(0.0, 1.0)), np.dtype(np.uint8), "w"
        )
