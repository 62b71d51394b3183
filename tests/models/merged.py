"""A transformer block with separate projections, and the same block with merged ones."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS = 24, 4
SIZE = WIDTH // HEADS


class Separate(nn.Module):
    """Query, key, value, gate and up are layers of their own; keys may have fewer heads."""

    def __init__(self, key_heads=HEADS):
        super().__init__()
        self.key_heads = key_heads
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k, self.v = (nn.Linear(WIDTH, key_heads * SIZE) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, 40, bias=False) for _ in range(2))
        self.down = nn.Linear(40, WIDTH, bias=False)

    def mix(self, q, k, v):
        """Attention of tensors with an axis for the heads."""
        repeats = HEADS // self.key_heads
        k, v = (x.repeat_interleave(repeats, 1) if repeats > 1 else x for x in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        parts = self.q(x), self.k(x), self.v(x)
        x = x + self.mix(*(p.unflatten(-1, (-1, SIZE)).transpose(1, 2) for p in parts))
        return x + self.down(functional.silu(self.gate(x)) * self.up(x))


class Merged(Separate):
    """One layer for query, key and value, one for gate and up. The heads are cut before they are
    split ("heads"), each head has its three parts ("perhead"), or the parts are cut first."""

    def __init__(self, separate, form):
        super().__init__(separate.key_heads)
        self.load_state_dict(separate.state_dict())
        self.form = form
        layers = self.q, self.k, self.v
        self.qkv = nn.Linear(WIDTH, sum(layer.out_features for layer in layers))
        for name in ("weight", "bias"):
            parts = [getattr(layer, name).data for layer in layers]
            if form == "perhead":
                parts = [
                    torch.stack([p.unflatten(0, (HEADS, SIZE)) for p in parts], 1).flatten(0, 2)
                ]
            getattr(self.qkv, name).data = torch.cat(parts)
        self.gate_up = nn.Linear(WIDTH, 80, bias=False)
        self.gate_up.weight.data = torch.cat([self.gate.weight.data, self.up.weight.data])
        del self.q, self.k, self.v, self.gate, self.up

    def forward(self, x):
        merged = self.qkv(x)
        if self.form == "heads":
            parts = merged.unflatten(-1, (3, HEADS, SIZE)).permute(2, 0, 3, 1, 4).unbind(0)
        elif self.form == "perhead":
            parts = merged.unflatten(-1, (HEADS, 3 * SIZE)).split(SIZE, -1)
            parts = [part.transpose(1, 2) for part in parts]
        else:
            width = self.key_heads * SIZE
            parts = merged.split([WIDTH, width, width], -1)
            parts = [p.unflatten(-1, (-1, SIZE)).transpose(1, 2) for p in parts]
        x = x + self.mix(*parts)
        gate, up = self.gate_up(x).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)

    def spoil(self, part):
        """Scale some rows of one part of a merged weight."""
        if part in ("gate", "up"):
            self.gate_up.weight.data[0 if part == "gate" else 40 :][3:9] *= 1.3
            return
        index = ("q", "k", "v").index(part)
        first = index * SIZE if self.form == "perhead" else (0, WIDTH, WIDTH + self.k_width)[index]
        self.qkv.weight.data[first : first + SIZE] *= 1.3

    @property
    def k_width(self):
        """The width of the keys of all heads."""
        return self.key_heads * SIZE


def make_merged(form, key_heads=HEADS):
    """The separate block, the merged block, and their inputs."""
    torch.manual_seed(0)
    separate = Separate(key_heads).eval()
    return separate, Merged(separate, form).eval(), (torch.randn(2, 5, WIDTH),)
