"""A net full of casts, factories and a fused attention: what a float64 run must rewrite."""

import torch
from torch import nn
from torch.nn import functional


class Casts(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.proj = nn.Linear(width, 3 * width)
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def norm(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)

    def forward(self, x):
        length = x.shape[1]
        inverse = 1.0 / (100.0 ** (torch.arange(0, 16, 2, dtype=torch.int64).float() / 16))
        angles = torch.arange(length).float()[:, None] * inverse[None, :]
        rotary = torch.cat([angles.sin(), angles.cos()], dim=-1)
        x = self.norm(x) + rotary.to(x.dtype)
        query, key, value = self.proj(x).chunk(3, dim=-1)
        bias = torch.full((length, length), 0.5) + torch.zeros(length, length).to(x.dtype)
        mixed = functional.scaled_dot_product_attention(
            query[:, None], key[:, None], value[:, None], attn_mask=bias.to(x.dtype)
        )[:, 0]
        weights = functional.softmax(mixed, dim=-1, dtype=torch.float32).type_as(x)
        total = weights.cumsum(-1, dtype=torch.float32) + mixed.sum(-1, keepdim=True).float()
        share = torch.arange(1, length + 1) / length
        return total * share[:, None] + torch.ones_like(mixed, dtype=torch.float32)


def make_casts(seed: int = 0) -> Casts:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Casts().eval()


def casts_inputs(seed: int = 1):
    return (torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(seed)),)
