"""Float against int8: the loss is where integers are, within what they allow, and no more."""

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import syncpoint as sp
from models.onnx_files import NETS, feeds, onnx_file
from syncpoint.run.model import Role

FUSIONS = ["as-executed", "unfused"]
MOVES = {"Reshape", "Transpose", "Split", "com.microsoft.NhwcMaxPool"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("int8")


@cache
def in_torch(net):
    make, inputs = NETS[net]
    return sp.capture(make(), inputs())


def ops(comparison):
    return [r for r in comparison.rows if r.target.key.role is Role.OUTPUT]


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(
    ("net", "form"), [("cnn", "qdq"), ("resnet", "qdq"), ("transformer", "products")]
)
def test_a_sound_int8_model_loses_what_its_integers_cost(folder, net, form, fusion):
    target = sp.capture(str(onnx_file(folder, net, form)), feeds(net), fusion=fusion)
    comparison = sp.compare(target, in_torch(net))
    assert comparison.exit_code() == 0, str(comparison)
    assert comparison.coverage.target >= 0.8
    known = [r for r in ops(comparison) if r.introduced]
    assert len(known) == len(ops(comparison))
    assert max(r.introduced.ratio for r in known) < 10
    if fusion == "as-executed":
        # Only what is int8 loses more than rounding; what moves values about adds nothing, or
        # the rounding of the integers that are made right before it.
        lossy = [r for r in known if r.introduced.rel_l2 > 1e-4]
        assert {r.introduced.preset for r in lossy} == {"int8"}
        moved = [r for r in known if r.target.type in MOVES and r.reference.label != "add"]
        assert max(r.introduced.ratio for r in moved) < 1.01
        assert min(r.introduced.rmse for r in moved) == 0


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_mask_among_the_values_that_are_quantized_ruins_the_softmax(folder, fusion):
    """The quantizer takes the mask's -3.4e38 for the range of the scores."""
    path = str(onnx_file(folder, "transformer", "qdq"))
    target = sp.capture(path, feeds("transformer"), fusion=fusion)
    comparison = sp.compare(target, in_torch("transformer"))
    guilty = [r.reference.label for r in ops(comparison) if r.guilty]
    assert comparison.verdict == "large"
    assert (
        {"softmax", "softmax_1"} <= set(guilty) <= {"softmax", "matmul_1", "softmax_1", "matmul_3"}
    )
    assert [r.reference.label for r in comparison.first_divergence] == ["softmax"]


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_wrong_weight_stands_out_of_what_integers_allow(folder, fusion):
    model = onnx.load(onnx_file(folder, "cnn", "qdq"))
    scale = next(i for i in model.graph.initializer if i.name == "classifier.weight_scale")
    off = (numpy_helper.to_array(scale) * 1.5).astype(np.float32)
    scale.CopyFrom(numpy_helper.from_array(off, scale.name))
    comparison = sp.compare(sp.capture(model, feeds("cnn"), fusion=fusion), in_torch("cnn"))
    assert [r.reference.label for r in comparison.first_divergence] == ["linear"]
    assert comparison.exit_code() == 1


@pytest.mark.parametrize("fusion", FUSIONS)
def test_int8_against_the_float_file_pairs_products_and_sums_alike(folder, fusion):
    """Of an exported linear layer, both files have the product and the sum."""
    target = sp.capture(
        str(onnx_file(folder, "transformer", "qdq")), feeds("transformer"), fusion=fusion
    )
    path = str(onnx_file(folder, "transformer"))
    reference = sp.capture(path, feeds("transformer"), fusion="unfused")
    comparison = sp.compare(target, reference, introduced="off")
    assert comparison.coverage.reference == 1
    for row in ops(comparison):
        if row.reference.type in ("MatMul", "Add"):
            kind = row.target.type.rpartition(".")[2].removeprefix("QLinear")
            assert kind in (row.reference.type, "DequantizeLinear"), row.target.label
