"""Float against int8: the loss is where integers are, within what they allow, and no more."""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from torch.nn.functional import relu

import syncpoint as sp
from helpers import onnx_exports
from helpers.onnx_exports import in_torch
from models.onnx_files import feeds, onnx_file, quiet
from syncpoint.run.model import Role

FUSIONS = ["as-executed", "unfused"]
MOVES = {"Reshape", "Transpose", "Split", "com.microsoft.NhwcMaxPool"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("int8")


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
    assert set(guilty) == {"masked_fill", "softmax", "masked_fill_1", "softmax_1"}
    assert [r.reference.label for r in comparison.first_divergence] == ["masked_fill"]


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


class Residual(torch.nn.Module):
    """Functional ReLUs: after a batch norm, inside a block, after a sum, and a line of the model
    that calls for a ReLU and, behind the block, for a transposition."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv1d(8, 32, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm1d(32)
        self.block = Inner()
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = relu(self.norm(self.stem(x))); x = self.block(x).transpose(1, 2)  # fmt: skip  # noqa: E702
        return self.head(x)


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (
            torch.nn.Conv1d(32, 32, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norm1, self.norm2 = torch.nn.BatchNorm1d(32), torch.nn.BatchNorm1d(32)

    def forward(self, x):
        y = relu(self.norm1(self.conv1(x))); return relu(x + self.norm2(self.conv2(y)))  # fmt: skip  # noqa: E702


class Once(CalibrationDataReader):
    def __init__(self, values):
        self.values = iter([values])

    def get_next(self):
        return next(self.values, None)


def quantized(folder, model, inputs):
    """The model in int8, as ONNX Runtime's own tool makes it."""
    plain, path = folder / "plain.onnx", folder / "int8.onnx"
    onnx.save(onnx_exports.export(model, (inputs,)), plain)
    name = onnx.load(plain).graph.input[0].name
    with quiet():
        quantize_static(
            plain,
            path,
            Once({name: inputs.numpy()}),
            weight_type=QuantType.QInt8,
            reduce_range=True,
        )
    return path


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_relu_that_the_quantizer_left_out_is_found_by_its_grid(tmp_path, fusion):
    """What quantizes and dequantizes belongs to the line where the value is computed, and not to
    the one where it is read, which may call for another ReLU."""
    torch.manual_seed(7)
    model, inputs = Residual().eval(), torch.randn(2, 8, 24)
    path = quantized(tmp_path, model, inputs)
    target = sp.capture(str(path), (inputs.numpy(),), fusion=fusion)
    comparison = sp.compare(target, sp.capture(model, (inputs,)))
    assert comparison.exit_code() == 0, str(comparison)
    assert not [r.target.label for r in ops(comparison) if r.guilty]
    relus = {r.reference.label for r in ops(comparison) if r.reference.type == "aten.relu.default"}
    assert relus == {"relu", "relu_1", "relu_2"}
