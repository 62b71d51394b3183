"""A decoder of the form of GPT-2 with its attention written out: matmul, mask, softmax."""

import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, longest: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        later = torch.triu(torch.ones(longest, longest, dtype=torch.bool), diagonal=1)
        self.register_buffer("later", later)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.qkv(x).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (query, key, value)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
        scores = scores.masked_fill(self.later[:length, :length], float("-inf"))
        mixed = functional.softmax(scores, dim=-1) @ value
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, activation: str):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, longest)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.activation = {"gelu": nn.GELU, "relu": nn.ReLU}[activation]()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.down(self.activation(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, tokens: int, longest: int, activation: str
    ):
        super().__init__()
        self.wte = nn.Embedding(tokens, width)
        self.wpe = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads, longest, activation) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make_gpt(
    layers: int = 6,
    width: int = 384,
    heads: int = 6,
    tokens: int = 8192,
    longest: int = 128,
    activation: str = "gelu",
    seed: int = 0,
) -> Gpt:
    """17 million parameters unless told otherwise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Gpt(layers, width, heads, tokens, longest, activation).eval()


def make_small_gpt(activation: str = "gelu", seed: int = 0) -> Gpt:
    return make_gpt(2, 48, 3, 100, 16, activation, seed)


def gpt_inputs(length: int = 128, tokens: int = 8192, seed: int = 1):
    return (torch.randint(0, tokens, (1, length), generator=torch.Generator().manual_seed(seed)),)


def small_gpt_inputs(seed: int = 1):
    return gpt_inputs(16, 100, seed)
