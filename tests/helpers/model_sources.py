"""Source code of models that commands load from a file."""

_TANH_STACK = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def reference():
    return Net().eval()


def shipped():
    model = Net().eval()
    with torch.no_grad():
        model.layers[LAYERS // 2].weight *= 1.5
    return model
"""


def tanh_stack(layers):
    """Linear layers with tanh: `reference`, and `shipped` with one weight scaled by 1.5."""
    return f"LAYERS = {layers}\n{_TANH_STACK}"
