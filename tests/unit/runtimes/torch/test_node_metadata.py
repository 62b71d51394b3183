"""Names that come out of export in many spellings are one thing here."""

import math

import pytest
import torch

from models.transformer import make_transformer, transformer_inputs
from syncpoint.runtimes.torch.export import export_program
from syncpoint.runtimes.torch.node_metadata import (
    _to_dotted_path,
    find_module,
    find_source_frames,
    to_json_value,
)


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
    assert _to_dotted_path(said) == path


def test_strict_export_names_modules_and_lines_alike():
    model = make_transformer()
    known = {name: type(module).__name__ for name, module in model.named_modules()}
    programs = [
        export_program(model, transformer_inputs(), {}, ("ids",), strict) for strict in (0, 1)
    ]
    told = [
        [(*find_module(n), find_source_frames(n)[-1].file) for n in p.nodes.values()]
        for p in programs
    ]
    assert told[0] == told[1]
    assert all(known[path] == kind for path, kind, _ in told[0])


def test_attributes_are_json():
    said = [1, 2.5, -math.inf, None, True, torch.float32, torch.device("cpu"), (1, [2])]
    assert to_json_value(said) == [1, 2.5, "-inf", None, True, "f32", "cpu", [1, [2]]]
    assert to_json_value(torch.contiguous_format) == "contiguous_format"
