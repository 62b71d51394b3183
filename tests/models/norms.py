"""Norms with statistics and weights as training leaves them; fresh ones hide faults."""

from torch import nn


def randomize_batch_norms(model: nn.Module) -> None:
    """Draw the statistics and weights of every batch norm."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.3)
            module.running_var.uniform_(0.5, 2.0)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0.0, 0.2)


def randomize_layer_norms(model: nn.Module) -> None:
    """Draw the weights of every layer norm."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0.0, 0.2)
