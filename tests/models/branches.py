"""Nets whose way depends on values, which torch.export does not take."""

import torch
from torch import nn


class Branches(nn.Module):
    """One branch on a value; both have ops of the same kinds, in another order."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros(()))
        self.scale = torch.linspace(0.5, 1.5, width)

    def forward(self, x):
        self.calls += 1
        hidden = self.first(x)
        if x.sum() > 0:
            hidden = torch.relu(hidden) * self.scale.to(x.dtype)
        else:
            hidden = torch.tanh(hidden * 2) + torch.tensor([0.5]).to(x.dtype)
        return self.second(self.norm(hidden) + x)


class Steps(nn.Module):
    """As many rounds as the input needs, over one module."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.step = nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x, limit: float = 2.0):
        rounds = 0
        while x.abs().max() > limit and rounds < 5:
            x = self.step(x)
            rounds += 1
        low, high = x.chunk(2, dim=-1)
        return {"low": low, "pair": [high, x], "rounds": rounds}


class Writes(nn.Module):
    """In-place writes through views, read again through other views of the same memory."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        hidden = self.first(x)
        tail = hidden[:, -4:]
        flipped = hidden.t()
        wide = hidden[:, :1].expand(-1, 16)
        if x.sum() > 1e9:
            return hidden
        hidden.relu_()
        hidden[:, 0] = 1.0
        flipped[3].mul_(0.5)
        kept = tail + 1
        tail.mul_(0.25)
        out = torch.empty_like(hidden)
        torch.add(hidden, wide, out=out)
        return self.second(out), flipped, kept, tail


def _made(kind, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind().eval()


def make_branches(seed: int = 0) -> Branches:
    return _made(Branches, seed)


def make_steps(seed: int = 0) -> Steps:
    return _made(Steps, seed)


def make_writes(seed: int = 0) -> Writes:
    return _made(Writes, seed)


def branches_inputs(sign: float = 1.0, seed: int = 1):
    drawn = torch.randn(4, 16, generator=torch.Generator().manual_seed(seed))
    return (sign * drawn.abs() + 0.1 * drawn,)


def steps_inputs(seed: int = 1):
    return (4 * torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)),)


def writes_inputs(seed: int = 1):
    return (torch.randn(4, 16, generator=torch.Generator().manual_seed(seed)),)
