"""Nets that are right in float32 and not in 16 bits: overflow, and error that grows by itself.

Both sides have the same model here; the target only has it in another element type.
"""

import torch
from torch import nn

from zoo.draw import apart
from zoo.planting.registry import planter
from zoo.programs import OUTPUT, aten, export, ops, values_of
from zoo.work import NoSite


def _both(work):
    """What the model gives in float32 and in the target's type."""
    made = export(work.net.model, work.net.inputs, "f32")
    wide = values_of(made, work.net.inputs, "f32")
    narrow_program = export(work.net.model, work.net.inputs, work.dtype)
    return made, wide, values_of(narrow_program, work.net.inputs, work.dtype)


def _breaks(work, also=()):
    """The first node that is finite in float32 and not in the target's type is the site."""
    program, wide, narrow = _both(work)
    for name, value in wide.items():
        if name == OUTPUT or name not in narrow or not torch.isfinite(value).all():
            continue
        if not torch.isfinite(narrow[name]).all():
            work.blame(name, *also)
            work.change = float("inf")
            work.said += f"; {name} is the first that is not finite"
            return program
    raise NoSite("nothing overflows")


@planter("net")
def layer_overflows(work, size):
    """A layer with large weights, and the next norm or layer takes it back."""
    layers = [
        (n, m)
        for n, m in work.net.model.named_modules()
        if isinstance(m, nn.Conv2d | nn.Linear) and m.weight.shape[0] > 6
    ]
    name, layer = work.rng.choice(layers)
    with torch.no_grad():
        layer.weight.mul_(size)
        if layer.bias is not None:
            layer.bias.mul_(size)
    work.said = f"{name} times {size:.3g}"
    _breaks(work)


@planter("net")
def embedding_overflows(work, size):
    """A residual stream so large that its square does not fit."""
    if not hasattr(work.net.model, "tokens"):
        raise NoSite("no tokens")
    with torch.no_grad():
        work.net.model.tokens.weight.mul_(size)
    work.said = f"tokens times {size:.3g}"
    _breaks(work)


@planter("net")
def mask_overflows(work):
    """(1 - keep) * -1e9 is -inf in f16, and 0 times that is NaN."""
    work.said = "-1e9 does not fit"
    _breaks(work)


class LogSoftmax(nn.Module):
    """The logarithm of a softmax, in two ops."""

    def __init__(self, inner, sharp):
        super().__init__()
        self.inner, self.sharp = inner, sharp

    def forward(self, *inputs):
        return torch.log(torch.softmax(self.inner(*inputs) * self.sharp, dim=-1))


@planter("net")
def log_of_zero(work, sharp):
    """A softmax underflows to 0, and its logarithm is -inf."""
    work.net.model = LogSoftmax(work.net.model, sharp).eval()
    work.said = f"log of softmax, logits times {sharp:.3g}"
    program = _breaks(work)
    work.blame(*(n.name for n in ops(program, aten.softmax.int, aten.log.default)))


class Summed(nn.Module):
    """The head on a sum over all places, scaled afterwards."""

    def __init__(self, inner, size):
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, *inputs):
        found = self.inner(*inputs)
        return (found * found * self.size).sum(-1, keepdim=True) / self.size


@planter("net")
def sum_overflows(work, size):
    """A sum that is divided only after it has overflowed."""
    work.net.model = Summed(work.net.model, size).eval()
    work.said = f"a sum of squares times {size:.3g}"
    _breaks(work)


@planter("net")
def epsilon_vanishes(work):
    """An epsilon of 1e-12 is 0 in f16; a token whose vector is constant then divides 0 by 0."""
    model = work.net.model
    if not hasattr(model, "tokens"):
        raise NoSite("no tokens")
    with torch.no_grad():
        model.tokens.weight[work.net.inputs[0][0, 0]] = 0.0
        if hasattr(model, "positions"):
            model.positions[0] = 0.0
    for module in model.modules():
        if hasattr(module, "eps"):
            module.eps = 1e-12
    work.said = "epsilon 1e-12 and a token of zeros"
    program = _breaks(work)
    work.blame(*(n.name for n in ops(program, aten.rsqrt.default)[:1]))
    work.blame(*(n.name for n in ops(program, aten.layer_norm.default)[:1]))


class Deep(nn.Module):
    """Many layers that each pass on a little more than they were given."""

    def __init__(self, width, depth, gain):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 8)
        for layer in self.layers:
            layer.weight.data.normal_(0, gain / width**0.5)
            layer.bias.data.normal_(0, 0.1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


@planter("net")
def error_grows(work, gain, depth):
    """Nobody is guilty: rounding is passed on and grows from layer to layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(work.rng.randrange(1 << 30))
        work.net.model = Deep(48, depth, gain).eval()
        given = torch.randn(4, 48).to(torch.bfloat16 if work.dtype == "bf16" else torch.float16)
    _replaced(work, (given.float(),), f"{depth} layers of gain {gain:.2f}")
    _must_be_off(work)


class Cancelling(nn.Module):
    """The difference of two numbers that are nearly the same."""

    def __init__(self, inner, offset):
        super().__init__()
        self.inner, self.offset = inner, offset

    def forward(self, *inputs):
        found = self.inner(*inputs)
        return (found + self.offset) - self.offset


@planter("net")
def error_cancels(work, offset):
    """A large number is added and taken away: what is left is rounding."""
    work.net.model = Cancelling(work.net.model, offset).eval()
    work.said = f"plus and minus {offset:.0f}"
    _must_be_off(work)
    program = export(work.net.model, work.net.inputs, "f32")
    work.blame(*(n.name for n in ops(program, aten.sub.Tensor, aten.add.Tensor)[-2:]))


def _replaced(work, inputs, said):
    work.net.inputs = work.target_inputs = inputs
    work.net.words = f"{type(work.net.model).__name__.lower()}: {said}"
    work.said = said


def _must_be_off(work):
    """The result must be off by more than the limits of this type let pass."""
    _, wide, narrow = _both(work)
    peak = wide[OUTPUT].abs().max()
    off = (wide[OUTPUT] - narrow[OUTPUT].float()).square().mean().sqrt()
    least = {"f16": 10 ** (-45 / 20), "bf16": 10 ** (-35 / 20), "f32": 10 ** (-95 / 20)}
    if not off > peak * least[work.dtype]:
        raise NoSite("the result is close")
    work.change = max(apart(wide[OUTPUT], narrow[OUTPUT]), 1.0)
