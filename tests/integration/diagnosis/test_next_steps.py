"""The next step of a finding fits its fault, and its numbers say on which side a change is made."""

import pytest
import torch
from torch import nn

import syncpoint as sp


class Steps(nn.Module):
    def __init__(self, fault=""):
        super().__init__()
        self.fault = fault

    def forward(self, x):
        x = x - (x.amax(-1, True) if self.fault == "maximum" else x.mean(-1, True))
        x = nn.functional.leaky_relu(x, 0.1 if self.fault == "slope" else 0.01)
        x = x @ torch.triu(torch.ones(8, 8), 2 if self.fault == "diagonal" else 1)
        return torch.sin(x * (16 if self.fault == "scale" else 4))


@pytest.mark.parametrize(
    ("fault", "step"),
    [
        ("maximum", "in the target, replace the maximum with the mean (mean of the reference)"),
        ("slope", "set the slope of leaky_relu to 0.01"),
        ("diagonal", "set the diagonal of triu to 1"),
        ("scale", "set `other` of mul to 4 in the target"),
    ],
)
def test_the_next_step_fits_the_fault(fault, step):
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    (found,) = sp.compare(Steps(fault), Steps(), inputs=(inputs,)).findings
    assert found.next == step
    assert "with this fault put into the reference's op, the two results " in found.text
    if fault == "scale":
        assert "its argument `other` is 16 in the target, 4 in the reference" in found.evidence
