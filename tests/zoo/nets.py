"""The nets of the zoo: drawn by a seed, with weights that look trained."""

from dataclasses import dataclass

import torch
from torch import nn

from zoo.nets_cnn import draw_cnn, images
from zoo.nets_transformer import RmsNorm, draw_transformer, texts

FAMILIES = ("cnn", "transformer")


@dataclass
class Net:
    """A model and what it is given."""

    model: nn.Module
    inputs: tuple
    family: str
    words: str


def draw_net(family, rng, dtype="f32", **wanted):
    """A net of a family; `wanted` makes sure of what a fault needs."""
    if family == "transformer" and dtype == "f16":
        wanted.setdefault("mask", "filled")  # the other one is a fault of its own in float16
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.randrange(1 << 30))
        if family == "cnn":
            model, words = draw_cnn(rng, **wanted)
            inputs = (images(rng),)
        else:
            model, words = draw_transformer(rng, **wanted)
            inputs = texts(rng, model)
        trained(model)
    return Net(model.eval(), inputs, family, words)


def trained(model):
    """Weights as training leaves them: norms that scale, biases that shift, running statistics
    of real data, some channels larger than others."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.3)
            module.running_var.uniform_(0.4, 2.0)
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm | RmsNorm):
            module.weight.data.uniform_(0.6, 1.6)
        if getattr(module, "bias", None) is not None:
            module.bias.data.normal_(0.0, 0.2)
        if isinstance(module, nn.Conv2d | nn.Linear):
            weight = module.weight.data
            fan = weight[0].numel()
            weight.normal_(0.0, (1.6 / fan) ** 0.5)
            lift = torch.exp(0.25 * torch.randn(len(weight)))
            weight.mul_(lift.view(-1, *[1] * (weight.ndim - 1)))
