"""Ops that one side alone has: what a pipeline has done is done again, or nobody does it."""

import copy

import pytest
import torch
from torch import nn

import syncpoint as sp
from models.cnn import cnn_inputs, make_cnn

onnxruntime = pytest.importorskip("onnxruntime")


class Prepared(nn.Module):
    """A model that brings what it is given into its form by itself."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        return self.model((image - 0.45) / 0.225)


class Blocks(nn.Module):
    """Norm, then a product, twice; the second norm may be left out."""

    def __init__(self, skips=False):
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(2))
        self.products = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.skips = skips

    def forward(self, x):
        for at, (norm, product) in enumerate(zip(self.norms, self.products, strict=True)):
            x = x + torch.tanh(product(x if at and self.skips else norm(x)))
        return x


def first(target, reference, inputs, **options):
    found = sp.compare(target, reference, inputs=inputs, target_options=options)
    assert found.verdict == "large"
    return found.findings[0]


@pytest.mark.parametrize("how", ["torch", "as-executed", "unfused"])
def test_a_model_that_prepares_what_is_prepared_is_named(how, tmp_path):
    model, inputs = make_cnn().eval(), cnn_inputs()
    target, options = Prepared(copy.deepcopy(model)).eval(), {}
    if how != "torch":
        torch.onnx.export(target, inputs, dynamo=True, verbose=False).save(tmp_path / "m.onnx")
        target, options = tmp_path / "m.onnx", {"fusion": how}
    found = first(target, model, inputs, **options)
    assert (found.cause, found.kind) == ("processing", "ops-added")
    assert found.ops[:2] == ("sub", "div")
    assert "the target has extra ops sub and div before" in found.title
    assert "remove sub and div from the target" in found.next


def test_a_model_that_nobody_prepares_for_is_named():
    model, inputs = make_cnn().eval(), cnn_inputs()
    found = first(model, Prepared(copy.deepcopy(model)).eval(), inputs)
    assert (found.cause, found.kind) == ("processing", "ops-dropped")
    assert found.reference_ops[:2] == ("sub", "div")
    assert "add sub and div to the target" in found.next


def test_a_norm_that_is_left_out_is_named():
    x = 3 * torch.randn(4, 24, generator=torch.Generator().manual_seed(1)) + 1
    found = first(Blocks(skips=True).eval(), Blocks().eval(), (x,))
    assert (found.cause, found.kind) == ("implementation", "ops-dropped")
    assert found.reference_ops[0] == "layer_norm_1"
    assert "the reference applies layer_norm_1 first" in found.title


def test_a_norm_that_is_put_in_is_named():
    x = 3 * torch.randn(4, 24, generator=torch.Generator().manual_seed(1)) + 1
    found = first(Blocks().eval(), Blocks(skips=True).eval(), (x,))
    assert (found.cause, found.kind, found.ops[0]) == (
        "implementation",
        "ops-added",
        "layer_norm_1",
    )
