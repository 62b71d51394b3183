"""Transformers drawn by a seed: encoders with a padding mask, decoders with rotary positions."""

import math

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 60
LENGTH = 12


class RmsNorm(nn.Module):
    """As most decoders write it: in plain ops."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        power = (x * x).mean(-1, keepdim=True)
        return x * torch.rsqrt(power + self.eps) * self.weight


class Attention(nn.Module):
    """Four products of their own; explicit scores, or one op for all."""

    def __init__(self, width, heads, rotary, fused, mask):
        super().__init__()
        self.heads, self.rotary, self.fused, self.mask = heads, rotary, fused, mask
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        size = width // heads
        if rotary:
            frequencies = 1.0 / 10000 ** (torch.arange(0, size, 2) / size)
            angles = torch.arange(LENGTH)[:, None] * torch.cat([frequencies] * 2)[None]
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

    def turned(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-second, first], dim=-1) * self.sin

    def forward(self, x, keep=None):
        batch, length, width = x.shape
        query, key, value = (
            layer(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if self.rotary:
            query, key = self.turned(query), self.turned(key)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, is_causal=keep is None
            )
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
            if keep is None:
                future = torch.ones(length, length, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(future, -math.inf)
            elif self.mask == "added":
                scores = scores + (1.0 - keep.to(x.dtype))[:, None, None, :] * -1e9
            else:
                low = torch.finfo(x.dtype).min
                scores = scores.masked_fill((keep == 0)[:, None, None, :], low)
            mixed = functional.softmax(scores, dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    """Two linear layers with a GELU between, or three with a gate."""

    def __init__(self, width, gated):
        super().__init__()
        self.gated = gated
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        if gated:
            self.gate = nn.Linear(width, 2 * width)

    def forward(self, x):
        if self.gated:
            return self.down(functional.silu(self.gate(x)) * self.up(x))
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    """Norms before attention and layers."""

    def __init__(self, width, norm, attention, gated):
        super().__init__()
        self.before, self.between = norm(), norm()
        self.attention = attention
        self.mlp = Mlp(width, gated)

    def forward(self, x, keep=None):
        x = x + self.attention(self.before(x), keep)
        return x + self.mlp(self.between(x))


class Encoder(nn.Module):
    """Reads a text and says of what kind it is."""

    def __init__(self, width, blocks, norm):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(0.3 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm()
        self.pooler = nn.Linear(width, width)
        self.head = nn.Linear(width, 6)

    def forward(self, ids, keep):
        x = self.tokens(ids) + self.positions
        for block in self.blocks:
            x = block(x, keep)
        pooled = torch.tanh(self.pooler(self.norm(x)[:, 0]))
        return self.head(pooled)


class Decoder(nn.Module):
    """Gives the logits of every next token."""

    def __init__(self, width, blocks, norm):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm()
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def draw_transformer(rng, kind="", fused=None, norm="", mask="", gated=None):
    """One of many nets, and what it is made of in words."""
    kind = kind or rng.choice(("encoder", "decoder"))
    width, heads = rng.choice(((32, 4), (48, 4), (32, 2)))
    norm = norm or ("layer" if kind == "encoder" else rng.choice(("layer", "rms")))
    gated = rng.choice((False, True)) if gated is None else gated
    if fused is None:
        fused = kind == "decoder" and rng.random() < 0.3
    mask = mask or rng.choice(("filled", "added"))
    depth = rng.choice((1, 2, 2))

    def make_norm():
        return nn.LayerNorm(width) if norm == "layer" else RmsNorm(width)

    blocks = [
        Block(
            width,
            make_norm,
            Attention(width, heads, kind == "decoder", fused, mask),
            gated,
        )
        for _ in range(depth)
    ]
    model = (Encoder if kind == "encoder" else Decoder)(width, blocks, make_norm)
    words = [kind, f"width {width}", f"{heads} heads", f"{depth} blocks", f"{norm} norm"]
    if gated:
        words.append("gated")
    words.append("fused attention" if fused else f"mask {mask}" if kind == "encoder" else "causal")
    return model, " ".join(words[:1]) + " " + ", ".join(words[1:])


def texts(rng, model, batch=2):
    """Ids, and for an encoder which of them are no padding."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    ids = torch.randint(2, VOCABULARY - 1, (batch, LENGTH), generator=generator)
    if isinstance(model, Decoder):
        return (ids,)
    keep = torch.ones(batch, LENGTH, dtype=torch.int64)
    for row in range(batch):
        length = rng.randrange(LENGTH // 2, LENGTH)
        keep[row, length:] = 0
        ids[row, length:] = 0
    return ids, keep
