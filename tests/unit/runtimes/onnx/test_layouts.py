"""Which values ONNX Runtime lays out otherwise than the model says."""

import onnx_ir as ir
import pytest

from syncpoint.runtimes.onnx.layouts import CHANNELS_LAST, find_layouts

FRONT, BACK = [0, 2, 3, 1], [0, 3, 1, 2]


class Made:
    """A graph, put together value by value."""

    def __init__(self):
        self.nodes, self.x = [], ir.Value(name="x")

    def add(self, name, op, *given, domain="", **attributes):
        node = ir.node(op, given or [self.x], attributes, domain=domain)
        node.outputs[0].name = name
        self.nodes.append(node)
        return node.outputs[0]

    def turned(self, name, given, order):
        return self.add(name, "Transpose", given, perm=order)

    def conv(self, name, given, **attributes):
        return self.add(name, "QLinearConv", given, domain="com.microsoft", **attributes)

    def laid_out(self, known=()):
        ends = [self.nodes[-1].outputs[0]]
        return find_layouts(
            ir.Graph([self.x], ends, nodes=self.nodes, opset_imports={"": 20}), known
        )


def test_a_transposition_that_a_product_reads_is_the_models_own():
    graph = Made()
    graph.add("y", "MatMul", graph.turned("t", graph.x, FRONT))
    assert graph.laid_out() == {}


@pytest.mark.parametrize("between", [(), ("DequantizeLinear", "Relu", "QuantizeLinear")])
def test_a_transposition_for_a_channels_last_kernel_is_a_layout(between):
    graph = Made()
    value = graph.turned("t", graph.x, FRONT)
    for op in between:
        value = graph.add(op, op, value)
    graph.turned("back", graph.conv("y", value, channels_last=1), BACK)
    assert graph.laid_out() == dict.fromkeys(("t", *between, "y"), CHANNELS_LAST)


def test_a_kernel_with_its_channels_first_makes_no_layout():
    graph = Made()
    graph.conv("y", graph.turned("t", graph.x, FRONT), channels_last=0)
    assert graph.laid_out() == {}


def test_a_kernel_behind_another_shape_says_nothing_of_the_transposition():
    graph = Made()
    flat = graph.add("flat", "Reshape", graph.turned("t", graph.x, FRONT))
    graph.conv("y", flat, channels_last=1)
    assert graph.laid_out() == {"y": CHANNELS_LAST}


@pytest.mark.parametrize("op", ["Resize", "Concat", "Pad", "Split"])
def test_the_layout_goes_on_until_it_is_turned_back(op):
    graph = Made()
    carried = graph.add("carried", op, graph.conv("c", graph.x, channels_last=1))
    graph.add("end", "Relu", graph.turned("back", carried, BACK))
    assert graph.laid_out() == {"c": CHANNELS_LAST, "carried": CHANNELS_LAST}


@pytest.mark.parametrize("known", [(), ("c",), ("t", "c")])
def test_values_of_the_model_itself_are_never_laid_out_otherwise(known):
    graph = Made()
    conv = graph.conv("c", graph.turned("t", graph.x, FRONT), channels_last=1)
    graph.turned("back", conv, BACK)
    assert graph.laid_out(known) == {
        name: CHANNELS_LAST for name in ("t", "c") if name not in known
    }
