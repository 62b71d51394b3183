"""Architectures by name: how to build one in tiny form, with weights that hide nothing.

Weights are random and drawn from a fixed seed. Norm weights, biases and statistics that a package
initializes to one or zero are perturbed, since a lost scale of one or bias of zero would not show.
"""

import importlib
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

FAMILIES = (
    "torch_modules",
    "transformers_text",
    "transformers_other",
    "diffusion",
    "x_transformers",
    "medical",
    "pytorchcv_nets",
    "set_aside",
)
"""Modules of `atlas.families` that declare architectures."""

HELD_OUT = frozenset(
    {
        "transformers/deberta-v2",
        "transformers/gpt-neox",
        "transformers/mixtral",
        "transformers/falcon",
        "transformers/electra",
        "transformers/xlnet",
        "transformers/whisper",
        "transformers/swin",
        "transformers/segformer",
        "transformers/convnext-v2",
        "diffusers/unet-2d-condition",
        "diffusers/vq-model",
        "x-transformers/encoder-decoder",
        "x-transformers/relative-position-bias",
        "monai/swin-unetr",
        "monai/segresnet",
        "pytorchcv/shufflenetv2",
        "pytorchcv/efficientnet",
        "pytorchcv/densenet",
        "torch/gru-bidirectional",
        "torch/transformer-decoder",
        "torch/conv-transpose-3d",
    }
)
"""Architectures that are compared only once, after the work on a rule: nothing is tuned to them."""

SET_ASIDE_LATER = frozenset(
    {
        "transformers/gemma3n",
        "transformers/exaone4",
        "transformers/ernie4-5-moe",
        "transformers/jamba",
        "transformers/yoso",
        "transformers/pvt",
        "transformers/mgp-str",
        "transformers/vit-mae",
        "transformers/sew-d",
        "transformers/univnet",
        "transformers/lilt",
        "transformers/pix2struct",
        "transformers/x-clip",
        "transformers/timesfm",
        "diffusers/hunyuan-dit-2d",
        "diffusers/cogvideox-transformer-3d",
        "diffusers/autoencoder-dc",
        "monai/voxelmorph",
        "monai/spade-diffusion-unet",
        "pytorchcv/resnesta10",
        "pytorchcv/fishnet",
        "pytorchcv/nasnet",
        "x-transformers/data-dependent-alibi",
        "torch/unfold-fold",
    }
)
"""Architectures that were declared after the rules of pairing, so that no rule was written with one
of them in view: compared once."""

Build = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]
"""Gives a module and its positional inputs; `forward` returns tensors."""


@dataclass(frozen=True)
class Architecture:
    """A named architecture of a package."""

    name: str
    """`package/architecture`."""
    build: Build

    @property
    def is_held_out(self) -> bool:
        """Whether it is set aside for the final run."""
        return self.name in HELD_OUT or self.name in SET_ASIDE_LATER


_DECLARED: dict[str, Architecture] = {}


def architecture(name: str) -> Callable[[Build], Build]:
    """Declare a function that builds the architecture `name`."""

    def declare(build: Build) -> Build:
        assert name not in _DECLARED, f"{name} is declared twice"
        _DECLARED[name] = Architecture(name, build)
        return build

    return declare


def architectures() -> dict[str, Architecture]:
    """All architectures, by name."""
    for family in FAMILIES:
        importlib.import_module(f"atlas.families.{family}")
    return dict(sorted(_DECLARED.items()))


def make(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Build an architecture: in evaluation mode, perturbed, the same at every call."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, inputs = architectures()[name].build()
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    perturb(module)
    return module, inputs


def perturb(module: nn.Module, seed: int = 1) -> None:
    """Move constant parameters and running statistics away from zero and one."""
    generator = torch.Generator().manual_seed(seed)
    names = ("running_mean", "running_var")
    statistics = [buffer for name, buffer in module.named_buffers() if name.endswith(names)]
    for tensor in [*module.parameters(), *statistics]:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        # One row may be zero on purpose, such as the embedding of padding.
        is_constant = bool((tensor == tensor.flatten()[0]).all())
        if tensor.dim() <= 1 or is_constant:
            scale = 0.1 * (1 + tensor.abs())
            noise = torch.empty(tensor.shape).uniform_(-1, 1, generator=generator)
            tensor.data += (scale * noise).to(tensor.dtype)
