"""What the target says of itself is tried where no known variant explains an op."""

import pytest
import torch
from torch import nn

import syncpoint as sp


class Net(nn.Module):
    """A convolution and a norm whose attributes may be others; no weight differs."""

    def __init__(self, dilation=1, epsilon=1e-5):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, padding=dilation, dilation=dilation)
        self.norm = nn.BatchNorm2d(8, eps=epsilon)
        with torch.no_grad():
            self.norm.running_var.uniform_(0.005, 0.02)
            self.conv.weight.mul_(0.2)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("other", "op", "words"),
    [
        (Net(dilation=2), "conv2d", "dilation [2, 2] instead of [1, 1]"),
        (Net(epsilon=0.01), "batch_norm", "0.01 instead of 1e-05"),
    ],
)
def test_attributes_that_the_target_shows_explain_it(other, op, words):
    first = sp.compare(other.eval(), Net().eval(), inputs=(X,)).findings[0]
    assert (first.cause, first.ops[0], first.level) == ("implementation", op, "cause")
    assert first.kind != "unexplained" and first.confidence >= 0.9
    assert words in first.title
