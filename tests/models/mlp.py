"""Linear layers with ReLU between them: what compilers fuse completely."""

import torch
from torch import nn


def make_mlp(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        ).eval()


def mlp_inputs(seed: int = 1):
    return (torch.randn(8, 32, generator=torch.Generator().manual_seed(seed)),)
