"""Masks that break: rows of nothing else, and constants that are infinite."""

import math

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import syncpoint as sp
from syncpoint.run.model import TensorKey

SHAPE = (8, 16)
X = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
LOW = torch.finfo(torch.float32).min


class Filled(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x, keep):
        return torch.softmax((2 * x).masked_fill(keep == 0, self.value), -1)


def kept(*masked):
    """Which positions stay: these rows do not, and of another row one half."""
    keep = torch.ones(SHAPE)
    keep[6, 7:] = 0
    keep[list(masked)] = 0
    return keep


def test_rows_that_are_masked_wholly_are_named():
    found = sp.compare(Filled(-math.inf), Filled(LOW), inputs=(X, kept(3))).findings
    assert (found[0].cause, found[0].kind, found[0].ops) == ("overflow", "mask", ("softmax",))
    assert found[0].confidence >= 0.9 and "1 rows" in found[0].text


def test_infinities_that_leave_something_in_each_row_are_no_finding():
    assert not sp.compare(Filled(-math.inf), Filled(LOW), inputs=(X, kept())).findings


@pytest.mark.parametrize(("broken", "told"), [((3,), True), ((2,), False), ((2, 3), False)])
def test_only_rows_that_are_masked_explain_rows_that_break(tmp_path, broken, told):
    """The target shows the result alone; its mask may be any large number."""
    reference = sp.capture(Filled(-1e9), (X, kept(3)))
    (key,) = (TensorKey(op.key) for op in reference.ops if "softmax" in op.type)
    values = np.array(reference.values(reference.tensor(key)))
    values[list(broken)] = np.nan
    np.savez(tmp_path / "target.npz", **{str(key.op): values})
    first = sp.compare(tmp_path / "target.npz", reference).findings[0]
    assert ((first.cause, first.kind) == ("overflow", "mask")) is told
    assert first.kind != "constant"


class Added(nn.Module):
    def forward(self, x, keep):
        return torch.softmax(x + (1.0 - keep) * -1e9, -1)


def added(path, low):
    """The same as an ONNX file, with this number for the mask."""
    nodes = [
        helper.make_node("Sub", ["one", "keep"], ["rest"]),
        helper.make_node("Mul", ["rest", "low"], ["mask"]),
        helper.make_node("Add", ["x", "mask"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=-1),
    ]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in ("x", "keep")]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)]
    numbers = {"one": np.float32(1), "low": np.float32(low)}
    constants = [numpy_helper.from_array(value, name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "masked", given, made, constants)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


def test_a_constant_that_is_infinite_is_named(tmp_path):
    target = added(tmp_path / "masked.onnx", -np.inf)
    first = sp.compare(target, Added(), inputs=(X, kept())).findings[0]
    assert (first.cause, first.kind, first.ops) == ("overflow", "constant", ("mask",))
    assert first.confidence >= 0.9 and "-1.00e+09" in first.title


def test_a_constant_that_fits_is_no_finding(tmp_path):
    target = added(tmp_path / "masked.onnx", -1e9)
    assert not sp.compare(target, Added(), inputs=(X, kept())).findings
