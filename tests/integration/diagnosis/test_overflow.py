"""Numbers that leave their range: the op, how it happened, and no word of it where all is well."""

import math

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from torch import nn

import syncpoint as sp
from models.onnx_files import NETS, _Samples, exported, onnx_file, quiet


class Net(nn.Module):
    """A small net, with one of several ways to leave the range of float16."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, x):
        h = torch.relu(self.first(x))
        if self.kind == "scale":
            h = (h * 40000.0) / 40000.0
        y = self.last(self.norm(h))
        if self.kind == "exp":
            return torch.exp(y * 8)
        if self.kind == "log":
            return torch.log(torch.softmax(y * 12, -1))
        if self.kind == "square":
            y = y * 300
            return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.softmax(y * 9, -1)


class Unguarded(Net):
    def forward(self, x):
        powers = torch.exp(self.last(self.norm(torch.relu(self.first(x)))) * 9)
        return powers / powers.sum(-1, keepdim=True)


def inputs():
    return (torch.randn(64, 16, generator=torch.Generator().manual_seed(1)),)


def in_half(net, reference=None):
    return sp.compare(net, reference or net, inputs=inputs(), target_options={"dtype": "f16"})


@pytest.mark.parametrize(
    ("kind", "found", "op"),
    [
        ("scale", "overflow", "mul"),
        ("exp", "overflow", "exp"),
        ("log", "underflow", "softmax"),
        ("square", "overflow", "pow_1"),
    ],
)
def test_the_op_that_leaves_float16_is_named(kind, found, op):
    first = in_half(Net(kind).eval()).findings[0]
    assert (first.cause, first.kind, first.level) == ("overflow", found, "cause")
    assert op in first.ops and first.confidence >= 0.9
    assert "float16" in first.text and first.next


def test_what_it_would_have_been_is_said():
    net = Net("exp").eval()
    with torch.no_grad():
        greatest = float(net.double()(inputs()[0].double()).max())
    first = in_half(Net("exp").eval()).findings[0]
    exact = float(first.text.split("(float64) reaches ")[1].split(", and")[0].replace(",", ""))
    assert exact == pytest.approx(greatest, rel=0.1)  # The exponent was rounded to float16.


def test_a_softmax_that_does_not_subtract_its_maximum():
    target = Unguarded("softmax").eval()
    first = in_half(target, Net("softmax").eval()).findings[0]
    assert (first.cause, first.kind, first.ops[0]) == ("overflow", "exp", "exp")


class Causal(nn.Module):
    """Attention with a mask of -inf, whose softmax may be written out."""

    def __init__(self, written):
        super().__init__()
        torch.manual_seed(0)
        self.written = written
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        masked = torch.ones(x.shape[-2], x.shape[-2]).triu(1)
        scores = 6 * self.query(x) @ self.key(x).transpose(-1, -2)
        scores = scores.masked_fill(masked == 1, -math.inf)
        if not self.written:
            return torch.softmax(scores, -1) @ self.value(x)
        powers = torch.exp(scores)
        return (powers / powers.sum(-1, keepdim=True)) @ self.value(x)


def test_a_mask_that_both_runs_have_is_not_where_it_breaks():
    x = torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(1))
    target, reference = Causal(True).eval(), Causal(False).eval()
    found = sp.compare(target, reference, inputs=(x,), target_options={"dtype": "f16"}).findings
    assert (found[0].cause, found[0].kind, found[0].ops[0]) == ("overflow", "exp", "exp")
    assert found[0].confidence >= 0.9


class Residual(nn.Module):
    """The first of two convolutions reaches beyond float16, in a few places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.last, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
        with torch.no_grad():
            self.first.weight.mul_(5e4)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return self.head(torch.relu(self.last(x) + x).mean((2, 3)))


def test_ops_behind_the_one_that_breaks_are_not_blamed():
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    net = Residual().eval()
    found = sp.compare(net, net, inputs=(x,), target_options={"dtype": "f16"}).findings
    assert (found[0].cause, found[0].kind, found[0].ops) == ("overflow", "overflow", ("conv2d",))
    assert {op for f in found if f.level == "cause" for op in f.ops} == {"conv2d"}


def test_a_sound_float16_model_has_no_such_finding():
    assert not in_half(Net("softmax").eval()).findings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("overflow")


def compared(net, path, fusion):
    make, given = NETS[net]
    return sp.compare(str(path), make(), inputs=given(), target_options={"fusion": fusion})


def scaled(folder, name, factor):
    model = onnx.load(onnx_file(folder, "cnn", "qdq"))
    found = next(i for i in model.graph.initializer if i.name == name)
    off = (numpy_helper.to_array(found) * factor).astype(np.float32)
    found.CopyFrom(numpy_helper.from_array(off, name))
    onnx.save(model, folder / "scaled.onnx")
    return folder / "scaled.onnx"


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_integers_that_end_too_early_are_told_from_coarse_ones(folder, fusion):
    first = compared("cnn", scaled(folder, "relu_1_scale", 0.3), fusion).findings[0]
    assert (first.cause, first.kind, first.level) == ("overflow", "clipping", "cause")
    assert "relu_1" in first.ops[0] and first.confidence >= 0.9


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_clipping_that_a_wrong_weight_leads_to_is_not_the_cause(folder, fusion):
    found = compared("cnn", scaled(folder, "block.conv1.weight_scale", 1.5), fusion).findings
    assert found and all(f.cause != "overflow" for f in found)


def test_integer_kernels_that_saturate_are_proven_by_floats(folder):
    """Seen only on processors without VNNI: elsewhere the model is close, and nothing is said."""
    onnx.save(exported("transformer").model_proto, folder / "plain.onnx")
    with quiet():
        quantize_static(
            folder / "plain.onnx",
            folder / "full.onnx",
            _Samples("transformer"),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Conv", "Gemm", "MatMul"],
        )
    comparison = compared("transformer", folder / "full.onnx", "as-executed")
    if comparison.verdict == "close":
        assert not comparison.findings
        return
    first = comparison.findings[0]
    assert (first.cause, first.kind) == ("overflow", "int16-saturation")
    assert first.confidence >= 0.9 and "reduce_range=True" in first.next
    guilty = {r.target.label for r in comparison.rows if r.guilty}
    assert guilty <= set(first.ops)
