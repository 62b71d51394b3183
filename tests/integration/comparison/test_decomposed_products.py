"""A product with its bias in one op against a product and an addition: the two are paired where
both include the bias, also if nothing that follows agrees."""

import pytest
import torch
from torch import nn

import syncpoint as sp
from syncpoint.comparison.findings import Level

FORMS = {
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "linear": lambda x, w, b: nn.functional.linear(x, w.t(), b),
    "mm": lambda x, w, b: torch.mm(x, w) + b,
}
LAYERS = 3


class Stack(nn.Module):
    """Three products with biases, computed in one of the forms."""

    def __init__(self, form):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.form, self.without_bias = form, None
        for name, shape, scale in (("w", (32, 32), 1 / 6), ("b", (32,), 1.0)):
            tensors = [torch.randn(shape, generator=generator) * scale for _ in range(LAYERS)]
            setattr(self, name, nn.ParameterList(nn.Parameter(tensor) for tensor in tensors))

    def forward(self, x):
        for layer, (w, b) in enumerate(zip(self.w, self.b, strict=True)):
            x = torch.mm(x, w) if layer == self.without_bias else FORMS[self.form](x, w, b)
            x = torch.relu(x) if layer < LAYERS - 1 else x
        return x


class Convolutions(nn.Module):
    """Three convolutions whose biases are added by an op of their own, or not."""

    def __init__(self, has_bias):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.c = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, bias=has_bias) for _ in range(LAYERS))
        self.b = nn.ParameterList()
        for conv in self.c:
            conv.weight.data = torch.randn(8, 8, 3, 3, generator=generator) / 8
            bias = torch.randn(8, generator=generator)
            if has_bias:
                conv.bias.data = bias
            else:
                self.b.append(nn.Parameter(bias.view(8, 1, 1)))

    def forward(self, x):
        for layer, conv in enumerate(self.c):
            x = conv(x) + self.b[layer] if self.b else conv(x)
            x = torch.relu(x) if layer < LAYERS - 1 else x
        return x


ROWS = torch.randn(4, 32, generator=torch.Generator().manual_seed(7))
IMAGE = torch.randn(2, 8, 10, 10, generator=torch.Generator().manual_seed(7))
FORM_PAIRS = [("addmm", "mm"), ("mm", "addmm"), ("linear", "mm"), ("mm", "linear")]


def causes(comparison):
    return [f for f in comparison.findings if f.level is not Level.NOTE]


def partner_of_product(comparison, layer):
    """The pairs of the results with their biases, of one layer."""
    suffix = f"_{layer}" if layer else ""
    names = [f"{name}{suffix}" for name in ("addmm", "linear", "add", "conv2d")]
    return [
        (row.target.label, row.reference.label)
        for row in comparison.rows
        if row.target.label in names and row.reference.label in names
    ]


@pytest.mark.parametrize(("target", "reference"), FORM_PAIRS)
def test_a_clean_pair_is_close(target, reference):
    comparison = sp.compare(Stack(target), Stack(reference), inputs=ROWS)
    assert comparison.exit_code() == 0 and not causes(comparison)
    assert all(len(partner_of_product(comparison, layer)) == 1 for layer in range(LAYERS))


@pytest.mark.parametrize(("target", "reference"), FORM_PAIRS)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_wrong_weight_is_named_at_its_product(target, reference, layer):
    wrong = Stack(target)
    wrong.w[layer].data[3] *= 1.3
    comparison = sp.compare(wrong, Stack(reference), inputs=ROWS)
    (finding,) = causes(comparison)
    assert finding.cause == "weights" and f"w.{layer} has row 3 multiplied by 1.3" in finding.title
    assert len(partner_of_product(comparison, layer)) == 1


@pytest.mark.parametrize(("target", "reference"), FORM_PAIRS[:2])
def test_a_missing_bias_is_named(target, reference):
    wrong = Stack(target)
    wrong.without_bias = 1
    (finding,) = causes(sp.compare(wrong, Stack(reference), inputs=ROWS))
    assert finding.cause == "implementation"
    assert "its bias" in finding.title or "first operand instead of a sum" in finding.title


@pytest.mark.parametrize("has_bias", [True, False])
def test_convolutions_agree_where_only_the_model_output_follows(has_bias):
    comparison = sp.compare(Convolutions(has_bias), Convolutions(not has_bias), inputs=IMAGE)
    assert comparison.exit_code() == 0 and not causes(comparison)
    assert all(len(partner_of_product(comparison, layer)) == 1 for layer in range(LAYERS))


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_wrong_kernel_is_named_as_a_parameter(has_bias, layer):
    wrong = Convolutions(has_bias)
    wrong.c[layer].weight.data[2] *= 1.3
    comparison = sp.compare(wrong, Convolutions(not has_bias), inputs=IMAGE)
    (finding,) = causes(comparison)
    assert finding.cause == "weights"
    assert finding.title.startswith(f"the target's c.{layer}.weight has axis-0 slices 2 multiplied")


def test_a_weight_stays_compared_when_only_a_bias_was_folded():
    comparison = sp.compare(Convolutions(True), Convolutions(False), inputs=IMAGE)
    labels = {row.target.label for row in comparison.rows}
    assert {f"c.{layer}.weight" for layer in range(LAYERS)} <= labels


class Renamed(nn.Module):
    """The convolutions with biases under other names."""

    def __init__(self):
        super().__init__()
        self.layers = Convolutions(True).c

    def forward(self, x):
        for layer, conv in enumerate(self.layers):
            x = torch.relu(conv(x)) if layer < LAYERS - 1 else conv(x)
        return x


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda conv: conv.bias.data.zero_(), "layers.1.bias is zero everywhere"),
        (lambda conv: conv.weight.data.copy_(conv.weight.data.flip(-1)), "reversed along axis 3"),
    ],
    ids=["zeroed", "flipped"],
)
def test_a_wrong_parameter_of_another_name_is_no_fault_of_its_op(change, words):
    """The op that reads it gives the right numbers for it: it neither ignores nor reverses it."""
    wrong = Renamed()
    change(wrong.layers[1])
    (finding,) = causes(sp.compare(wrong, Convolutions(True), inputs=IMAGE))
    assert finding.cause == "weights" and words in finding.title
