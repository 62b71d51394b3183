"""A small convolutional net with batch norm, a residual block and dropout."""

import torch
from torch import nn
from torch.nn import functional

from models.norms import randomize_batch_norms


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        inner = functional.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        return functional.relu(x + inner)


class Cnn(nn.Module):
    def __init__(self, channels: int = 8, classes: int = 10):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(2)
        self.block = Residual(channels)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(channels * 8 * 8, classes)

    def forward(self, image):
        x = torch.relu(self.bn(self.conv(image)))
        x = self.pool(x)
        x = self.block(x)
        x = self.dropout(torch.flatten(x, 1))
        return self.classifier(x)


def make_cnn(seed: int = 0) -> Cnn:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Cnn()
        randomize_batch_norms(model)
    return model.eval()


def cnn_inputs(batch: int = 2, seed: int = 1):
    return (torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(seed)),)
