"""Nobody guilty, the output off: growth with depth is told from one op that amplifies."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp


class Deep(nn.Module):
    """Layers that make errors grow, as far as their gain is above one."""

    def __init__(self, depth, gain, cancels=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(depth))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=gain / 8)
        self.cancels = cancels

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.sin(layer(x))
            if self.cancels and number == 2:
                x = (x + 100.0) - 100.0
        return x


def compared(net, dtype):
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    return sp.compare(net.eval(), net.eval(), inputs=(x,), target_options={"dtype": dtype})


@cache
def growing(dtype, gain):
    return compared(Deep(24, gain), dtype)


@pytest.mark.parametrize(("dtype", "gain"), [("bf16", 1.6), ("f16", 2.2)])
def test_growth_with_depth_is_named_and_finer_numbers_are_tried(dtype, gain):
    comparison = growing(dtype, gain)
    first = comparison.findings[0]
    assert (first.cause, first.level) == ("accumulation", "cause")
    assert first.kind.startswith("growth") and first.confidence >= 0.9
    assert "in float32 the output's relative error is 0 instead of" in first.text


def test_the_rate_of_growth_is_that_of_the_rows():
    comparison = growing("f16", 2.2)
    errors = [r.numbers["rel_l2"] for r in comparison.rows if r.target.key.role == "output"]
    errors = np.asarray(errors)[: int(np.argmax(np.asarray(errors) > 0.3)) + 1]
    rate = np.exp(np.polyfit(np.arange(len(errors)), np.log(errors), 1)[0]) - 1
    assert f"by {100 * rate:.2g} % per op" in comparison.findings[0].text


def test_an_op_that_amplifies_is_told_from_growth():
    first = compared(Deep(6, 1.0, cancels=True), "f16").findings[0]
    assert (first.cause, first.kind, first.ops[0]) == ("accumulation", "cancellation", "sub")
    assert "add" in first.ops


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_sound_net_has_no_such_finding(dtype):
    assert not compared(Deep(6, 1.0), dtype).findings


class Turning(nn.Module):
    """Layers that turn what they are given and stretch nothing: errors add up and do not grow."""

    def __init__(self, depth):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(depth))
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_errors_that_merely_add_up_are_no_reason_to_stop():
    comparison = compared(Turning(250), "bf16")
    assert comparison.verdict == "moderate"
    (first,) = comparison.findings
    assert (first.cause, first.level) == ("accumulation", "note")
    errors = [r.introduced.rel_l2 for r in comparison.rows if r.introduced]
    (output,) = comparison.outputs
    added, final = np.linalg.norm(errors), output.numbers["rel_l2"]
    assert added / 2 < final < 2 * added
    assert f"add {added:.3g} in total; the output's error is {final:.3g}" in first.text
