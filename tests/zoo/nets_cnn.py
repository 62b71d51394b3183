"""Convolutional nets drawn by a seed: what image models of today are made of, small."""

import torch
from torch import nn
from torch.nn import functional

SIDE = 16
CLASSES = 10


class Shuffled(nn.Module):
    """Grouped convolutions with their channels mixed in between."""

    def __init__(self, channels, activation):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 1, groups=2)
        self.bn = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.activation = activation

    def forward(self, x):
        inner = self.activation(self.bn(self.first(x)))
        batch, channels, height, width = inner.shape
        inner = inner.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return x + self.second(inner.reshape(batch, channels, height, width))


class Residual(nn.Module):
    """Two convolutions with batch norm beside the input."""

    def __init__(self, channels, activation):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)
        self.activation = activation

    def forward(self, x):
        inner = self.activation(self.bn1(self.conv1(x)))
        return self.activation(x + self.bn2(self.conv2(inner)))


class Squeezed(nn.Module):
    """Channels weighed by what the whole picture says."""

    def __init__(self, channels, activation):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, channels // 2, 1)
        self.up = nn.Conv2d(channels // 2, channels, 1)
        self.activation = activation

    def forward(self, x):
        x = self.activation(self.conv(x))
        whole = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.up(self.activation(self.down(whole))))


class ChannelsLast(nn.Module):
    """Depthwise convolution, then linear layers over channels that lie last."""

    def __init__(self, channels, activation):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 2 * channels)
        self.down = nn.Linear(2 * channels, channels)

    def forward(self, x):
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.down(functional.gelu(self.up(inner)))
        return x + inner.permute(0, 3, 1, 2)


class Pyramid(nn.Module):
    """A coarser branch, enlarged and laid beside the input."""

    def __init__(self, channels, activation, mode):
        super().__init__()
        self.coarse = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.join = nn.Conv2d(2 * channels, channels, 1)
        self.activation = activation
        self.mode = mode

    def forward(self, x):
        coarse = self.activation(self.coarse(x))
        more = {"align_corners": False} if self.mode == "bilinear" else {}
        large = functional.interpolate(coarse, size=x.shape[-2:], mode=self.mode, **more)
        return self.join(torch.cat([x, large], dim=1))


class Cnn(nn.Module):
    """A stem, some blocks, and a head with a bounded hidden layer."""

    def __init__(self, channels, blocks, activation, pool, hidden):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels)
        self.activation = activation
        self.pool = pool
        self.blocks = nn.ModuleList(blocks)
        self.hidden = nn.Linear(channels * 16, hidden)
        self.square = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, CLASSES)
        self.dropout = nn.Dropout(0.1)

    def forward(self, image):
        x = self.activation(self.bn(self.stem(image)))
        x = self.pool(x)
        for block in self.blocks:
            x = block(x)
        x = functional.adaptive_avg_pool2d(x, 4)
        x = functional.relu6(self.hidden(torch.flatten(x, 1)))
        x = torch.clamp(self.square(self.dropout(x)), -1.5, 1.5)
        return self.head(x)


ACTIVATIONS = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "hardswish": nn.Hardswish,
}
BLOCKS = {
    "residual": Residual,
    "shuffled": Shuffled,
    "squeezed": Squeezed,
    "last": ChannelsLast,
    "bilinear": lambda channels, activation: Pyramid(channels, activation, "bilinear"),
    "nearest": lambda channels, activation: Pyramid(channels, activation, "nearest"),
}
POOLS = {
    "max": lambda: nn.MaxPool2d(3, 2, padding=1),
    "avg": lambda: nn.AvgPool2d(3, 2, padding=1),
    "plain": lambda: nn.MaxPool2d(2),
}


def draw_cnn(rng, blocks=None):
    """One of many nets, and what it is made of in words. `blocks` makes sure of some."""
    channels = rng.choice((8, 12, 16))
    activation = rng.choice(sorted(ACTIVATIONS))
    pool = rng.choice(sorted(POOLS))
    kinds = list(blocks or ())
    while len(kinds) < rng.choice((2, 3)):
        kinds.append(rng.choice(sorted(BLOCKS)))
    rng.shuffle(kinds)
    made = [BLOCKS[kind](channels, ACTIVATIONS[activation]()) for kind in kinds]
    hidden = rng.choice((24, 32))
    model = Cnn(channels, made, ACTIVATIONS[activation](), POOLS[pool](), hidden)
    return model, f"cnn {channels} channels, {activation}, {pool} pool, {', '.join(kinds)}"


def images(rng, batch=2):
    """Pictures as a camera has them, normalised: smooth, with a mean that is not zero."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    small = torch.rand(batch, 3, 6, 6, generator=generator)
    smooth = functional.interpolate(small, size=(SIDE, SIDE), mode="bicubic").clamp(0, 1)
    grain = 0.05 * torch.randn(batch, 3, SIDE, SIDE, generator=generator)
    tint = torch.tensor([0.15, 0.0, -0.1]).view(1, 3, 1, 1)
    return ((smooth + grain + tint).clamp(0, 1) - 0.45) / 0.25
