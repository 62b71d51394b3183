"""A decoder of one token at a time, whose layers keep keys and values in buffers."""

import torch
from torch import nn
from torch.nn import functional

from models.norms import randomize_layer_norms

VOCABULARY = 37
WIDTH = 32
HEADS = 4
SLOTS = 6


class Attention(nn.Module):
    """One token looks at all before it."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        shape = (1, HEADS, SLOTS, WIDTH // HEADS)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x, position):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=-1)
        )
        self.keys.index_copy_(2, self.place(position), key)
        self.values.index_copy_(2, self.place(position), value)
        scores = query @ self.keys.transpose(-2, -1) / (width // HEADS) ** 0.5
        future = torch.arange(SLOTS) > position
        weights = functional.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        mixed = weights @ self.values
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def place(self, position):
        """Where in the cache the token goes."""
        return position


class Block(nn.Module):
    """Attention, then two linear layers."""

    def __init__(self):
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.between = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, position):
        x = x + self.attention(self.before(x), position)
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """Gives the logits of the next token."""

    def __init__(self, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(SLOTS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, token, position):
        x = self.tokens(token) + self.positions(position)
        for block in self.blocks:
            x = block(x, position)
        return self.head(self.norm(x))


def make_decoder():
    """The same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Decoder().eval()
        randomize_layer_norms(model)
        return model


def decoder_steps(count=3):
    """The inputs of so many steps."""
    return [(torch.tensor([[5 + 7 * n]]), torch.tensor([n])) for n in range(count)]
