"""Black boxes are bisected: the first bad op, by running pieces of the model."""

import json

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from typer.testing import CliRunner

import syncpoint as sp
from syncpoint.cli.app import app
from syncpoint.errors import InputError

WIDTH = 16
INPUTS = {"x": np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)}


def weight(name, *shape, seed=0, scale=0.3):
    values = scale * np.random.default_rng([seed, *name.encode()]).standard_normal(shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


OTHERS = {
    "Add": ("Sub", {}),
    "Mul": ("Add", {}),
    "Relu": ("LeakyRelu", {"alpha": 0.2}),
    "Tanh": ("Softsign", {}),
    "Sigmoid": ("HardSigmoid", {}),
    "LayerNormalization": ("LayerNormalization", {"epsilon": 0.1}),
}


def planted(node):
    """The op as a converter might get it wrong: another one, or one with another weight."""
    if node.op_type == "MatMul":
        return helper.make_node("MatMul", [node.input[0], "wrong"], node.output)
    kind, more = OTHERS[node.op_type]
    return helper.make_node(kind, node.input, node.output, **more)


def model(nodes, weights, outputs, faults=()):
    """The graph, with something else in place of the ops that `faults` names."""
    made = [planted(node) if node.output[0] in faults else node for node in nodes]
    if faults:
        weights = [*weights, weight("wrong", WIDTH, WIDTH)]
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        weights,
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def branched(faults=()):
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["h1"]),
        node("Add", ["h1", "b1"], ["h2"]),
        node("Relu", ["h2"], ["h3"]),
        node("MatMul", ["h3", "w2"], ["left1"]),
        node("Tanh", ["left1"], ["left2"]),
        node("MatMul", ["h3", "w3"], ["right1"]),
        node("Sigmoid", ["right1"], ["right2"]),
        node("Mul", ["left2", "right2"], ["joined"]),
        node("Add", ["joined", "x"], ["rest"]),
        node("LayerNormalization", ["rest", "g", "b2"], ["normed"]),
        node("MatMul", ["normed", "w4"], ["out"]),
        node("MatMul", ["right2", "w4"], ["side"]),
    ]
    square = [weight(f"w{n}", WIDTH, WIDTH) for n in range(1, 5)]
    rest = [weight(n, WIDTH) for n in ("b1", "g", "b2")]
    return model(nodes, square + rest, ["out", "side"], faults)


def chain(length, faults=()):
    nodes, before = [], "x"
    for at in range(length):
        # Neither grows nor shrinks what is wrong by much.
        kind, more = (("Add", ["b"]), ("Mul", ["g"]))[at % 2]
        nodes.append(helper.make_node(kind, [before, *more], [f"t{at}"]))
        before = f"t{at}"
    weights = [
        weight("b", WIDTH, scale=0.05),
        numpy_helper.from_array(np.float32(np.resize([1.01, 0.99, -1.0, 1.0], WIDTH)), "g"),
    ]
    return model(nodes, weights, [before], faults)


EVERY = [
    *("h1", "h2", "h3", "left1", "left2", "right1", "right2"),
    *("joined", "rest", "normed", "out", "side"),
]


@pytest.mark.parametrize("at", EVERY)
def test_a_fault_at_every_op_of_an_onnx_model_is_found(at):
    found = sp.bisect(branched([at]), branched(), inputs=INPUTS)
    assert [c.op for c in found.culprits] == [at]
    (culprit,) = found.culprits
    assert culprit.verdict == "large" and culprit.after < 60
    assert culprit.before is None or culprit.before > 100
    assert found.exit_code() == 1


class Sliced(nn.Module):
    """An output of three columns instead of four."""

    def __init__(self, columns):
        super().__init__()
        torch.manual_seed(0)
        self.columns, self.linear = columns, nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))[:, : self.columns]


def test_an_output_of_another_shape_diverges_as_in_a_comparison():
    found = sp.bisect(Sliced(3).eval(), Sliced(4).eval(), inputs=torch.ones(2, 8))
    assert found.outputs == {"out": "none"}
    assert found.culprits and found.exit_code() == 1


def test_a_fault_at_one_output_only():
    found = sp.bisect(branched(["side"]), branched(), inputs=INPUTS)
    assert found.outputs == {"out": "close", "side": "large"}
    assert found.culprits[0].outputs == ("side",)


def test_two_faults_in_parallel_branches_are_both_found():
    found = sp.bisect(branched(["side", "normed"]), branched(), inputs=INPUTS)
    assert {c.op for c in found.culprits} == {"side", "normed"}


def test_nothing_to_look_for():
    found = sp.bisect(branched(), branched(), inputs=INPUTS)
    assert not found.culprits and found.runs == 1 and found.exit_code() == 0


def test_two_hundred_ops_take_twelve_runs():
    for at in (71, 199):
        found = sp.bisect(chain(200, [f"t{at}"]), chain(200), inputs=INPUTS)
        assert [c.op for c in found.culprits] == [f"t{at}"]
        assert found.runs <= 12


def nan_between(faults=()):
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["h1"]),
        node("Add", ["h1", "b1"], ["h2"]),
        node("Mul", ["h2", "zero"], ["h3"]),
        node("Div", ["h3", "zero"], ["nothing"]),
        node("IsNaN", ["nothing"], ["is"]),
        node("Where", ["is", "h2", "nothing"], ["h4"]),
        node("MatMul", ["h4", "w1"], ["h5"]),
        node("Tanh", ["h5"], ["out"]),
    ]
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    return model(nodes, [weight("w1", WIDTH, WIDTH), weight("b1", WIDTH), zero], ["out"], faults)


@pytest.mark.parametrize("at", ["h1", "h2", "h5", "out"])
def test_nan_on_both_sides_hides_nothing(at):
    found = sp.bisect(nan_between([at]), nan_between(), inputs=INPUTS)
    (culprit,) = found.culprits
    assert culprit.op == at
    assert "nothing" not in [c.op for c in found.cuts if c.state == "good"]


class Net(nn.Module):
    def __init__(self, fault=-1):
        super().__init__()
        self.fault = fault
        self.one, self.two, self.three = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        wrong = self.fault
        first = self.one if wrong != 0 else self.two
        a = nn.functional.linear(x, first.weight, self.one.bias)
        b = nn.functional.leaky_relu(a, 0.01 if wrong != 1 else 0.2)
        left = nn.functional.elu(self.two(b), 1.0 if wrong != 2 else 1.2)
        right = torch.softmax(self.three(b) + b, -1 if wrong != 3 else 0)
        both = torch.add(left, right, alpha=1 if wrong != 4 else -1)
        normed = nn.functional.layer_norm(both, (WIDTH,), eps=1e-5 if wrong != 5 else 0.1)
        return normed, right * (2 if wrong != 6 else 2.1)


OPS = ["linear", "leaky_relu", "elu", "softmax", "add", "layer_norm", "mul"]


def nets(fault):
    torch.manual_seed(0)
    reference = Net()
    target = Net(fault)
    target.load_state_dict(reference.state_dict())
    return target.eval(), reference.eval()


@pytest.mark.parametrize("fault", range(7))
def test_a_fault_at_every_step_of_a_torch_model_is_found(fault):
    target, reference = nets(fault)
    found = sp.bisect(target, reference, inputs=(torch.from_numpy(INPUTS["x"]),))
    (culprit,) = found.culprits
    assert OPS[fault] in culprit.op, str(found)
    assert "test_bisect.py" in culprit.source
    assert culprit.after < 60


def test_a_compiled_model_is_cut_and_compiled():
    target, reference = nets(4)
    found = sp.bisect(
        target,
        reference,
        inputs=(torch.from_numpy(INPUTS["x"]),),
        target_options={"runtime": "inductor", "backend": "aot_eager"},
    )
    assert "add" in found.culprits[0].op


def test_the_command_keeps_the_cut_models(tmp_path):
    onnx.save(branched(["joined"]), tmp_path / "target.onnx")
    onnx.save(branched(), tmp_path / "reference.onnx")
    np.savez(tmp_path / "x.npz", **INPUTS)
    said = [str(tmp_path / name) for name in ("target.onnx", "reference.onnx")]
    out = tmp_path / "cuts"
    made = CliRunner().invoke(
        app, ["bisect", *said, "--inputs", str(tmp_path / "x.npz"), "-o", str(out)]
    )
    assert made.exit_code == 1, made.output
    assert "first bad op  joined (Add)" in made.output
    kept = sorted(out.glob("*.onnx"))
    said = json.loads((out / "bisection.json").read_text())
    assert len(kept) == said["runs"] - 1
    onnx.checker.check_model(onnx.load(kept[0]))
    again = CliRunner().invoke(
        app, ["bisect", *map(str, said and [kept[0], kept[0]]), "--inputs", str(tmp_path / "x.npz")]
    )
    assert again.exit_code == 0, again.output


def test_a_recording_cannot_be_cut():
    run = sp.capture(branched(), INPUTS)
    with pytest.raises(InputError, match=r"recording.*give a model as target"):
        sp.bisect(run, branched(), inputs=INPUTS)
