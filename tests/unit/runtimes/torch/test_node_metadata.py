"""Names that come out of export in many spellings are one thing here."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from models.transformer import make_transformer, transformer_inputs
from syncpoint.errors import Unsupported
from syncpoint.runtimes.torch.arrays import same_bits, to_numpy, to_torch
from syncpoint.runtimes.torch.export import export
from syncpoint.runtimes.torch.node_metadata import _dotted, frames, json_value, module_of


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("", ""),
        ("layers.0.attention", "layers.0.attention"),
        ("layers.0@2", "layers.0"),
        ("L['self'].layers[0].mlp", "layers.0.mlp"),
        ("L['self']._modules['layers']._modules['0']", "layers.0"),
        ("getattr(L['self'].layers, '0').mlp", "layers.0.mlp"),
    ],
)
def test_module_paths(said, path):
    assert _dotted(said) == path


def test_strict_export_names_modules_and_lines_alike():
    model = make_transformer()
    known = {name: type(module).__name__ for name, module in model.named_modules()}
    programs = [export(model, transformer_inputs(), {}, ("ids",), strict) for strict in (0, 1)]
    told = [[(*module_of(n), frames(n)[-1].file) for n in p.nodes.values()] for p in programs]
    assert told[0] == told[1]
    assert all(known[path] == kind for path, kind, _ in told[0])


def test_attributes_are_json():
    said = [1, 2.5, -math.inf, None, True, torch.float32, torch.device("cpu"), (1, [2])]
    assert json_value(said) == [1, 2.5, "-inf", None, True, "f32", "cpu", [1, [2]]]
    assert json_value(torch.contiguous_format) == "contiguous_format"


@pytest.mark.parametrize(
    ("dtype", "numpy"),
    [
        (torch.bfloat16, ml_dtypes.bfloat16),
        (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        (torch.float8_e5m2, ml_dtypes.float8_e5m2),
        (torch.float16, np.float16),
        (torch.complex64, np.complex64),
        (torch.uint16, np.uint16),
    ],
)
def test_tensors_cross_over_bit_by_bit(dtype, numpy):
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.arange(0, 256, dtype=torch.uint8).repeat(size)
    tensor = bits.view(dtype).reshape(16, 16).t()
    array = to_numpy(tensor)
    assert array.dtype == np.dtype(numpy)
    back = to_torch(array)
    assert back.dtype == dtype
    assert same_bits(back, tensor)


def test_shapes_of_no_and_of_zero_elements_and_conjugates():
    assert to_numpy(torch.tensor(2.0, dtype=torch.bfloat16)).shape == ()
    assert to_numpy(torch.empty(0, 3)).shape == (0, 3)
    assert to_numpy(torch.tensor([1 + 2j]).conj())[0] == 1 - 2j
    read_only = np.ones(3, np.float32)
    read_only.flags.writeable = False
    assert to_torch(read_only).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(Unsupported):
        to_numpy(torch.empty(2, dtype=torch.float8_e4m3fnuz))
