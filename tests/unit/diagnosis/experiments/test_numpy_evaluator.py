"""Pieces of a recorded model by our own ops, and variants named without any model."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from onnx import TensorProto, helper, numpy_helper

import syncpoint as sp
from syncpoint.diagnosis.experiments.numpy_evaluator import NumpyEvaluator
from syncpoint.errors import Unsupported
from syncpoint.run.model import Edge, TensorKey
from syncpoint.runtimes.protocol import Region


class Net(torch.nn.Module):
    def __init__(self, bias=True, slope=0.1):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear = torch.nn.Linear(8 * 16, 10)
        self.bias, self.slope = bias, slope

    def forward(self, x):
        bias = self.conv.bias if self.bias else None
        x = F.leaky_relu(self.norm(F.conv2d(x, self.conv.weight, bias, padding=1)), self.slope)
        x = F.max_pool2d(x, 2)
        return self.linear(x.flatten(1)).softmax(-1)


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def every_op(run):
    """Each op alone: (op, what it gives by our own, what was recorded)."""
    evaluator = NumpyEvaluator(run)
    for op in run.ops:
        fed = {e: run.values(run.tensor(TensorKey(e.op, e.role, e.index))) for e in op.inputs}
        region = Region((op.key,), tuple(fed), (Edge(op.key),))
        (found,) = evaluator.evaluate(region, fed, "f64")
        yield op, found, run.values(run.tensor(TensorKey(op.key)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_ops_of_a_net_of_torch(dtype):
    run = sp.capture(Net().to(dtype).eval(), (X.to(dtype),))
    for _, found, wanted in every_op(run):
        assert found.dtype == np.float64
        tolerance = {torch.float32: 1e-5}.get(dtype, 3e-2)
        np.testing.assert_allclose(found, wanted.astype(np.float64), tolerance, tolerance)


def onnx_model(**resize):
    constants = {
        "w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("f"),
        "b": np.arange(4, dtype="f"),
        "high": np.float32(0.7),
        "scales": np.float32([1, 1, 2, 2]),
        "axes": np.int64([2]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Clip", ["c", "", "high"], ["k"]),
        helper.make_node("Resize", ["k", "", "scales"], ["r"], **{"mode": "linear", **resize}),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        helper.make_node("ReduceSum", ["p", "axes"], ["s"], keepdims=0),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    return model


Y = np.random.default_rng(3).standard_normal((2, 3, 9, 9)).astype("f")


def test_the_ops_of_a_net_of_onnx():
    run = sp.capture(onnx_model(), (Y,), fusion="unfused")
    types = set()
    for op, found, wanted in every_op(run):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)
        types.add(op.type)
    assert types == {"Conv", "Clip", "Resize", "MaxPool", "ReduceSum", "Softmax"}


def test_an_op_that_does_not_do_what_its_record_says_is_not_run():
    model = Net().eval()
    run = sp.capture(model, (X,))
    (op,) = [op for op in run.ops if "leaky" in op.type]
    op.attributes["negative_slope"] = 0.2
    fed = {op.inputs[0]: run.values(run.tensor(TensorKey(op.inputs[0].op)))}
    with pytest.raises(Unsupported):
        NumpyEvaluator(run).evaluate(Region((op.key,), tuple(fed), (Edge(op.key),)), fed, "f64")


def test_an_op_that_is_not_known_is_not_run():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    run = sp.capture(Odd(), (X,))
    (op,) = run.ops
    fed = {op.inputs[0]: X.numpy()}
    with pytest.raises(Unsupported, match="bessel"):
        NumpyEvaluator(run).evaluate(Region((op.key,), tuple(fed), (Edge(op.key),)), fed, "f64")


@pytest.mark.parametrize(
    ("kind", "target"),
    [("bias-missing", Net(bias=False)), ("leaky-slope", Net(slope=0.3))],
)
def test_a_variant_is_named_from_recordings_alone(tmp_path, kind, target):
    sp.capture(target.eval(), (X,), out=tmp_path / "target")
    sp.capture(Net().eval(), (X,), out=tmp_path / "reference")
    found = sp.compare(tmp_path / "target", tmp_path / "reference")
    assert all(row.introduced is None for row in found.rows)
    assert found.diagnosis.findings[0].kind == kind


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("resize-coordinates", {"coordinate_transformation_mode": "asymmetric"}),
        ("resize-kind", {"mode": "nearest"}),
    ],
)
def test_a_variant_of_onnx_runtime_is_named(kind, changed):
    options = {"fusion": "unfused"}
    found = sp.compare(
        onnx_model(**changed), onnx_model(), inputs=(Y,),
        target_options=options, reference_options=options,
    )  # fmt: skip
    assert found.diagnosis.findings[0].kind == kind
