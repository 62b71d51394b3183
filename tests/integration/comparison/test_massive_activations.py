"""Nets with massive activations, as language models have: the clean are close, the hurt are not."""

import pytest
import torch

import syncpoint as sp
from models.gpt import gpt_inputs, make_gpt
from syncpoint.comparison.introduced_error.expected_error import BESIDE_OUTLIERS
from syncpoint.metrics.verdict import Verdict

SIZE = 1000.0
CHANNEL = 17


def make_massive(seed=0):
    """A decoder whose first layer writes a massive channel; the norms after it lift the others."""
    model = make_gpt(2, 96, 3, 200, 24, "gelu", seed)
    model.layers[0].down.bias.data[CHANNEL] += SIZE
    for norm in (model.layers[1].ln1, model.layers[1].ln2, model.norm):
        norm.weight.data *= 0.4 * SIZE / 96**0.5
        norm.weight.data[CHANNEL] = 1.0
    return model


def inputs():
    return gpt_inputs(24, 200)


def hurt(model):
    """The weights that write the other channels are wrong."""
    weight = model.layers[0].down.weight.data
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(3))
    noise[CHANNEL] = 0
    weight *= 1 + 0.25 * noise
    return model


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_clean_net_with_massive_activations_is_close_and_nobody_is_guilty(dtype):
    model = make_massive()
    comparison = sp.compare(model, model, inputs=inputs(), target_options={"dtype": dtype})
    measured = [row for row in comparison.rows if row.numbers and row.numbers.get("bulk_sqnr")]
    assert len(measured) >= 3
    assert {row.verdict for row in comparison.rows} == {Verdict.CLOSE}, str(comparison)
    assert not [row for row in comparison.rows if row.guilty]


def test_an_op_that_ruins_all_but_the_massive_channel_is_guilty():
    """By its rms it does less than rounding that channel costs."""
    clean = make_massive()
    reference = sp.capture(clean, inputs())
    target = sp.capture(hurt(make_massive()), inputs(), dtype="bf16")
    comparison = sp.compare(target, reference, reference_model=clean, diagnose=False)
    hidden = [row for row in comparison.rows if "hidden by" in row.reason]
    assert hidden and all(row.numbers["psnr"] > 50 and row.numbers["sqnr"] > 40 for row in hidden)
    (product,) = [row for row in hidden if "linear" in row.reference.type]
    assert product.verdict is Verdict.LARGE and product.guilty
    assert product.introduced.rmse < 4 * product.introduced.expected
    assert BESIDE_OUTLIERS in product.notes
    assert comparison.verdict == "large"
