"""A Core AI asset against a file of intermediates: no flag, no torch, no false alarm."""

import warnings

import pytest
import torch
from coreai_torch.debugging.torch_utils import save_intermediates as apple_saves

import syncpoint as sp
from helpers.commands import syncpoint
from models.coreai_files import NETS, aimodel, decomposed, save
from syncpoint.run.model import Role

WORSE = {"moderate", "large", "amplified", "inherited"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("intermediates")


def intermediates(folder, net, kind):
    """Of the program as it is converted, complete or as Apple's tool saves it, or of the model as
    it was written."""
    make, inputs = NETS[net]
    path = folder / f"{net}-{kind}.aimodelintermediates"
    if not path.exists():
        given = inputs()
        program = torch.export.export(make(), given) if kind == "written" else None
        program = program or decomposed(make(), given)
        saves = apple_saves if kind == "apple" else sp.save_intermediates
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saves(program, given, str(folder), model_name=path.stem)
    return path


def ops(comparison):
    return [r for r in comparison.rows if r.target.key.role is Role.OUTPUT]


@pytest.mark.parametrize("kind", ["converted", "apple", "written"])
@pytest.mark.parametrize("net", ["cnn", "resnet", "attention", "transformer"])
def test_a_sound_asset_raises_no_alarm(folder, net, kind):
    comparison = sp.compare(str(aimodel(folder, net)), str(intermediates(folder, net, kind)))
    assert not {str(r.verdict) for r in comparison.rows} & WORSE, str(comparison)
    if kind == "apple":
        # What Apple's tool saves is little: of ops with several outputs nothing, no views.
        assert comparison.coverage.reference >= 0.55
        assert comparison.coverage.target < 0.4
        assert comparison.coverage.target_covered >= 0.65
    else:
        assert comparison.coverage.target == 1
    assert comparison.exit_code() == 0
    assert "as far as compared" not in repr(comparison)


@pytest.mark.parametrize("kind", ["converted", "apple", "written"])
def test_a_wrong_weight_is_the_first_divergence_with_its_line(folder, kind):
    make, inputs = NETS["transformer"]
    model = make()
    model.layers[1].mlp.up.weight.data *= 1.5
    path = folder / "wrong.aimodel"
    if not path.exists():
        save(path, {"main": decomposed(model, inputs())})
    comparison = sp.compare(str(path), str(intermediates(folder, "transformer", kind)))
    assert comparison.exit_code() == 1
    first = comparison.first_divergence[0]
    # In the converted program the transposed weight is a tensor of its own.
    wanted = {"converted": "permute_16", "apple": "addmm_6", "written": "linear_6"}[kind]
    assert first.reference.label == wanted
    assert "transformer.py" in first.target.source


def test_from_the_command_line_it_takes_no_flag(folder):
    asset, reference = aimodel(folder, "cnn"), intermediates(folder, "cnn", "converted")
    found = syncpoint("compare", str(asset), str(reference), "--csv", "out.csv", cwd=folder, code=0)
    assert "CPU interpreter" in found.stdout and "close" in found.stdout
    header, *rows = (folder / "out.csv").read_text().splitlines()
    assert {"psnr", "mae", "mse", "max_abs", "mean_rel"} <= set(header.split(","))
    assert len(rows) >= 12
