"""Recurrent layers of PyTorch against Core AI, which repeats them for every step."""

import copy
from functools import partial

import coreai_torch
import pytest
import torch

import syncpoint as sp
from models.coreai_files import quiet, save
from models.recurrent import drop_start, make_recurrent, swap_directions, swap_gates
from syncpoint.comparison.findings import Level

FORM = {"batch_first": True, "bidirectional": True, "num_layers": 2}


def convert(net, inputs, folder):
    with quiet():
        program = torch.export.export(net, inputs, strict=False)
        program = program.run_decompositions(coreai_torch.get_decomp_table())
        return str(save(folder / "target.aimodel", {"main": program}))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_layer_that_is_repeated_step_by_step_is_close(kind, tmp_path):
    net, inputs = make_recurrent(kind, "yh", **FORM)
    comparison = sp.compare(convert(net, inputs, tmp_path), net, inputs=inputs)
    assert str(comparison.verdict) == "close"
    assert not [f for f in comparison.findings if f.level is not Level.NOTE]
    paired = {row.reference.label for row in comparison.rows}
    assert {kind.lower(), f"{kind.lower()}:1"} <= paired


@pytest.mark.parametrize(
    "plant",
    [partial(swap_gates, name="weight_ih_l1"), swap_directions, drop_start],
    ids=["gates", "directions", "start"],
)
def test_a_fault_of_a_repeated_layer_is_named_there(plant, tmp_path):
    """Values cannot pair its results; the ops that read them do."""
    net, inputs = make_recurrent("LSTM", "yhc", **FORM)
    faulty = copy.deepcopy(net)
    plant(faulty)
    comparison = sp.compare(convert(faulty, inputs, tmp_path), net, inputs=inputs)
    assert {row.reference.key.op.op for row in comparison.rows if row.guilty} == {"lstm"}
