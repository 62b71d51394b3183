"""A net that writes into views and in place, and keeps a counter."""

import torch
from torch import nn
from torch.nn import functional


class InPlace(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        hidden = self.first(x)
        before = hidden * 2
        functional.relu(hidden, inplace=True)
        hidden[:, 0] = 1.0
        tail = hidden[:, -4:]
        tail.mul_(0.5)
        after = self.norm(hidden)
        after.add_(before)
        return self.second(after), tail


def make_inplace(seed: int = 0) -> InPlace:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return InPlace().eval()


def inplace_inputs(seed: int = 1):
    return (torch.randn(4, 16, generator=torch.Generator().manual_seed(seed)),)
