"""Sums, means and differences whose terms cancel are judged beside what they add up; a wrong one,
or one of wrong terms, still shows."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import syncpoint as sp
from syncpoint.comparison.storage.comparison_folder import load
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict


class Rounded(nn.Linear):
    """A linear layer that adds its products in another order, so that it rounds otherwise."""

    def forward(self, x):
        order = torch.arange(self.in_features).flip(0)
        return functional.linear(x[..., order], self.weight[:, order], self.bias)


class ThousandthOff(nn.Linear):
    def forward(self, x):
        return functional.linear(x, self.weight * 1.001, self.bias)


class Centered(nn.Module):
    """Results near zero: of numbers around zero, and of nearly equal numbers."""

    def __init__(self, linear=nn.Linear):
        super().__init__()
        torch.manual_seed(0)
        self.linear = linear(512, 64)

    def forward(self, x):
        again = x.double() @ self.linear.weight.double().T + self.linear.bias.double()
        x = once = self.linear(x)
        mean = x.mean(-1, keepdim=True)
        x = x - mean
        middle = self.average(x)
        total = x.sum(-1, keepdim=True)
        twice = total * 2
        variance, near_zero = torch.var_mean(x, -1, keepdim=True)
        difference = self.subtract(once, again.float())
        return x + middle + twice + near_zero + difference, variance

    def average(self, x):
        return x.mean(-1, keepdim=True)

    def subtract(self, left, right):
        return left - right


class FirstHalfOnly(Centered):
    def average(self, x):
        return x[..., :32].mean(-1, keepdim=True)


class OtherFactor(Centered):
    def subtract(self, left, right):
        return torch.sub(left, right, alpha=1.01)


INPUTS = (torch.randn(4, 512, generator=torch.Generator().manual_seed(1)),)
CANCELLING = {"mean_1", "sum_1", "var_mean", "sub_1", "mul"}


def compare(target):
    made = sp.compare(target.eval(), Centered().eval(), inputs=INPUTS)
    return made, {str(row.reference.key.op): row for row in made.rows if row.introduced}


def test_results_whose_terms_cancel_are_judged_beside_their_terms(tmp_path):
    made, _ = compare(Centered(Rounded))
    cancelled = {
        str(row.reference.key.op)
        for row in made.rows
        if row.introduced is not None and row.introduced.terms_error is not None
    }
    assert cancelled
    assert cancelled <= CANCELLING
    assert {row.verdict for row in made.rows} == {Verdict.CLOSE}
    assert made.verdict is Verdict.CLOSE
    row = next(row for row in made.rows if row.introduced and row.introduced.terms_error)
    assert row.numbers["psnr"] < PRESETS["f32"].psnr[0]
    assert "the terms of this result cancel" in row.reason
    made.save(tmp_path / "cancel.cmp")
    saved = load(tmp_path / "cancel.cmp")
    for again in (saved, saved.rejudged("auto")):
        assert [row.verdict for row in again.rows] == [row.verdict for row in made.rows]
        assert [row.introduced for row in again.rows] == [row.introduced for row in made.rows]


@pytest.mark.parametrize("wrong, op", [(FirstHalfOnly, "mean_1"), (OtherFactor, "sub_1")])
def test_a_wrong_result_near_zero_is_found(wrong, op):
    made, rows = compare(wrong(Rounded))
    assert made.verdict is Verdict.LARGE
    assert rows[op].introduced_verdict is Verdict.LARGE
    assert rows[op].verdict is not Verdict.CLOSE


def test_wrong_terms_show_in_the_results_that_add_them_up():
    _, rows = compare(Centered(ThousandthOff))
    assert rows["linear"].introduced_verdict is Verdict.LARGE
    assert rows["mean"].verdict is Verdict.INHERITED
    assert rows["mean"].introduced.terms_error > 1e-5


class Offset(nn.Module):
    """What is left after a large number is added and taken away decides the output."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 64)
        self.last = nn.Linear(64, 8)

    def forward(self, x):
        return self.last((self.linear(x) + 400) - 400)


def test_digits_that_an_output_needs_are_missed():
    """Beside its terms the difference is good, but the output is off."""
    inputs = (torch.randn(4, 64, generator=torch.Generator().manual_seed(1)),)
    made = sp.compare(Offset(), Offset(), inputs=inputs, target_options={"dtype": "f16"})
    rows = {str(row.reference.key.op): row for row in made.rows if row.introduced}
    assert made.exit_code() == 1
    assert rows["sub"].verdict is not Verdict.CLOSE
