"""Planted faults in weights are named, on runtimes that show their parameters and that do not."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.onnx_exports import export
from models.cnn import cnn_inputs, make_cnn
from models.transformer import make_transformer, transformer_inputs


def shuffled(count, seed=3):
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


FAULTS = {
    "reversed": ("classifier", "permuted", lambda w: w.flip(0)),
    "scaled": ("conv", "scaled", lambda w: 1.5 * w),
    "outputs": ("block.conv1", "permuted", lambda w: w[shuffled(8)]),
    "inputs": ("block.conv1", "permuted", lambda w: w[:, shuffled(8)]),
    "transposed": ("block.conv2", "transposed", lambda w: w.transpose(0, 1).clone()),
    "half": ("conv", "rounded", lambda w: w.half().float()),
    "bfloat": ("classifier", "rounded", lambda w: w.bfloat16().float()),
    "zeroed": ("block.conv1", "zeroed", torch.zeros_like),
    "negative": ("block.conv2", "sign-flipped", torch.neg),
    "channel": (
        "conv",
        "scaled",
        lambda w: w * torch.tensor([1.0, 1, 1.3, 1, 1, 1, 1, 1])[:, None, None, None],
    ),
    "other": (
        "conv",
        "changed",
        lambda w: w + 0.02 * torch.sin(torch.arange(w.numel()) ** 2.0).view_as(w),
    ),
}


@pytest.fixture(scope="module")
def reference():
    return sp.capture(make_cnn(), cnn_inputs())


def broken(module, change):
    model = make_cnn()
    weight = model.get_submodule(module).weight
    with torch.no_grad():
        weight.copy_(change(weight.detach().clone()))
    return model


@pytest.mark.parametrize("fault", FAULTS)
def test_a_recorded_weight_that_differs_is_named_with_how(reference, fault):
    module, kind, change = FAULTS[fault]
    found = sp.compare(broken(module, change), reference, inputs=cnn_inputs()).findings
    assert found[0].cause == "weights" and found[0].kind == kind
    assert found[0].confidence >= 0.9 and f"{module}.weight" in found[0].title
    assert found[0].module == module and len(found) == 1
    assert all(len(sentence) <= 160 for sentence in found[0].evidence)


def test_swapped_layers_name_each_other(reference):
    model = make_cnn()
    one, other = model.block.conv1.weight, model.block.conv2.weight
    with torch.no_grad():
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)
    found = sp.compare(model, reference, inputs=cnn_inputs()).findings
    assert [f.kind for f in found] == ["swapped", "swapped"]
    assert {f.title for f in found} == {
        "the target's block.conv1.weight holds the values of block.conv2.weight",
        "the target's block.conv2.weight holds the values of block.conv1.weight",
    }


@pytest.mark.parametrize(
    ("fault", "fusion"),
    [("outputs", "as-executed"), ("scaled", "as-executed"), ("transposed", "unfused")],
)
def test_a_folded_weight_is_inferred_from_what_the_op_gives(reference, fault, fusion):
    module, kind, change = FAULTS[fault]
    program = export(broken(module, change), cnn_inputs())
    target = sp.capture(program, tuple(x.numpy() for x in cnn_inputs()), fusion=fusion)
    first = sp.compare(target, reference).findings[0]
    assert first.cause == "weights" and f"{module}.weight" in first.title
    assert first.kind == kind


class Folded(nn.Module):
    """A batch norm that an export folds into the convolution before it."""

    def __init__(self, checkpoint=0):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)
        with torch.no_grad():
            for values in (self.norm.running_var, self.norm.weight):
                values.uniform_(0.5, 2)
            torch.manual_seed(checkpoint)
            self.conv.weight.normal_(std=0.1)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).mean((2, 3)))


def test_a_weight_of_another_checkpoint_is_named_behind_a_norm_that_was_folded_in():
    """There are fewer places than unknowns, so that it cannot be solved for."""
    x = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(1))
    program = export(Folded(7).eval(), (x,))
    target = sp.capture(program, (x.numpy(),), fusion="unfused")
    first = sp.compare(target, sp.capture(Folded().eval(), (x,))).findings[0]
    assert (first.cause, first.kind, first.level) == ("weights", "changed", "cause")
    assert "conv.weight" in first.title and first.confidence >= 0.9


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(16, 24), nn.Dropout(0.1), nn.Linear(24, 8)

    def forward(self, x):
        return self.last(self.drop(torch.tanh(self.first(x))))


@pytest.mark.parametrize("rows", [8, 64])
def test_a_dropout_that_still_scales_is_no_scaled_weight(tmp_path, rows):
    """The target shows what its ops give and no weight; from 64 rows it can be solved for."""
    net = Dropped().eval()
    x = torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        made = {"linear": net.first(x)}
        made["tanh"] = torch.tanh(made["linear"])
        made["linear_1"] = net.last(0.9 * made["tanh"])
    np.savez(tmp_path / "target.npz", **{name: value.numpy() for name, value in made.items()})
    comparison = sp.compare(tmp_path / "target.npz", sp.capture(net, (x,)))
    assert [r.target.label for r in comparison.rows if r.guilty] == ["linear_1"]
    assert not [f for f in comparison.findings if f.cause == "weights"]


def test_a_transposed_weight_of_a_transformer_is_named():
    model = make_transformer()
    bad = copy.deepcopy(model)
    weight = bad.get_submodule("layers.0.attention.out").weight
    with torch.no_grad():
        weight.copy_(weight.T.clone())
    args = transformer_inputs()
    target = sp.capture(export(bad, args), tuple(x.numpy() for x in args), fusion="unfused")
    first = sp.compare(target, sp.capture(model, args)).findings[0]
    assert (first.cause, first.kind) == ("weights", "transposed")


def test_another_checkpoint_is_one_finding():
    args = transformer_inputs()
    found = sp.compare(make_transformer(seed=7), make_transformer(), inputs=args).findings
    causes = [f for f in found if f.level == "cause"]
    assert causes and all(f.cause == "weights" for f in causes[:1])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_clean_weights_are_no_finding(reference, dtype):
    found = sp.compare(make_cnn(), reference, inputs=cnn_inputs(), target_options={"dtype": dtype})
    assert not [f for f in found.findings if f.level != "note"]


def test_a_row_of_zeros_is_looked_for_in_the_conversion(reference):
    target = broken("classifier", lambda w: w * (torch.arange(len(w)) != 3)[:, None])
    (found,) = sp.compare(target, reference, inputs=cnn_inputs()).findings
    assert "has row 3 set to zero" in found.title
    assert found.next == "check where the conversion sets row 3 of classifier.weight to zero"
