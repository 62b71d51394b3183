"""Nets with compressed weights, as coreai-opt makes them for Core AI, and their assets."""

from pathlib import Path

import coreai_torch._compression.custom_layers  # noqa: F401  # registers the ops
import torch
from torch import nn
from torch.nn.utils import parametrize

from models.coreai_files import NETS, decomposed, quiet, save

PALETTES = {"palettized": (4, 1), "palettized6": (6, 1), "palettized_groups": (4, 2)}
"""Bits of an index, and how many tables a weight has along its first axis."""


class Palette(nn.Module):
    """A weight as indices into tables. A table is of quantiles: coreai-opt's own search
    for the best one is compiled when it is first used, which takes a minute."""

    def __init__(self, weight, bits, count):
        super().__init__()
        size = 2**bits
        parts = (torch.arange(size) + 0.5) / size
        rows = weight.detach().reshape(count, -1)
        tables = torch.quantile(rows, parts, dim=1).T
        nearest = (rows.unsqueeze(-1) - tables.unsqueeze(1)).abs().argmin(-1)
        self.register_buffer("indices", nearest.to(torch.uint8).reshape(weight.shape))
        form = (count,) + (1,) * (weight.ndim - 1) + (size, 1)
        self.register_buffer("lut", tables.reshape(form))

    def forward(self, _weight):
        return torch.ops.coreai.lut_to_dense(self.indices, self.lut, 0)


def compressed(model, given, scheme):
    """The model with weights of w8 or w4 integers for each channel, of w4_per_block, a8w8 with
    activations too, or with tables."""
    with quiet():
        if scheme in PALETTES:
            for module in list(model.modules()):
                if isinstance(module, nn.Linear | nn.Conv2d):
                    palette = Palette(module.weight, *PALETTES[scheme])
                    parametrize.register_parametrization(module, "weight", palette)
            return model.eval()
        from coreai_opt import ExportBackend
        from coreai_opt.quantization import Quantizer, QuantizerConfig

        made = QuantizerConfig if scheme == "a8w8" else getattr(QuantizerConfig.presets, scheme)
        quantizer = Quantizer(model, made().set_execution_mode("eager"))
        prepared = quantizer.prepare(given)
        with quantizer.calibration_mode():
            prepared(*given)
        return quantizer.finalize(backend=ExportBackend.CoreAI).eval()


def compressed_asset(folder: Path, net: str, scheme: str, change=None):
    """The asset, the compressed torch model it was made from, and its inputs. `change` is done
    to the model before it is compressed."""
    make, inputs = NETS[net]
    model, given = make(), inputs()
    if change is not None:
        with torch.no_grad():
            change(model)
    model = compressed(model, given, scheme)
    path = folder / f"{net}.{scheme}{'.changed' if change else ''}.aimodel"
    return save(path, {"main": decomposed(model, given)}), model, given
