"""A net of the form and size of ResNet-18: convolutions without bias, each before a batch norm."""

from itertools import pairwise

import torch
from torch import nn

from models.norms import randomize_batch_norms


class Block(nn.Module):
    def __init__(self, before: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.shortcut = None
        if stride > 1 or before != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        kept = x if self.shortcut is None else self.shortcut(x)
        return self.relu(inner + kept)


class ResNet(nn.Module):
    def __init__(self, width: int = 64, classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(Block(before, after, 1 + (i > 0)), Block(after, after, 1))
                for i, (before, after) in enumerate(pairwise(widths))
            )
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, image):
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


def make_resnet(width: int = 64, classes: int = 1000, seed: int = 0) -> ResNet:
    """With batch norms that do something; 11.7 million parameters unless told otherwise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ResNet(width, classes)
        randomize_batch_norms(model)
    return model.eval()


def make_small_resnet(seed: int = 0) -> ResNet:
    """The same ops in the same order, a sixteenth as wide."""
    return make_resnet(width=8, classes=10, seed=seed)


def resnet_inputs(size: int = 224, seed: int = 1):
    return (torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(seed)),)


def small_resnet_inputs(seed: int = 1):
    return resnet_inputs(64, seed)
