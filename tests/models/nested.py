"""A net with keyword arguments and nested dicts on both sides."""

import torch
from torch import nn


class Nested(nn.Module):
    def __init__(self, width: int = 12):
        super().__init__()
        self.left = nn.Linear(width, width)
        self.right = nn.Linear(width, width)
        self.register_buffer("shift", torch.linspace(-1.0, 1.0, width))

    def forward(self, x, *, extra, scale: float = 1.0):
        left = torch.tanh(self.left(x)) * scale
        right = self.right(extra["mask"] * x) + self.shift
        return {
            "logits": [left, left - right],
            "aux": {"right": right, "count": 3, "none": None},
            "same": x,
        }


def make_nested(seed: int = 0) -> Nested:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Nested().eval()


def nested_inputs(seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 12, generator=generator)
    mask = (torch.rand(3, 12, generator=generator) > 0.3).float()
    return (x,), {"extra": {"mask": mask}}
