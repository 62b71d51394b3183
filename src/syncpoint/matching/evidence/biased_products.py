"""Products (matmul, convolution) and their biases: the edge to the bias of a product, and the op
that adds a constant to a product without one."""

from __future__ import annotations

from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import op_kind
from syncpoint.run.model import Edge, Role, TensorKey

PRODUCTS = ("matmul", "conv")
_FIRST_BIAS_INPUT = {
    **dict.fromkeys(("qlinearconv", "qlinearmatmul"), 8),
    **dict.fromkeys(("matmulintegertofloat", "qgemm"), 6),
    **dict.fromkeys(("dynamicquantizematmul", "matmulinteger", "convinteger"), 4),
}
"""Number of inputs before the bias of a product of integers: scales may be 1-D parameters too."""


def bias_edge(graph: SlotGraph, position: int) -> Edge | None:
    """The edge to the bias of a product: its 1-D parameter."""
    op = graph.ops[position]
    integer_inputs = _FIRST_BIAS_INPUT.get(op_kind(op.type).rpartition(".")[2])
    if integer_inputs is not None:
        inputs = op.inputs[integer_inputs:]
    else:
        inputs = op.inputs if len(op.inputs) > 2 else ()
    for edge in inputs:
        if edge.role is Role.PARAMETER:
            tensor = graph.side.run.tensor(TensorKey(edge.op, edge.role, edge.index))
            if tensor is not None and len(tensor.shape) == 1:
                return edge
    return None


def constant_added_to(graph: SlotGraph, position: int) -> tuple[int, Edge] | None:
    """The only reader of a product, if it adds one constant, and the edge to the constant."""
    outputs = graph.outputs(position)
    reader = graph.only_reader(outputs[0]) if len(outputs) == 1 else None
    if reader is None or graph.classes[reader] != "add" or len(graph.reads[reader]) != 1:
        return None
    constants = [edge for edge in graph.ops[reader].inputs if edge.role is Role.PARAMETER]
    return (reader, constants[0]) if len(constants) == 1 else None


def class_of_product_with_bias(graph: SlotGraph, slot: Slot) -> tuple[str, bool]:
    """The class of the product whose result with its bias a slot is, and whether an op of its own
    adds the bias; ("", False) if the slot is no such result."""
    position = graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
    if position < 0:
        return "", False
    if graph.classes[position] in PRODUCTS and bias_edge(graph, position) is not None:
        return graph.classes[position], False
    if graph.classes[position] != "add" or len(graph.reads[position]) != 1:
        return "", False
    product = graph.position.get(graph.reads[position][0].op, -1)
    if product < 0 or graph.classes[product] not in PRODUCTS:
        return "", False
    added = constant_added_to(graph, product)
    if added is None or added[0] != position or bias_edge(graph, product) is not None:
        return "", False
    return graph.classes[product], True
