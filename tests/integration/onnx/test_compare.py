"""ONNX against PyTorch and against itself, from Python and from the command line."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.matching_oracle import Twins, share_paired
from helpers.onnx_exports import in_torch
from models.onnx_files import NETS, feeds, onnx_file
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import OpKey, Role, TensorKey

TOLERANCE = {"f32": 1e-4, "f16": 2e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
@pytest.mark.parametrize("form", ["f32", "f16"])
@pytest.mark.parametrize("net", NETS)
def test_a_sound_export_is_close_and_what_has_an_equal_is_paired(folder, net, form, fusion):
    """Where there is no kernel for float16 ONNX Runtime computes in float32, with parameters
    that were rounded to float16: as good as the file allows, and no worse."""
    target = sp.capture(str(onnx_file(folder, net, form)), feeds(net, form), fusion=fusion)
    comparison = sp.compare(target, in_torch(net))
    assert {r.verdict for r in comparison.rows} == {Verdict.CLOSE}, str(comparison)
    assert not [r for r in comparison.rows if r.guilty]
    assert comparison.outputs and comparison.exit_code() == 0
    if (fusion, form) == ("as-executed", "f32"):
        assert comparison.coverage.target == 1
    left = [u for u in comparison.unmatched if u.side == "target" and u.counted]
    assert all(u.detail.startswith("inside ") for u in left), left
    twins = Twins(target, in_torch(net), TOLERANCE[form])
    assert share_paired(comparison, twins) >= 0.95
    assert all(
        twins.together(r.target.key, r.reference.key) is not False
        for r in comparison.rows
        if r.target.key.role is Role.OUTPUT
    )


def test_widened_parameters_have_the_names_and_the_type_of_the_file(folder):
    run = sp.capture(str(onnx_file(folder, "cnn", "f16")), feeds("cnn", "f16"))
    known = {str(t.key.op): t for t in run.tensors if t.key.role is Role.PARAMETER}
    assert run.tensor(TensorKey(OpKey("relu"))).dtype == "f32"
    # What else has the name it has in the file depends on the processor.
    assert known["classifier.weight"].dtype == known["classifier.bias"].dtype == "f16"
    assert {t.dtype for t in known.values()} == {"f16", "i64"}
    run = sp.capture(str(onnx_file(folder, "cnn")), feeds("cnn"))
    given = (Role.PARAMETER, Role.MODEL_INPUT)
    assert {t.dtype for t in run.tensors if t.key.role in given} == {"f32", "i64"}


def test_a_parameter_that_float16_does_not_hold_is_an_error_in_a_widened_model(folder):
    """That a model is float16 excuses no more than what rounding to float16 costs."""
    model = onnx.load(onnx_file(folder, "cnn", "f16"))
    weight = next(i for i in model.graph.initializer if i.name == "classifier.weight")
    off = (numpy_helper.to_array(weight) * 1.02).astype(np.float16)
    weight.CopyFrom(numpy_helper.from_array(off, weight.name))
    comparison = sp.compare(sp.capture(model, feeds("cnn", "f16")), in_torch("cnn"))
    assert [r.reference.label for r in comparison.first_divergence] == ["linear"]


def test_unfused_against_as_executed_is_close_and_all_is_compared(folder):
    path = str(onnx_file(folder, "gpt"))
    target = sp.capture(path, feeds("gpt"))
    reference = sp.capture(path, feeds("gpt"), fusion="unfused")
    comparison = sp.compare(target, reference)
    assert comparison.verdict == "close", str(comparison)
    assert comparison.coverage.target == 1


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
    assert "the option fusion must be one of 'as-executed', 'unfused'" in found.stderr
    found = syncpoint("doctor", cwd=folder, code=0)
    assert "--set optimization=all" in found.stdout
    (folder / "bad.onnx").write_bytes(b"nonsense")
    found = syncpoint("capture", "bad.onnx", "--inputs", "x.npz", "-o", "d.run", cwd=folder)
    assert found.returncode == 2
    assert len(found.stderr.strip().splitlines()) == 1
