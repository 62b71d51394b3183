"""A net whose ops have several outputs: split, chunk, top-k, sort, max."""

import torch
from torch import nn


class Several(nn.Module):
    def __init__(self, width: int = 24):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        first, second, third = torch.split(self.mix(x), [8, 4, 12], dim=-1)
        low, high = third.chunk(2, dim=-1)
        values, indices = torch.topk(torch.cat([first, second], dim=-1), 5, dim=-1)
        greatest, where = (low * high).max(dim=-1)
        ordered, _ = torch.sort(second + greatest.unsqueeze(-1), dim=-1)
        return values, indices, ordered, where


def make_several(seed: int = 0) -> Several:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Several().eval()


def several_inputs(seed: int = 1):
    return (torch.randn(3, 24, generator=torch.Generator().manual_seed(seed)),)
