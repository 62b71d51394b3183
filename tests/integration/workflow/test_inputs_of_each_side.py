"""The two sides of a comparison may take other inputs: by name from one set, or a set for each."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from typer.testing import CliRunner

import syncpoint as sp
from syncpoint.cli.app import app
from syncpoint.errors import InputError


class HidesState(torch.nn.Module):
    """Keeps its state; the rate is a number."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.linspace(0.5, 1.5, 8))

    def forward(self, x: torch.Tensor, rate: int) -> torch.Tensor:
        return torch.tanh(x * self.state * float(rate)) + 1


def passes_state(path, first=1.0):
    """The same as ONNX, which takes its state, and an input that is padded in front."""
    nodes = [
        helper.make_node("Slice", ["padded", "four", "twelve", "one"], ["x"]),
        helper.make_node("Mul", ["x", "state"], ["product"]),
        helper.make_node("Cast", ["rate"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["product", "real"], ["scaled"]),
        helper.make_node("Tanh", ["scaled"], ["tanh"]),
        helper.make_node("Add", ["tanh", "first"], ["y"]),
    ]
    numbers = {"four": [4], "twelve": [12], "one": [1]}
    constants = [helper.make_tensor(k, TensorProto.INT64, [1], v) for k, v in numbers.items()]
    constants.append(helper.make_tensor("first", TensorProto.FLOAT, [], [first]))
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("padded", TensorProto.FLOAT, [1, 12]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [8]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


X = np.random.default_rng(0).standard_normal((1, 8)).astype("f4")
OF_REFERENCE = {"x": X, "rate": np.array(2)}
OF_TARGET = {
    "padded": np.pad(X, ((0, 0), (4, 0))),
    "state": np.linspace(0.5, 1.5, 8, dtype="f4"),
    "rate": np.array(2),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    torch.jit.script(HidesState()).save(folder / "hides.jit")
    passes_state(folder / "passes.onnx")
    np.savez(folder / "reference.npz", **OF_REFERENCE)
    np.savez(folder / "target.npz", **OF_TARGET)
    np.savez(folder / "all.npz", **OF_REFERENCE, **{k: OF_TARGET[k] for k in ("padded", "state")})
    return folder


def notes_of(comparison, side):
    return getattr(comparison, side)["notes"]


def test_each_side_is_run_on_its_own_inputs(files):
    comparison = sp.compare(
        files / "passes.onnx", files / "hides.jit", inputs=OF_REFERENCE, target_inputs=OF_TARGET
    )
    outputs = {row.verdict.value for row in comparison.rows if row.target.type == "Add"}
    assert outputs == {"close"}
    assert not any("other side" in note for note in notes_of(comparison, "target"))


def test_of_one_set_each_side_takes_the_inputs_that_it_has(files):
    comparison = sp.compare(
        files / "passes.onnx", files / "hides.jit", inputs=str(files / "all.npz")
    )
    assert "x is an input of the other side only" in notes_of(comparison, "target")
    assert "padded, state are inputs of the other side only" in notes_of(comparison, "reference")
    assert all(row.verdict.value == "close" for row in comparison.rows)


def test_an_input_of_neither_side_is_refused(files):
    inputs = {**OF_REFERENCE, **OF_TARGET, "stat": X}
    with pytest.raises(InputError, match="neither the target nor the reference takes the input"):
        sp.compare(files / "passes.onnx", files / "hides.jit", inputs=inputs)


def test_recorded_inputs_that_the_other_side_lacks_are_left_out(files):
    reference = sp.capture(files / "passes.onnx", OF_TARGET)

    class TakesPaddedOnly(torch.nn.Module):
        def forward(self, padded):
            state = torch.linspace(0.5, 1.5, 8)
            return torch.tanh(padded[:, 4:] * state * 2) + 1

    comparison = sp.compare(TakesPaddedOnly(), reference)
    assert "rate, state are inputs of the other side only" in notes_of(comparison, "target")
    assert comparison.verdict.value == "close"


def test_a_fault_of_the_target_shows_on_its_own_inputs(files, tmp_path):
    faulty = passes_state(tmp_path / "faulty.onnx", first=1.25)
    command = [
        "compare",
        str(faulty),
        str(files / "hides.jit"),
        "--inputs",
        str(files / "reference.npz"),
        "--target-inputs",
        str(files / "target.npz"),
        "--no-diagnose",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    assert "large" in result.output


def test_a_run_of_torchscript_records_its_numbers(files):
    run = sp.capture(files / "hides.jit", str(files / "reference.npz"))
    again = sp.capture(files / "hides.jit", str(run.path))
    assert [t.name for t in run.tensors if t.key.role == "model-input"] == ["x", "rate"]
    assert [t.digest for t in again.tensors] == [t.digest for t in run.tensors]
