"""What an If computes inside its branches pairs with the same ops outside of any branch."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import syncpoint as sp

RANDOM = np.random.default_rng(0)
FEEDS = {
    "x": RANDOM.standard_normal((1, 8)).astype("f4"),
    "rate": np.array(16),
}
W1, W2 = (RANDOM.standard_normal((8, 8)).astype("f4") for _ in range(2))


def body(prefix, scale=1.0):
    """Two products with activations; `scale` on the first weight is a fault."""
    nodes = [
        helper.make_node("MatMul", ["x", f"{prefix}w1"], [f"{prefix}m1"]),
        helper.make_node("Tanh", [f"{prefix}m1"], [f"{prefix}t1"]),
        helper.make_node("MatMul", [f"{prefix}t1", f"{prefix}w2"], [f"{prefix}m2"]),
        helper.make_node("Sigmoid", [f"{prefix}m2"], [f"{prefix}s2"]),
    ]
    weights = [
        numpy_helper.from_array(W1 * np.float32(scale), f"{prefix}w1"),
        numpy_helper.from_array(W2, f"{prefix}w2"),
    ]
    return nodes, weights


def save(path, nodes, weights, output):
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, 8])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def branch(prefix, scale=1.0):
    nodes, weights = body(prefix, scale)
    value = helper.make_tensor_value_info(f"{prefix}s2", TensorProto.FLOAT, [1, 8])
    return helper.make_graph(nodes, f"{prefix}branch", [], [value], weights)


def with_branches(path, scale=1.0):
    wanted = helper.make_tensor("wanted", TensorProto.INT64, [], [16])
    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["is_wanted"]),
        helper.make_node(
            "If",
            ["is_wanted"],
            ["chosen"],
            then_branch=branch("p_", scale),
            else_branch=branch("q_", 2.0),
        ),
        helper.make_node("Neg", ["chosen"], ["y"]),
    ]
    return save(path, nodes, [wanted], "y")


def inlined(path, scale=1.0):
    nodes, weights = body("z", scale)
    unused = helper.make_node("Identity", ["rate"], ["unused"])
    return save(path, [unused, *nodes, helper.make_node("Neg", ["zs2"], ["out"])], weights, "out")


def compared(target, reference):
    return sp.compare(str(target), str(reference), inputs=FEEDS, introduced="local")


@pytest.mark.parametrize("is_target", [True, False])
def test_ops_inside_a_branch_pair_with_inlined_ones(tmp_path, is_target):
    files = [with_branches(tmp_path / "a.onnx"), inlined(tmp_path / "b.onnx")]
    comparison = compared(*(files if is_target else files[::-1]))
    assert {row.verdict.value for row in comparison.rows} == {"close"}
    assert comparison.exit_code() == 0
    types = {row.target.type for row in comparison.rows}
    assert {"MatMul", "Tanh", "Sigmoid", "Neg"} <= types


def test_a_fault_inside_a_branch_is_found_at_its_op(tmp_path):
    comparison = compared(with_branches(tmp_path / "a.onnx", 1.25), inlined(tmp_path / "b.onnx"))
    assert comparison.verdict.value == "large"
    assert [row.target.type for row in comparison.first_divergence] == ["MatMul"]
    assert comparison.first_divergence[0].target.label.endswith("p_m1")
