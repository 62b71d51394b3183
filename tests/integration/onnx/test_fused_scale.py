"""A matrix product into which ONNX Runtime fuses the scale of the scores."""

import copy

import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers import onnx_exports


class Scores(nn.Module):
    """Scaled scores of keys and queries."""

    def __init__(self, scale=0.4):
        super().__init__()
        self.query, self.key = nn.Linear(12, 12), nn.Linear(12, 12)
        self.scale = scale

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return torch.softmax(scores * self.scale, -1)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Scores().eval(), (torch.randn(2, 5, 12),)


def compare(target, reference, inputs):
    """The export of the target against the reference, both without names."""
    proto = onnx_exports.export(target, inputs)
    for node in proto.graph.node:
        del node.metadata_props[:]
    arrays = tuple(x.numpy() for x in inputs)
    return sp.compare(sp.capture(proto, arrays), reference, inputs=inputs)


def guilty_ops(comparison):
    return {row.reference.key.op.op for row in comparison.rows if row.guilty}


def test_an_error_before_the_product_is_not_a_wrong_scale(net):
    reference, inputs = net
    faulty = copy.deepcopy(reference)
    faulty.key.weight.data[:4] *= 1.3
    comparison = compare(faulty, reference, inputs)
    assert "FusedMatMul" in {row.target.type.rpartition(".")[2] for row in comparison.rows}
    assert guilty_ops(comparison) == {"linear_1"}
    assert not [f for f in comparison.findings if f.kind == "scale"]


def test_a_wrong_scale_is_named_at_the_product(net):
    reference, inputs = net
    faulty = copy.deepcopy(reference)
    faulty.scale = 0.5
    assert guilty_ops(compare(faulty, reference, inputs)) & {"matmul", "mul"}


def test_a_fused_scale_is_close(net):
    reference, inputs = net
    assert str(compare(reference, reference, inputs).verdict) == "close"
