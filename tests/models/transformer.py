"""A two-layer pre-norm transformer with explicit attention and a choice of causal mask."""

import math

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 100
WIDTH = 64
LENGTH = 16


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, mask: str):
        super().__init__()
        self.heads = heads
        self.mask = mask
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        if self.mask != "none":
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            low = -math.inf if self.mask == "inf" else torch.finfo(scores.dtype).min
            scores = scores.masked_fill(future, low)
        weights = functional.softmax(scores, dim=-1)
        mixed = weights @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, mask: str):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, mask)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """`mask` is "inf" (-inf), "finfo" (the lowest finite value) or "none"."""

    def __init__(self, layers: int = 2, width: int = WIDTH, heads: int = 4, mask: str = "inf"):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.layers = nn.ModuleList(Block(width, heads, mask) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make_transformer(mask: str = "inf", seed: int = 0) -> Transformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(mask=mask)
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def transformer_inputs(batch: int = 2, length: int = LENGTH, seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(0, VOCABULARY, (batch, length), generator=generator),)


class FusedBlock(nn.Module):
    """One block with scaled_dot_product_attention as one op, as most models have it now."""

    def __init__(self, width: int = WIDTH, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = Mlp(width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def make_block(seed: int = 0) -> FusedBlock:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FusedBlock()
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def block_inputs(batch: int = 2, length: int = LENGTH, seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(batch, length, WIDTH, generator=generator),)
