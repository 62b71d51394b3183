"""A net that calls one module several times and ties the weights of two others."""

import torch
from torch import nn


class Reused(nn.Module):
    def __init__(self, width: int = 20, tokens: int = 30):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.step = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for _ in range(3):
            x = x + self.step(self.norm(x))
        return self.head(self.norm(x))


def make_reused(seed: int = 0) -> Reused:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Reused().eval()


def reused_inputs(seed: int = 1):
    return (torch.randint(0, 30, (2, 5), generator=torch.Generator().manual_seed(seed)),)
