"""Too few bits: wrong scales and zero points, ranges that are used badly, ops in a coarser type."""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from torch import nn
from torch.nn import functional

import syncpoint as sp
from helpers.onnx_exports import in_torch
from models.onnx_files import NETS, _Samples, exported, onnx_file, quiet
from models.transformer import make_transformer, transformer_inputs

FUSIONS = ["as-executed", "unfused"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("precision")


def compared(net, model, folder, fusion):
    path = folder / "changed.onnx"
    onnx.save(model, path)
    names = [i.name for i in exported(net).model_proto.graph.input]
    given = {n: v.numpy() for n, v in zip(names, NETS[net][1](), strict=True)}
    return sp.compare(sp.capture(str(path), given, fusion=fusion), in_torch(net))


def read_otherwise(model, tensor, factor=1.0, shift=0):
    """The model with one DequantizeLinear that takes another scale or zero point."""
    known = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    node = next(n for n in model.graph.node if tensor in n.output)
    scale, zero = (known[name] for name in node.input[1:])
    for at, name, value in ((1, "other_scale", scale * factor), (2, "other_zero", zero + shift)):
        kind = known[node.input[at]].dtype
        model.graph.initializer.append(numpy_helper.from_array(value.astype(kind), name))
        node.input[at] = name
    return model


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(("factor", "shift"), [(1.3, 0), (1.0, 7)])
def test_integers_that_are_read_otherwise(folder, fusion, factor, shift):
    model = onnx.load(onnx_file(folder, "cnn", "qdq"))
    model = read_otherwise(model, "relu_1_DequantizeLinear_Output", factor, shift)
    first = compared("cnn", model, folder, fusion).findings[0]
    assert (first.cause, first.level) == ("precision", "cause") and first.confidence >= 0.9
    assert first.kind == ("zero-point" if shift else "scale")
    if not shift:
        told = float(first.text.split(" is ")[1].split(" times")[0])
        assert told == pytest.approx(factor, rel=0.02)


def test_a_weight_with_a_wrong_scale(folder):
    model = onnx.load(onnx_file(folder, "cnn", "qdq"))
    scale = next(i for i in model.graph.initializer if i.name == "classifier.weight_scale")
    off = (numpy_helper.to_array(scale) * 1.5).astype(np.float32)
    scale.CopyFrom(numpy_helper.from_array(off, scale.name))
    first = compared("cnn", model, folder, "unfused").findings[0]
    assert (first.cause, first.kind) == ("precision", "scale")
    assert "weight" in first.title and "1.5" in first.text


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_mask_among_the_values_widens_the_range(folder, fusion):
    model = onnx.load(onnx_file(folder, "transformer", "qdq"))
    first = compared("transformer", model, folder, fusion).findings[0]
    assert (first.cause, first.kind, first.level) == ("precision", "wasted-range", "cause")
    assert "masked_fill" in first.reference_ops[0]


class Outlier(nn.Module):
    """A channel of the first weight is a hundred times as large as the others."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 8)
        with torch.no_grad():
            self.first.weight[5] *= 200
            self.last.weight[:, 5] /= 200

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def test_a_channel_that_needs_a_scale_of_its_own(folder):
    net = Outlier().eval()
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    with quiet():
        plain = torch.onnx.export(net, (x,), dynamo=True, verbose=False).model_proto
    onnx.save(plain, folder / "outlier.onnx")
    samples = _Samples("cnn")
    samples._left = iter([{plain.graph.input[0].name: x.numpy()}])
    with quiet():
        quantize_static(
            folder / "outlier.onnx",
            folder / "outlier.int8.onnx",
            samples,
            quant_format=QuantFormat.QDQ,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Gemm", "MatMul"],
            reduce_range=True,
        )
    comparison = sp.compare(
        str(folder / "outlier.int8.onnx"), net, inputs=(x,), target_options={"fusion": "unfused"}
    )
    assert comparison.verdict != "close"
    first = comparison.findings[0]
    assert (first.cause, first.kind) == ("precision", "per-tensor"), first
    assert "channel 5" in first.text


class Cast(nn.Module):
    def __init__(self, layer, dtype):
        super().__init__()
        self.layer, self.dtype = layer, dtype

    def forward(self, x):
        given = (x, self.layer.weight, self.layer.bias)
        return functional.linear(*(v.to(self.dtype) for v in given)).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_op_in_a_coarser_type_is_suspected(dtype):
    target = make_transformer()
    target.layers[0].mlp.up = Cast(target.layers[0].mlp.up, dtype)
    comparison = sp.compare(target, make_transformer(), inputs=transformer_inputs())
    first = comparison.findings[0]
    assert (first.cause, first.kind, first.level) == ("precision", "narrow", "suspect")
    assert first.reference_ops == ("linear_2",) and str(dtype).split(".")[1] in first.title


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_sound_int8_model_has_no_finding(folder, fusion):
    model = onnx.load(onnx_file(folder, "cnn", "qdq"))
    assert not compared("cnn", model, folder, fusion).findings


class Branches(nn.Module):
    """Layers whose errors weigh differently in a small difference of large numbers."""

    WEIGHTS = (0.05, 1.0, 0.3)

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in self.WEIGHTS)

    def forward(self, x):
        pairs = zip(self.layers, self.WEIGHTS, strict=True)
        total = sum(weight * layer(x) for layer, weight in pairs)
        return total - total.mean(0, keepdim=True)


def branches(folder, without=()):
    """Net, inputs, and the file of its int8 form, in which some layers may stay in floats."""
    net = Branches().eval()
    generator = torch.Generator().manual_seed(1)
    x = 3 * torch.randn(1, 32, generator=generator) + 0.03 * torch.randn(
        16, 32, generator=generator
    )
    before, after = folder / "branches.onnx", folder / f"branches{len(without)}.onnx"

    class Sample:
        def __init__(self):
            self._left = iter([{"x": x.numpy()}])

        def get_next(self):
            return next(self._left, None)

    with quiet():
        program = torch.export.export(net, (x,))
        onnx.save(torch.onnx.export(program, (), dynamo=True, verbose=False).model_proto, before)
        quantize_static(
            before,
            after,
            Sample(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=True,
            op_types_to_quantize=["Gemm"],
            nodes_to_exclude=list(without),
        )
    return net, x, after


def output_error(comparison):
    (row,) = comparison.outputs
    return row.numbers["rmse"]


@pytest.mark.parametrize("fusion", FUSIONS)
def test_the_ops_to_leave_in_floats_are_found_by_experiment(folder, fusion):
    net, x, path = branches(folder)
    options = {"fusion": fusion}
    found = sp.compare(str(path), net, inputs=(x,), target_options=options)
    first = found.findings[0]
    assert (first.cause, first.kind, first.level) == ("precision", "noise", "cause")
    assert first.reference_ops[0] == "linear_1" and "linear" not in first.reference_ops[1:]
    assert any("error of single ops" in said for said in found.diagnosis.experiments)
    told = float(first.text.split("in float: ")[1].split()[1])
    # What it really brings to leave that layer, and what it reads, in floats.
    nodes = [n.name for n in onnx.load(folder / "branches.onnx").graph.node if n.op_type == "Gemm"]
    *_, kept = branches(folder, nodes[1:2])
    model = onnx.load(kept)
    next(n for n in model.graph.node if n.name == nodes[1]).input[0] = "x"
    onnx.save(model, kept)
    better = sp.compare(str(kept), net, inputs=(x,), target_options=options)
    gained = 20 * np.log10(output_error(found) / output_error(better))
    assert gained > 5 and told == pytest.approx(gained, abs=0.5)


def test_without_the_model_the_experiment_is_named(folder):
    net, x, path = branches(folder)
    runs = [sp.capture(m, (x,), out=folder / n) for m, n in ((str(path), "t.run"), (net, "r.run"))]
    comparison = sp.compare(*(sp.open_run(run.path) for run in runs))
    (first, *_) = comparison.findings
    assert first.kind == "noise" and any("--reference-model" in said for said in first.missing)
