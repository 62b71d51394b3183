"""ONNX models that are written node by node."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def info(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, initializers=(), functions=(), opset=21, domains=()):
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(v, n) for n, v in initializers]
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def branching():
    then = helper.make_graph(
        [helper.make_node("Mul", ["h", "two"], ["a"]), helper.make_node("Exp", ["a"], ["b"])],
        "then",
        [],
        [info("b")],
    )
    other = helper.make_graph(
        [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32(3))),
            helper.make_node("Sub", ["h", "c"], ["d"]),
        ],
        "else",
        [],
        [info("d")],
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["h"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["up"]),
        helper.make_node("If", ["up"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    return model_of(
        nodes,
        [info("x", shape=[2, 3])],
        [info("z", shape=[2, 3])],
        [("two", np.float32(2)), ("zero", np.float32(0))],
    )
