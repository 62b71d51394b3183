"""Every op that introduced error is measured by gives float64, held against torch in double."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch.nn import functional

from syncpoint.runtimes.onnx.float64_ops import EXACT, run_op

GENERATOR = np.random.default_rng(0)


def rand(*shape, positive=False):
    made = GENERATOR.normal(size=shape)
    return np.abs(made) + 0.1 if positive else made


X, Y = rand(3, 4), rand(3, 4)
UNIT = np.clip(X / 4, -0.9, 0.9)
IMAGE, PAIRED = rand(2, 4, 6, 5), rand(4)
AXES = np.array([1])

FLAT = {
    "Sqrt": (torch.sqrt, np.abs(X)),
    "Exp": (torch.exp, X),
    "Log": (torch.log, np.abs(X)),
    "Reciprocal": (torch.reciprocal, X),
    "Sin": (torch.sin, X),
    "Cos": (torch.cos, X),
    "Tan": (torch.tan, X),
    "Asin": (torch.asin, UNIT),
    "Acos": (torch.acos, UNIT),
    "Atan": (torch.atan, X),
    "Sinh": (torch.sinh, X),
    "Cosh": (torch.cosh, X),
    "Tanh": (torch.tanh, X),
    "Sigmoid": (torch.sigmoid, X),
    "Softplus": (functional.softplus, X),
    "Softsign": (functional.softsign, X),
    "Elu": (functional.elu, X),
    "Celu": (functional.celu, X),
    "Mish": (functional.mish, X),
    "Erf": (torch.erf, X),
    "HardSwish": (functional.hardswish, X),
    "Softmax": (lambda x: torch.softmax(x, -1), X),
    "LogSoftmax": (lambda x: torch.log_softmax(x, -1), X),
    "GlobalAveragePool": (lambda x: x.mean((2, 3), keepdim=True), IMAGE),
    "ThresholdedRelu": (lambda x: torch.where(x > 1, x, 0.0), X),
}
SLOPE, ALPHA, EPSILON = (float(np.float32(v)) for v in (0.01, 0.2, 1e-5))
FULL = {
    "Pow": ({}, [np.abs(X), Y], torch.pow),
    "LeakyRelu": ({"alpha": SLOPE}, [X], lambda x: functional.leaky_relu(x, SLOPE)),
    "PRelu": ({}, [X, rand(4)], lambda x, s: torch.where(x > 0, x, x * s)),
    "HardSigmoid": ({"alpha": ALPHA}, [X], lambda x: torch.clamp(x * ALPHA + 0.5, 0, 1)),
    "MatMul": ({}, [X, rand(2, 4, 5)], torch.matmul),
    "Gemm": (
        {"transB": 1, "alpha": 0.5},
        [X, rand(5, 4), rand(5)],
        lambda x, w, b: 0.5 * (x @ w.T) + b,
    ),
    "Conv": (
        {"pads": [1, 1, 1, 1], "strides": [2, 1], "group": 2},
        [IMAGE, rand(6, 2, 3, 3), rand(6)],
        lambda x, w, b: functional.conv2d(x, w, b, (2, 1), 1, groups=2),
    ),
    "ConvTranspose": (
        {"strides": [2, 2]},
        [IMAGE, rand(4, 3, 2, 2), rand(3)],
        lambda x, w, b: functional.conv_transpose2d(x, w, b, 2),
    ),
    "Einsum": ({"equation": "ij,kj->ik"}, [X, Y], lambda x, y: x @ y.T),
    "ReduceSum": ({}, [X, AXES], lambda x, _: x.sum(1, keepdim=True)),
    "ReduceMean": ({}, [X, AXES], lambda x, _: x.mean(1, keepdim=True)),
    "ReduceL1": ({}, [X, AXES], lambda x, _: x.abs().sum(1, keepdim=True)),
    "ReduceL2": ({}, [X, AXES], lambda x, _: x.norm(dim=1, keepdim=True)),
    "ReduceLogSum": ({}, [np.abs(X), AXES], lambda x, _: x.sum(1, keepdim=True).log()),
    "ReduceLogSumExp": ({}, [X, AXES], lambda x, _: x.logsumexp(1, keepdim=True)),
    "ReduceSumSquare": ({}, [X, AXES], lambda x, _: (x * x).sum(1, keepdim=True)),
    "ReduceProd": ({}, [X, AXES], lambda x, _: x.prod(1, keepdim=True)),
    "Sum": ({}, [X, Y], lambda x, y: x + y),
    "Mean": ({}, [X, Y], lambda x, y: (x + y) / 2),
    "CumSum": ({}, [X, np.array(1)], lambda x, _: x.cumsum(1)),
    "LayerNormalization": (
        {"epsilon": EPSILON, "stash_type": 1},
        [X, rand(4), rand(4)],
        lambda x, w, b: functional.layer_norm(x, (4,), w, b, EPSILON),
    ),
    "BatchNormalization": (
        {"epsilon": EPSILON},
        [IMAGE, PAIRED, rand(4), rand(4), rand(4, positive=True)],
        lambda x, w, b, m, v: functional.batch_norm(x, m, v, w, b, eps=EPSILON),
    ),
    "InstanceNormalization": (
        {"epsilon": EPSILON},
        [IMAGE, PAIRED, rand(4)],
        lambda x, w, b: functional.instance_norm(x, weight=w, bias=b, eps=EPSILON),
    ),
    "AveragePool": (
        {"kernel_shape": [2, 3], "strides": [2, 1]},
        [IMAGE],
        lambda x: functional.avg_pool2d(x, (2, 3), (2, 1)),
    ),
}


def run(op, attributes, operands, opset=20):
    values = [ir.Value(name=f"v{at}") for at in range(len(operands))]
    node = ir.node(op, values, attributes)
    node.outputs[0].name = "y"
    return run_op(node, operands, opset)[0]


def close(found, expected):
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("op", FLAT)
def test_ops_of_one_operand(op):
    function, x = FLAT[op]
    close(run(op, {}, [x]), function(torch.from_numpy(x)).numpy())


@pytest.mark.parametrize("op", FULL)
def test_ops_with_more(op):
    attributes, operands, function = FULL[op]
    close(run(op, attributes, operands), function(*map(torch.from_numpy, operands)).numpy())


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate):
    expected = functional.gelu(torch.from_numpy(X), approximate=approximate)
    close(run("Gelu", {"approximate": approximate}, [X]), expected.numpy())


def test_every_op_that_is_trusted_is_tested_here():
    assert set(FLAT) | set(FULL) >= EXACT


def test_stored_integers_are_dequantized_along_axes_and_blocks():
    stored = GENERATOR.integers(-8, 8, (2, 6)).astype(np.int8)
    scale, zero = np.array([0.5, 0.25], np.float32), np.array([1, -2], np.int8)
    found = run("DequantizeLinear", {"axis": 0}, [stored, scale, zero], 21)
    close(found, (stored - zero[:, None].astype(float)) * scale[:, None])
    scale = np.array([[0.5, 0.25], [2, 4]], np.float32)
    found = run("DequantizeLinear", {"axis": 1, "block_size": 3}, [stored, scale], 21)
    close(found, stored * np.repeat(scale, 3, axis=1))
