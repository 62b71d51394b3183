"""Graphs of every make: branches, loops, functions, weights in other files, rare types."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper

import syncpoint as sp
from helpers.onnx_graphs import branching, info, model_of
from syncpoint.errors import InputError
from syncpoint.run.model import Edge, OpKey, Role, TensorKey

F32 = TensorProto.FLOAT
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def plain(model, given):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)


def values(run, name, path="", iteration=0, index=0):
    key = TensorKey(OpKey(name, path=path, iteration=iteration), index=index)
    tensor = run.tensor(key)
    assert tensor is not None, (str(key), [str(t.key) for t in run.tensors])
    return run.values(tensor)


def check(run, model, given):
    assert run.info.observer.equal, run.info.observer.detail
    finals = [t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT]
    for tensor, expected in zip(finals, plain(model, given), strict=True):
        assert run.values(tensor).tobytes() == expected.tobytes()
    for op in run.ops:
        for edge in op.inputs:
            assert run.tensor(TensorKey(edge.op, edge.role, edge.index)) is not None, (op, edge)


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_the_branch_that_ran_is_recorded(fusion):
    model = branching()
    up, down = {"x": X + 1}, {"x": X - 1}
    run = sp.capture(model, up, fusion=fusion)
    check(run, model, up)
    wide = np.tanh(up["x"].astype(np.float64))
    np.testing.assert_allclose(values(run, "a", "y.then_branch"), 2 * wide, rtol=1e-6)
    np.testing.assert_allclose(values(run, "b", "y.then_branch"), np.exp(2 * wide), rtol=1e-6)
    assert not any(op.key.path == "y.else_branch" for op in run.ops)
    inner = next(op for op in run.ops if op.key.op == "a")
    assert Edge(OpKey("h")) in inner.inputs
    run = sp.capture(model, down, fusion=fusion)
    check(run, model, down)
    np.testing.assert_allclose(values(run, "d", "y.else_branch"), np.tanh(down["x"]) - 3, rtol=1e-6)


def looping(count=3):
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "w"], ["m"]),
            helper.make_node("Add", ["m", "x"], ["next"]),
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("ReduceSum", ["next"], ["seen"], keepdims=0),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []),
         info("state", shape=[2, 3])],
        [info("still", TensorProto.BOOL, []), info("next", shape=[2, 3]), info("seen", shape=[])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Relu", ["x"], ["start"]),
        helper.make_node("Loop", ["count", "", "start"], ["last", "sums"], body=body),
        helper.make_node("Neg", ["last"], ["z"]),
    ]
    return model_of(
        nodes,
        [info("x", shape=[2, 3])],
        [info("z", shape=[2, 3]), info("sums", shape=[count])],
        [("count", np.int64(count)), ("w", np.float32(0.5))],
    )


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_every_round_of_a_loop_is_recorded(fusion):
    model, given = looping(), {"x": X}
    run = sp.capture(model, given, fusion=fusion)
    check(run, model, given)
    state = np.maximum(X, 0)
    for at in range(3):
        np.testing.assert_array_equal(values(run, "m", "last.body", at), state * np.float32(0.5))
        state = state * np.float32(0.5) + X
        np.testing.assert_array_equal(values(run, "next", "last.body", at), state)
    product = {op.key.iteration: op for op in run.ops if op.key.op == "m"}
    assert Edge(OpKey("start")) in product[0].inputs
    assert Edge(OpKey("next", path="last.body", iteration=0)) in product[1].inputs


def test_a_loop_that_makes_no_round_records_none():
    model, given = looping(0), {"x": X}
    run = sp.capture(model, given)
    check(run, model, given)
    assert not any(op.key.path for op in run.ops)


def test_every_step_of_a_scan_is_recorded():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "row"], ["new"]),
            helper.make_node("Mul", ["new", "new"], ["square"]),
        ],
        "body",
        [info("sum", shape=[3]), info("row", shape=[3])],
        [info("new", shape=[3]), info("square", shape=[3])],
    )
    node = helper.make_node(
        "Scan", ["start", "x"], ["total", "squares"], body=body, num_scan_inputs=1,
        scan_output_axes=[1],
    )  # fmt: skip
    model = model_of(
        [node],
        [info("x", shape=[2, 3])],
        [info("total", shape=[3]), info("squares", shape=[3, 2])],
        [("start", np.zeros(3, np.float32))],
    )
    run = sp.capture(model, {"x": X})
    check(run, model, {"x": X})
    np.testing.assert_array_equal(values(run, "new", "total.body", 1), X[0] + X[1])


def test_a_branch_inside_a_loop_that_changes_sides_is_counted_in_a_note():
    then = helper.make_graph([helper.make_node("Exp", ["state"], ["b"])], "t", [], [info("b")])
    other = helper.make_graph([helper.make_node("Neg", ["state"], ["d"])], "e", [], [info("d")])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Equal", ["i", "one"], ["odd"]),
            helper.make_node("If", ["odd"], ["next"], then_branch=then, else_branch=other),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []),
         info("state", shape=[2, 3])],
        [info("still", TensorProto.BOOL, []), info("next", shape=[2, 3])],
    )  # fmt: skip
    model = model_of(
        [helper.make_node("Loop", ["three", "", "x"], ["z"], body=body)],
        [info("x", shape=[2, 3])],
        [info("z", shape=[2, 3])],
        [("three", np.int64(3)), ("one", np.int64(1))],
    )
    run = sp.capture(model, {"x": X})
    check(run, model, {"x": X})
    assert any("ops inside sub-graphs were not recorded: Loop z" in n for n in run.info.notes)


def test_functions_are_unfolded():
    function = helper.make_function(
        "mine", "Twice", ["a"], ["c"],
        [helper.make_node("Add", ["a", "a"], ["b"]), helper.make_node("Relu", ["b"], ["c"])],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Twice", ["x"], ["p"], domain="mine"),
        helper.make_node("Twice", ["p"], ["q"], domain="mine"),
    ]
    model = model_of(
        nodes,
        [info("x", shape=[2, 3])],
        [info("q", shape=[2, 3])],
        (),
        [function],
        domains=["mine"],
    )
    for fusion in ("unfused", "as-executed"):
        run = sp.capture(model, {"x": X}, fusion=fusion)
        check(run, model, {"x": X})
        assert [op.type for op in run.ops] == ["Add", "Relu", "Add", "Relu"]
        np.testing.assert_array_equal(values(run, run.ops[0].key.op), 2 * X)


def external(folder, rows=4, location="weights.bin", count=None):
    """A model whose weights are in a file beside it."""
    weight = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    (folder / "weights.bin").write_bytes(b"\0" * 64 + weight.tobytes())
    tensor = TensorProto(
        name="w", data_type=F32, dims=[rows, 3], data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", location), ("offset", 64), ("length", count or weight.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["rows"]),
        helper.make_node("Relu", ["rows"], ["y"]),
    ]
    model = model_of(nodes, [info("i", TensorProto.INT64, [2])], [info("y", shape=[2, 3])])
    model.graph.initializer.append(tensor)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path, weight


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_weights_in_another_file_are_read_from_there(tmp_path, fusion):
    path, weight = external(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    run = sp.capture(str(path), {"i": np.array([1, 3])}, fusion=fusion)
    assert run.info.observer.equal
    np.testing.assert_array_equal(values(run, "y"), weight[[1, 3]])
    recorded = run.tensor(TensorKey(OpKey("w"), Role.PARAMETER))
    np.testing.assert_array_equal(run.values(recorded), weight)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


LARGE = """
import re, sys, numpy as np, syncpoint as sp
run = sp.capture(sys.argv[1], {"i": np.array([0, 700_000])}, record="digest", filter="^[yg]$")
assert run.info.observer.equal
assert [op.type for op in run.ops] == ["Gather", "Relu"]
# Of this memory alone: what resource tells begins with that of the process it was started by.
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def test_a_model_of_more_than_two_gigabytes_is_captured_in_little_memory(tmp_path):
    """Weights of 2.1 GB in a file with holes: nothing may read them all."""
    path, _ = external(tmp_path)
    model = onnx.load(path, load_external_data=False)
    rows = 180_000_000
    tensor = model.graph.initializer[0]
    tensor.dims[0] = rows
    tensor.external_data[2].value = str(rows * 12)
    path.write_bytes(model.SerializeToString())
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.truncate(64 + rows * 12)
    assert (tmp_path / "weights.bin").stat().st_size > 2 << 30
    command = [sys.executable, "-c", LARGE, str(path)]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    assert int(done.stdout) < 1 << 20


def test_bfloat16_and_four_bit_values_come_out_bit_for_bit():
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["y"], to=F32),
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"]),
    ]
    model = model_of(
        nodes, [info("x", shape=[2, 3])], [info("y"), info("z")], [("scale", np.float32(0.25))]
    )
    zero = helper.make_tensor("zero", TensorProto.INT4, [], [1])
    model.graph.initializer.append(zero)
    run = sp.capture(model, {"x": X}, fusion="unfused")
    assert run.info.observer.equal
    np.testing.assert_array_equal(values(run, "b"), X.astype(ml_dtypes.bfloat16))
    stored = run.tensor(TensorKey(OpKey("q")))
    assert (stored.dtype, stored.quantization.scale, stored.quantization.zero_point) == (
        "i4", (0.25,), (1,),
    )  # fmt: skip
    expected = np.clip(np.rint(X / 0.25) + 1, -8, 7)
    np.testing.assert_array_equal(run.values(stored).astype(float), expected)


def simple():
    return model_of(
        [helper.make_node("Relu", ["x"], ["y"])], [info("x", shape=["n", 3])], [info("y")]
    )


def test_inputs_are_cast_to_what_the_model_declares():
    run = sp.capture(simple(), {"x": np.array([[0.1, 0.2, 0.3]])})
    assert run.tensor(TensorKey(OpKey("x"), Role.MODEL_INPUT)).dtype == "f32"
    assert run.info.notes == ("the input x was rounded from f64 to f32",)
    assert not sp.capture(simple(), (torch.ones(2, 3),)).info.notes


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"x": np.ones((2, 4), np.float32)},
            r"input x has shape \[2, 4\], but the model declares x f32\[\?, 3\]",
        ),
        ({"x": np.ones((2, 3), np.int64)}, "an array of i64"),
        (
            {"a": X, "b": X},
            r"inputs a, b do not fit .*x f32\[\?, 3\]\); use the names that it takes: x",
        ),
        ((), r"the input 'x' of .* is missing: 0 of \d were given"),
        ({"x": [["a"]]}, "the input x must be an array of numbers, .*, not a str"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(given, message):
    with pytest.raises(InputError, match=message) as raised:
        sp.capture(simple(), given)
    assert "\n" not in str(raised.value)


def test_random_ops_are_marked():
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"], seed=1.0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    run = sp.capture(model_of(nodes, [info("x", shape=[2, 3])], [info("y")]), {"x": X})
    assert [op.random for op in run.ops] == [True, False]
