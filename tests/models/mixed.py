"""A net that takes an integer and a named input, computes in part in bf16, keeps a buffer that it
writes to, and returns a dict whose order is not that of execution."""

import torch
from torch import nn


class Mixed(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.table = nn.Embedding(11, width)
        self.narrow = nn.Linear(width, width).to(torch.bfloat16)
        self.register_buffer("seen", torch.zeros(width))

    def forward(self, ids, *, scale):
        rows = self.table(ids)
        early = rows.sum(0) * scale
        narrow = self.narrow(rows.to(torch.bfloat16))
        self.seen.add_(early)
        best, where = narrow.float().topk(2, dim=-1)
        return {"late": best.t(), "early": early, "where": where, "narrow": narrow.t()}


def make_mixed(seed: int = 0) -> Mixed:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Mixed().eval()


def mixed_inputs(seed: int = 1):
    drawn = torch.randint(0, 11, (5,), generator=torch.Generator().manual_seed(seed))
    return (drawn,), {"scale": torch.tensor(0.5)}
