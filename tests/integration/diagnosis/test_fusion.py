"""A fused op that computes something else than its parts: in the file, and not in it."""

import onnx
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers import onnx_exports


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, image):
        return self.last(torch.relu(self.first(image)))


def inputs():
    return (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)),)


def fused(activation):
    """The exported net with its first convolution and ReLU in one node, as converters make it."""
    model = onnx_exports.export(Net().eval(), inputs())
    conv, relu = (next(n for n in model.graph.node if n.op_type == k) for k in ("Conv", "Relu"))
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute}
    node = onnx.helper.make_node(
        "FusedConv",
        list(conv.input),
        list(relu.output),
        name=conv.name,
        domain="com.microsoft",
        activation=activation,
        **attributes,
    )
    at = list(model.graph.node).index(conv)
    model.graph.node.remove(conv)
    model.graph.node.remove(relu)
    model.graph.node.insert(at, node)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def compared(activation, fusion):
    return sp.compare(
        fused(activation), Net().eval(), inputs=inputs(), target_options={"fusion": fusion}
    )


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_a_node_of_the_file_that_fuses_wrongly(fusion):
    first = compared("Tanh", fusion).findings[0]
    assert (first.cause, first.kind, first.level) == ("fusion", "converted", "cause")
    assert {"relu", "conv2d"} <= set(first.reference_ops)


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_a_node_that_fuses_rightly_has_no_finding(fusion):
    assert not compared("Relu", fusion).findings
