"""Core AI assets for tests: real conversions of the nets, made once a process."""

import contextlib
import io
import logging
import warnings
from functools import cache
from pathlib import Path

import coreai_torch
import torch
from coreai_torch import TorchConverter
from torch import nn
from torch.nn import functional

from models.cnn import cnn_inputs, make_cnn
from models.gpt import make_small_gpt, small_gpt_inputs
from models.norms import randomize_layer_norms
from models.resnet import make_small_resnet, small_resnet_inputs
from models.transformer import make_transformer, transformer_inputs

WIDTH = 32
SLOTS = 4


class Pieces(nn.Module):
    """Equal pieces of one tensor, read in another order than they were cut in."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(24, 24)

    def forward(self, x):
        first, second, third = torch.split(self.mix(x), 8, dim=-1)
        values, where = torch.topk(torch.cat([second, first], dim=-1), 5, dim=-1)
        return values, where, third - first, third / (1 + second * second)


class Attention(nn.Module):
    """One block with fused attention, as Core AI has it as a body of its own."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, 4, width // 4).transpose(1, 2)
            for part in self.qkv(self.norm(x)).split(width, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Cached(nn.Module):
    """Attention of one token to all before it, which are kept in a buffer."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("cache", torch.zeros(1, SLOTS, WIDTH))

    def forward(self, token, position):
        slots = torch.arange(SLOTS).view(1, SLOTS, 1)
        self.cache.copy_(torch.where(slots == position, self.key(token), self.cache))
        scores = self.query(token) @ self.cache.transpose(-2, -1)
        hidden = slots.transpose(-2, -1) > position
        weights = functional.softmax(scores.masked_fill(hidden, -1e4), dim=-1)
        return weights @ self.cache


def _seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make().eval()
        randomize_layer_norms(model)
        return model


def _random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def cached_steps(count=3):
    """The inputs of so many steps."""
    tokens = _random(count, 1, 1, WIDTH)
    return [(tokens[n], torch.tensor([n])) for n in range(count)]


NETS = {
    "cnn": (make_cnn, cnn_inputs),
    "resnet": (make_small_resnet, small_resnet_inputs),
    "transformer": (make_transformer, transformer_inputs),
    "gpt": (make_small_gpt, small_gpt_inputs),
    "pieces": (lambda: _seeded(Pieces), lambda: (_random(3, 24),)),
    "attention": (lambda: _seeded(Attention), lambda: (_random(2, 6, WIDTH),)),
    "cached": (lambda: _seeded(Cached), lambda: cached_steps(1)[0]),
}
_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def in_type(net, form):
    """The net and its inputs in an element type."""
    make, inputs = NETS[net]
    kind = _TYPES.get(form, torch.float32)
    given = tuple(v.to(kind) if v.is_floating_point() else v for v in inputs())
    return make().to(kind), given


def decomposed(model, given, **options):
    """The program as the converter takes it."""
    with quiet():
        program = torch.export.export(model, given, **options)
        return program.run_decompositions(coreai_torch.get_decomp_table())


@cache
def program(net, form="f32"):
    """The torch program that the asset was made from."""
    return decomposed(*in_type(net, form))


def save(path, programs, release=False):
    """An asset of several functions, by name."""
    mode = TorchConverter.Mode.RELEASE if release else TorchConverter.Mode.DEBUG
    with quiet():
        converter = TorchConverter(mode=mode)
        for name, made in programs.items():
            converter.add_exported_program(made, entrypoint_name=name)
        converter.to_coreai().save_asset(path)
    return path


def aimodel(folder: Path, net: str, form: str = "f32", release: bool = False) -> Path:
    """`net` as an .aimodel in one of the forms f32, f16, bf16."""
    path = folder / f"{net}.{form}{'.release' if release else ''}.aimodel"
    return path if path.exists() else save(path, {"main": program(net, form)}, release)


@contextlib.contextmanager
def quiet():
    """Without what the converter says of itself."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
