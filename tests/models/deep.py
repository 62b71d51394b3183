"""A residual net of 500 ops and more whose tensors fill the pictures of a report."""

import torch
from torch import nn

WIDTH = 96
"""Rows and columns of every tensor: as many as a preview has at most."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        y = torch.sigmoid(self.up(x))
        y = torch.tanh(self.down(y * x))
        gate = torch.sin(x)
        return x + y * gate


class Deep(nn.Module):
    def __init__(self, depth: int = 63) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def model() -> Deep:
    torch.manual_seed(0)
    return Deep().eval()


def broken() -> Deep:
    """With another bias a third of the way in."""
    net = model()
    with torch.no_grad():
        net.blocks[20].down.bias += torch.randn(WIDTH, generator=torch.Generator().manual_seed(1))
    return net


def inputs() -> torch.Tensor:
    return torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0))
