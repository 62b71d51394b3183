"""Inputs that are made up in the shapes that one of the two models declares."""

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from models.onnx_files import quiet
from syncpoint.errors import NoShape
from syncpoint.run.model import Role


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 4)

    def forward(self, image):
        return torch.relu(self.layer(image))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "net.onnx"
    with quiet():
        program = torch.onnx.export(Net().eval(), (torch.ones(3, 6),), dynamo=True, verbose=False)
    program.save(path)
    return path


@pytest.mark.parametrize("inputs", ["random:3", "ones", "zeros"])
@pytest.mark.parametrize("first", ["file", "model"])
def test_one_side_says_the_shape_for_both(file, first, inputs):
    sides = (str(file), Net().eval()) if first == "file" else (Net().eval(), str(file))
    comparison = sp.compare(*sides, inputs=inputs)
    assert comparison.verdict == "close" and not comparison.inputs_differ
    given = [r for r in comparison.rows if r.target.key.role is Role.MODEL_INPUT]
    assert [r.reference.shape for r in given] == [(3, 6)]
    assert (np.abs(given[0].numbers["max_abs"]) == 0).all()


def test_where_neither_says_it_the_cure_is_told():
    with pytest.raises(NoShape, match="--shape image="):
        sp.compare(Net().eval(), Net().eval(), inputs="random")
