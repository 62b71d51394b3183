"""ONNX files for tests: real exports of the nets, made once a process, and quantized ones."""

import logging
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from models.cnn import cnn_inputs, make_cnn
from models.gpt import make_small_gpt, small_gpt_inputs
from models.resnet import make_small_resnet, small_resnet_inputs
from models.transformer import make_transformer, transformer_inputs

NETS = {
    "cnn": (make_cnn, cnn_inputs),
    "resnet": (make_small_resnet, small_resnet_inputs),
    "transformer": (make_transformer, transformer_inputs),
    "gpt": (make_small_gpt, small_gpt_inputs),
}


@cache
def exported(net: str, half: bool = False):
    """What the exporter returns for a net."""
    make, inputs = NETS[net]
    model, given = make(), inputs()
    if half:
        model = model.half()
        given = tuple(v.half() if v.is_floating_point() else v for v in given)
    with quiet():
        return torch.onnx.export(model, given, dynamo=True, verbose=False)


@contextmanager
def quiet():
    """Exporter and quantizer tell of their troubles on every channel there is."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def program(net: str):
    """The exported program that the ONNX graph was made from."""
    return exported(net).exported_program


def onnx_file(folder: Path, net: str, form: str = "f32") -> Path:
    """`net` as an .onnx file in one of the forms f32, f16, qdq (int8), products (int8
    in convolutions and products of matrices alone), dynamic (int8)."""
    path = folder / f"{net}.{form}.onnx"
    plain = exported(net, form == "f16").model_proto
    if form in ("f32", "f16"):
        onnx.save(plain, path)
        return path
    before = folder / f"{net}.before.onnx"
    onnx.save(plain, before)
    with quiet():
        if form == "dynamic":
            quantize_dynamic(before, path, weight_type=QuantType.QInt8)
        else:
            quantize_static(
                before,
                path,
                _Samples(net),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=net == "cnn",
                reduce_range=True,
                op_types_to_quantize=["Conv", "Gemm", "MatMul"] if form == "products" else None,
            )
    return path


def feeds(net: str, form: str = "f32") -> dict[str, np.ndarray]:
    """The inputs of a net by the names its ONNX graph has for them."""
    names = [i.name for i in exported(net).model_proto.graph.input]
    values = [v.numpy() for v in NETS[net][1]()]
    if form == "f16":
        values = [v.astype(np.float16) if v.dtype == np.float32 else v for v in values]
    return dict(zip(names, values, strict=True))


class _Samples(CalibrationDataReader):
    def __init__(self, net: str):
        names = [i.name for i in exported(net).model_proto.graph.input]
        made = (NETS[net][1](seed=seed) for seed in range(1, 5))
        self._left = iter([{n: v.numpy() for n, v in zip(names, m, strict=True)} for m in made])

    def get_next(self):
        return next(self._left, None)
