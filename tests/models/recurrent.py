"""Small nets around a recurrent layer, of which one to three outputs are used."""

import torch
from torch import nn


class Recurrent(nn.Module):
    """A recurrent layer between linear layers. `uses` names its outputs that are read: y, h, c."""

    def __init__(self, layer, uses):
        super().__init__()
        directions = 2 if layer.bidirectional else 1
        self.before = nn.Linear(6, layer.input_size)
        self.layer = layer
        self.uses = uses
        widths = {"y": directions * layer.hidden_size, "h": layer.hidden_size}
        self.after = nn.ModuleDict(
            {use: nn.Linear(widths.get(use, widths["h"]), 4) for use in uses}
        )
        states = (layer.num_layers * directions, 1, layer.hidden_size)
        self.start = nn.Parameter(torch.randn(states))

    def forward(self, x):
        x = torch.tanh(self.before(x))
        start = self.start.expand(-1, x.shape[0 if self.layer.batch_first else 1], -1).contiguous()
        is_lstm = isinstance(self.layer, nn.LSTM)
        y, states = self.layer(x, (start, 0.5 * start) if is_lstm else start)
        h, c = states if is_lstm else (states, None)
        outputs = {"y": y, "h": h, "c": c}
        return tuple(torch.relu(self.after[use](outputs[use])) for use in self.uses)


def make_recurrent(kind, uses="y", **options):
    """A net and its inputs: batches of 3, sequences of 5."""
    torch.manual_seed(0)
    net = Recurrent(getattr(nn, kind)(8, 10, **options), uses).eval()
    return net, (torch.randn((3, 5, 6) if options.get("batch_first") else (5, 3, 6)),)


def swap_gates(net, name):
    """Exchange the first two gates of a weight or bias."""
    parameter = getattr(net.layer, name)
    size = net.layer.hidden_size
    first, second, *others = parameter.data.split(size)
    parameter.data = torch.cat([second, first, *others])


def swap_directions(net):
    """Exchange the weights of both directions of the first layer."""
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        one, other = (getattr(net.layer, name + suffix) for suffix in ("", "_reverse"))
        one.data, other.data = other.data.clone(), one.data.clone()


def drop_start(net):
    """Begin with zeros."""
    net.start.data.zero_()
