"""PyTorch against the Core AI asset that was made from it."""

import copy
import os
from functools import cache

import numpy as np
import pytest
import torch

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.matching_oracle import Twins, share_paired
from models.coreai_files import NETS, aimodel, cached_steps, decomposed, in_type, save
from models.resnet import make_small_resnet, resnet_inputs
from syncpoint.run.model import Part, Role
from syncpoint.runtimes.protocol import Inputs
from syncpoint.workflow.compare_request import ComparisonRequest

WORSE = {"moderate", "large", "amplified"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("coreai")


@cache
def reference_of(net):
    make, inputs = NETS[net]
    return sp.capture(make(), inputs())


@cache
def compared(folder, net, form="f32", release=False):
    """The asset in this form against the float32 model, with both runs."""
    target = sp.capture(str(aimodel(folder, net, form, release)), in_type(net, form)[1])
    return sp.compare(target, reference_of(net)), target, reference_of(net)


@pytest.mark.parametrize(
    ("net", "release"),
    [
        *((net, False) for net in ("cnn", "resnet", "attention", "transformer", "gpt")),
        # Untrained layer norms, as gpt has them, change nothing in their last two steps: values
        # alone do not tell which step is the whole.
        *((net, True) for net in ("cnn", "resnet", "attention", "transformer")),
    ],
)
def test_a_sound_conversion_is_close_and_pairs_what_can_be_paired(folder, net, release):
    """Against the oracle that holds every tensor against every other one."""
    comparison, target, reference = compared(folder, net, release=release)
    assert not {str(row.verdict) for row in comparison.rows} & WORSE, str(comparison)
    assert comparison.verdict == "close"
    assert comparison.outputs and comparison.exit_code() == 0
    twins = Twins(target, reference, 1e-4)
    assert share_paired(comparison, twins) >= 0.95
    for row in comparison.rows:
        if row.target.key.role is Role.OUTPUT:
            assert twins.together(row.target.key, row.reference.key) is not False, row


@pytest.mark.parametrize("release", [False, True])
def test_a_transposition_that_core_ai_merged_is_compared_through_a_view(folder, release):
    """That of the keys, with the one inside the attention."""
    comparison, _, _ = compared(folder, "attention", release=release)
    (keys,) = [row for row in comparison.rows if row.reference.label == "transpose_1"]
    assert keys.view == "transpose(0,1,3,2)" and "axes that both ops record" in keys.evidence
    assert keys.numbers["max_abs"] < 1e-5


@pytest.mark.parametrize("net", ["cnn", "transformer"])
def test_with_debug_information_pairs_come_from_origins_and_lines(folder, net):
    comparison, _, _ = compared(folder, net)
    told = [row for row in comparison.rows if row.target.key.role is Role.OUTPUT]
    by_line = [r for r in told if "source line" in r.evidence or "made from" in r.evidence]
    assert len(by_line) >= 0.7 * len(told)
    assert comparison.coverage.target >= 0.6


def test_a_folded_batch_norm_is_no_error(folder):
    """The asset's own mapping pairs the folded convolution with the bare one."""
    comparison, _, _ = compared(folder, "resnet")
    folded = [row for row in comparison.rows if "folded into" in row.evidence]
    assert len(folded) == 20
    assert all(row.reference.key.op.op.startswith("batch_norm") for row in folded)
    assert {str(row.verdict) for row in folded} == {"close"}


@pytest.mark.parametrize(
    ("net", "form"),
    [("cnn", "f16"), ("attention", "f16"), ("transformer", "f16"), ("gpt", "bf16")],
)
def test_half_precision_has_nothing_large(folder, net, form):
    comparison, target, _ = compared(folder, net, form)
    assert target.info.precision.split("+")[0] == form
    assert not {str(row.verdict) for row in comparison.rows} & {"large", "amplified"}
    assert comparison.coverage.reference > 0.7


def test_half_precision_with_folded_batch_norms_has_nothing_large(folder):
    (image,) = resnet_inputs(size=32)
    model = make_small_resnet()
    half = (image.half(),)
    program = decomposed(copy.deepcopy(model).half(), half)
    path = save(folder / "resnet.half.aimodel", {"main": program})
    comparison = sp.compare(sp.capture(str(path), half), sp.capture(model, (image,)))
    assert not {str(row.verdict) for row in comparison.rows} & {"large", "amplified"}
    assert len([row for row in comparison.rows if "folded into" in row.evidence]) == 20


@pytest.mark.parametrize("release", [False, True])
def test_a_wrong_weight_is_found_where_it_is_used(folder, release):
    make, inputs = NETS["transformer"]
    model = make()
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.layers[1].mlp.up.weight.mul_(1.5)
    path = folder / f"wrong{release}.aimodel"
    save(path, {"main": decomposed(broken, inputs())}, release)
    comparison = sp.compare(str(path), model, inputs=inputs())
    assert comparison.verdict == "large"
    (guilty,) = comparison.first_divergence
    assert guilty.reference.key.op.op == "linear_6"
    assert guilty.reference.module == "layers.1.mlp.up"


def test_a_missing_op_is_not_matched_away(folder):
    class Net(torch.nn.Module):
        def __init__(self, active):
            super().__init__()
            self.up = torch.nn.Linear(16, 16)
            self.down = torch.nn.Linear(16, 16)
            self.active = active

        def forward(self, x):
            x = self.up(x)
            x = torch.tanh(x) if self.active else x
            return self.down(x) * 2

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sound, x = Net(True).eval(), 3 * torch.randn(4, 16)
    lacking = Net(False).eval()
    lacking.load_state_dict(sound.state_dict())
    path = save(folder / "lacking.aimodel", {"main": decomposed(lacking, (x,))})
    comparison = sp.compare(str(path), sound, inputs=(x,))
    assert comparison.verdict == "large"
    assert comparison.exit_code() == 1


def test_steps_of_two_assets_are_compared_step_by_step(folder):
    steps = [Inputs(given) for given in cached_steps()]
    halves = [Inputs((t.half(), p)) for t, p in cached_steps()]
    target = sp.capture(str(aimodel(folder, "cached", "f16")), halves, steps=True)
    reference = sp.capture(str(aimodel(folder, "cached")), steps, steps=True)
    comparison = sp.compare(target, reference)
    assert not {str(row.verdict) for row in comparison.rows} & {"large", "amplified"}
    parts = {row.target.key.part for row in comparison.outputs}
    assert parts == {Part(step=n) for n in range(3)}


def test_the_command_line(folder, tmp_path):
    aimodel(folder, "cnn")
    np.savez(folder / "x.npz", image=NETS["cnn"][1]()[0].numpy())
    found = syncpoint(
        "capture", "cnn.f32.aimodel", "--inputs", "x.npz", "-o", str(tmp_path / "a.run"),
        cwd=folder, code=0,
    )  # fmt: skip
    assert "coreai" in found.stdout and "CPU interpreter" in found.stdout
    found = syncpoint(
        "capture", "cnn.f32.aimodel", "--inputs", "random:0", "--set", "function=other",
        "-o", str(tmp_path / "b.run"), cwd=folder,
    )  # fmt: skip
    assert found.returncode == 2
    assert "one of: main" in found.stderr
    assert "--set steps=False" in syncpoint("doctor", cwd=folder, code=0).stdout


def test_a_comparison_notes_when_an_asset_was_written(folder):
    """So that --resume does not go on with what another asset gave."""
    path = aimodel(folder, "pieces")
    asked = [
        ComparisonRequest(
            target=str(path),
            reference="r.run",
            inputs="x.npz",
            target_options={},
            reference_options={},
            shapes={},
            reference_model=None,
        )
        for _ in range(2)
    ]
    before = asked[0].as_names()
    later = (path / "main.mlirb").stat().st_mtime + 5
    os.utime(path / "main.mlirb", (later, later))
    assert asked[1].as_names() != before
