"""ONNX against PyTorch and against itself, from Python and from the command line."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from test_cli import syncpoint

import syncpoint as sp
from models.onnx_files import NETS, feeds, onnx_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


@pytest.mark.parametrize("net", ["transformer", "cnn"])
@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_a_sound_export_has_nothing_large(folder, net, fusion):
    make, inputs = NETS[net]
    comparison = sp.compare(
        str(onnx_file(folder, net)), make(), inputs=inputs(), target_options={"fusion": fusion}
    )
    assert comparison.verdict == "close", str(comparison)
    assert comparison.outputs
    assert comparison.coverage.compared >= 1


def test_unfused_against_as_executed_is_close_and_nearly_all_is_compared(folder):
    path = str(onnx_file(folder, "gpt"))
    target = sp.capture(path, feeds("gpt"))
    reference = sp.capture(path, feeds("gpt"), fusion="unfused")
    comparison = sp.compare(target, reference)
    assert comparison.verdict == "close", str(comparison)
    assert comparison.coverage.target > 0.6


def test_a_wrong_weight_is_found_where_it_is_used(folder):
    """An ONNX model as the reference of a broken copy: the guilty op is named, the rest is not."""
    path = onnx_file(folder, "transformer")
    model = onnx.load(path)
    node = next(n for n in model.graph.node if n.op_type == "Gelu")
    product = next(n for n in model.graph.node if n.output[0] == node.input[0])
    source = next(n for n in model.graph.node if n.output[0] in product.input)
    weight = next(i for i in model.graph.initializer if i.name == source.input[1])
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 1.5, weight.name))
    broken = folder / "broken.onnx"
    onnx.save(model, broken)
    options = {"fusion": "unfused"}
    comparison = sp.compare(
        str(broken),
        str(path),
        inputs=feeds("transformer"),
        target_options=options,
        reference_options=options,
    )
    assert comparison.verdict == "large"
    assert [row.target.key.op.op for row in comparison.first_divergence] == [source.output[0]]


def test_the_command_line(folder):
    onnx_file(folder, "cnn").rename(folder / "cnn.onnx")
    np.savez(folder / "x.npz", **feeds("cnn"))
    found = syncpoint("capture", "cnn.onnx", "--inputs", "x.npz", "-o", "a.run", cwd=folder, code=0)
    assert "onnxruntime, CPUExecutionProvider, f32" in found.stdout
    syncpoint(
        "capture", "cnn.onnx", "--inputs", "random:1", "--fusion", "unfused", "-o", "b.run",
        cwd=folder, code=0,
    )  # fmt: skip
    assert sp.open_run(folder / "b.run").info.fusion == "unfused"
    found = syncpoint(
        "capture", "cnn.onnx", "--inputs", "x.npz", "--fusion", "half", "-o", "c.run", cwd=folder
    )
    assert found.returncode == 2
    assert "one of 'as-executed', 'unfused' for the option fusion" in found.stderr
    found = syncpoint("doctor", cwd=folder, code=0)
    assert "--set optimization=all" in found.stdout
    (folder / "bad.onnx").write_bytes(b"nonsense")
    found = syncpoint("capture", "bad.onnx", "--inputs", "x.npz", "-o", "d.run", cwd=folder)
    assert found.returncode == 2
    assert len(found.stderr.strip().splitlines()) == 1
