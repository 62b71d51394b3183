"""Scales of single channels are read along the axis on which the channels lie."""

import numpy as np
import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from torch import nn

import syncpoint as sp
from helpers import onnx_exports
from models.onnx_files import quiet
from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.run.model import Role

SIZE = 32
X = torch.randn(16, SIZE, generator=torch.Generator().manual_seed(1))


class Once(CalibrationDataReader):
    def __init__(self, values):
        self._left = iter([values])

    def get_next(self):
        return next(self._left, None)


def uneven():
    """A square weight, so that its shape does not tell its axes apart."""
    torch.manual_seed(0)
    net = nn.Linear(SIZE, SIZE).eval()
    with torch.no_grad():
        net.weight.mul_(torch.logspace(-2, 2, SIZE)[:, None])
    return net


def test_a_weight_that_a_gemm_transposes_has_its_scales_along_the_first_axis(tmp_path):
    net, plain, path = uneven(), tmp_path / "plain.onnx", tmp_path / "int8.onnx"
    model = onnx_exports.export(net, (X,))
    onnx.save(model, plain)
    given = {model.graph.input[0].name: X.numpy()}
    with quiet():
        quantize_static(
            plain,
            path,
            Once(given),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )
    run = sp.capture(str(path), given, fusion="as-executed")
    (gemm,) = (op for op in run.ops if op.type == "com.microsoft.QGemm")
    assert gemm.attributes["transB"] == 1
    (weight,) = (t for t in run.tensors if t.key.role is Role.PARAMETER and t.shape == (SIZE, SIZE))
    off = dequantize(operand_of(run, weight)) - net.weight.detach().numpy()
    steps = np.array(weight.quantization.scale)
    assert (np.abs(off) <= 0.501 * steps[:, None]).all()
