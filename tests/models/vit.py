"""A small vision transformer with an auxiliary head that underflows in half precision."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        k = self.k(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        v = self.v(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(b, n, c)
        return self.proj(x)


class Mlp(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.fc2(torch.nn.functional.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.mlp = Attention(dim, heads), Mlp(dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Aux(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, 10)

    def forward(self, x):
        p = (self.fc(x) * 40).softmax(dim=-1)
        return (p * p.log()).sum(dim=-1)


class ViT(nn.Module):
    def __init__(self, dim: int = 48, depth: int = 3, heads: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, dim // 2, 4, 4), nn.ReLU(), nn.Conv2d(dim // 2, dim, 2, 2)
        )
        self.embed = nn.Parameter(torch.randn(1, 64, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head, self.aux = nn.Linear(dim, 20), Aux(dim)

    def forward(self, image):
        x = self.stem(image).flatten(2).transpose(1, 2) + self.embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).mean(dim=1)
        return self.head(x), self.aux(x)


def model() -> ViT:
    torch.manual_seed(0)
    return ViT().eval()


def broken() -> ViT:
    """With another bias in one projection."""
    net = model()
    with torch.no_grad():
        noise = torch.randn(48, generator=torch.Generator().manual_seed(1))
        net.blocks[1].attn.proj.bias += noise
    return net


def image(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
