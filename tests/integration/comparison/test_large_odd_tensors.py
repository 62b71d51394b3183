"""Large tensors that do not lie in their files as they are: none is measured by the raw bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import syncpoint as sp
from helpers.msprobe_dumps import tensor, write

SIDE = 2100
"""Of a square float32 tensor above the 16 MiB from which files are read piece by piece."""


def strided(folder, value):
    name = "Torch.mm.0.forward.output.0.pt"
    leaf = tensor(list(value.shape), data_name=name)
    data = {"Torch.mm.0.forward": {"input_args": [], "input_kwargs": {}, "output": [leaf]}}
    write(folder, data, task="tensor")
    (folder / "dump_tensor_data").mkdir()
    torch.save(value, folder / "dump_tensor_data" / name)
    return folder


def narrow(folder, value):
    """bf16 in a float32 array, as Core AI's tools write it."""
    (folder / "data").mkdir(parents=True)
    np.save(folder / "data" / "a_0000.npy", value.to(torch.bfloat16).float().numpy())
    entry = {
        "node_name": "a",
        "node_op": "call_function",
        "node_target": "aten.a.default",
        "data_file": "data/a_0000.npy",
        "shape": list(value.shape),
        "torch_dtype": "torch.bfloat16",
        "numel": value.numel(),
    }
    body = {"inputs": {}, "outputs": {"a": entry}, "intermediates": {}}
    (folder / "metadata.json").write_text(json.dumps(body))
    return folder


@pytest.mark.parametrize("kind", ["every other column", "transposed", "bf16 in float32"])
def test_a_difference_in_the_last_element_of_a_large_tensor_is_seen(kind, tmp_path):
    values = torch.randn(SIDE, 2 * SIDE, generator=torch.Generator().manual_seed(0))
    sides = []
    for side in ("target", "reference", "changed"):
        mine = values.clone()
        mine[-1, -2:] += 100.0 * (side == "changed")
        if kind == "bf16 in float32":
            sides.append(narrow(tmp_path / f"{side}.aimodelintermediates", mine))
        else:
            view = mine[:, ::2] if kind == "every other column" else mine.t()
            # One side as it lies, the other in order.
            view = view if side == "target" else view.contiguous()
            sides.append(strided(tmp_path / side, view))
    assert sp.compare(sides[0], sides[1]).verdict == "close"
    assert sp.compare(sides[0], sides[2]).verdict == "large"
