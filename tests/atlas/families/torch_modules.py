"""Modules and functions of torch itself, each in a small net that gives it neighbours."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from atlas.architecture import architecture

Built = tuple[nn.Module, tuple[Tensor, ...]]


def image_net(*middle: nn.Module, leaving: int = 8) -> Built:
    """`middle` between two convolutions; it gets 8 channels and gives `leaving`."""
    before, after = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(leaving, 4, 3, padding=1)
    return nn.Sequential(before, nn.Tanh(), *middle, after), (torch.randn(2, 3, 16, 16),)


def signal_net(*middle: nn.Module, leaving: int = 8) -> Built:
    """The same over 1-D signals."""
    before, after = nn.Conv1d(3, 8, 3), nn.Conv1d(leaving, 4, 3)
    return nn.Sequential(before, nn.Tanh(), *middle, after), (torch.randn(2, 3, 40),)


def volume_net(*middle: nn.Module, leaving: int = 8) -> Built:
    """The same over volumes."""
    before, after = nn.Conv3d(2, 8, 3, padding=1), nn.Conv3d(leaving, 4, 3, padding=1)
    return nn.Sequential(before, nn.Tanh(), *middle, after), (torch.randn(1, 2, 8, 10, 12),)


def token_net(*middle: nn.Module, leaving: int = 16) -> Built:
    """`middle` between two linear layers; it gets (2, 10, 16) and gives `leaving` features."""
    before, after = nn.Linear(12, 16), nn.Linear(leaving, 6)
    return nn.Sequential(before, nn.Tanh(), *middle, after), (torch.randn(2, 10, 12),)


class Apply(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Recurrent(nn.Module):
    """A recurrent module between two linear layers; its last state is an output too."""

    def __init__(self, recurrent: nn.RNNBase) -> None:
        super().__init__()
        self.before = nn.Linear(12, recurrent.input_size)
        self.recurrent = recurrent
        directions = 2 if recurrent.bidirectional else 1
        self.after = nn.Linear(directions * recurrent.hidden_size, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        hidden, state = self.recurrent(torch.tanh(self.before(x)))
        states = state if isinstance(state, tuple) else (state,)
        return self.after(hidden), *states


def recurrent_net(recurrent: nn.RNNBase) -> Built:
    return Recurrent(recurrent), (torch.randn(7, 3, 12),)


class CellLoop(nn.Module):
    """An LSTM cell that Python repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(12, 16)
        self.cell = nn.LSTMCell(16, 20)
        self.after = nn.Linear(20, 6)

    def forward(self, x: Tensor) -> Tensor:
        hidden = cell = x.new_zeros(x.shape[1], 20)
        for step in self.before(x):
            hidden, cell = self.cell(step, (hidden, cell))
        return self.after(hidden)


class LinearScan(nn.Module):
    """A gated recurrence that Python repeats over the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        gates = torch.sigmoid(self.gates(x))
        state, states = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            state = gates[:, step] * state + (1 - gates[:, step]) * x[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0]


class CrossAttention(nn.Module):
    """Attention to another sequence of another width, whose averaged weights are an output too."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(12, 16)
        self.attention = nn.MultiheadAttention(16, 4, kdim=10, vdim=10, batch_first=True)
        self.after = nn.Linear(16, 6)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        attended, weights = self.attention(self.before(x), memory, memory)
        return self.after(attended), weights


class Heads(nn.Module):
    """`scaled_dot_product_attention` over projected heads."""

    def __init__(self, heads: int, pairs: int, **options: bool) -> None:
        super().__init__()
        self.queries = nn.Linear(16, heads * 8)
        self.keys_and_values = nn.Linear(16, 2 * pairs * 8)
        self.after = nn.Linear(heads * 8, 16)
        self.options = options

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (-1, 8)).transpose(1, 2)

        keys, values = self.keys_and_values(x).chunk(2, dim=-1)
        attended = functional.scaled_dot_product_attention(
            split(self.queries(x)), split(keys), split(values), attn_mask=mask, **self.options
        )
        return self.after(attended.transpose(1, 2).flatten(2))


class Decoding(nn.Module):
    """Two causal decoder layers over tokens and a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, 16)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32), 2)
        self.after = nn.Linear(16, 30)

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[0])
        # Said here, since torch would else read the mask, which an export cannot follow.
        hidden = self.decoder(self.tokens(tokens), memory, tgt_mask=mask, tgt_is_causal=True)
        return self.after(hidden)


class Bags(nn.Module):
    """Sums and means of embeddings of bags of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = nn.EmbeddingBag(30, 16, mode="sum")
        self.means = nn.EmbeddingBag(30, 16, mode="mean")
        self.after = nn.Linear(32, 6)

    def forward(self, bags: Tensor) -> Tensor:
        return self.after(torch.cat([self.sums(bags), self.means(bags)], dim=-1))


class TwoTowers(nn.Module):
    """A function of the features of two inputs."""

    def __init__(self, compare: Callable[[Tensor, Tensor], Tensor], leaving: int) -> None:
        super().__init__()
        self.left = nn.Linear(12, 16)
        self.right = nn.Linear(10, 16)
        self.compare = compare
        self.after = nn.Linear(leaving, 6)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.after(self.compare(torch.tanh(self.left(left)), torch.tanh(self.right(right))))


def two_towers(compare: Callable[..., Tensor], leaving: int) -> Built:
    return TwoTowers(compare, leaving), (torch.randn(2, 7, 12), torch.randn(2, 7, 10))


def cosines(left: Tensor, right: Tensor) -> Tensor:
    return functional.cosine_similarity(left[:, :, None], right[:, None], dim=-1)


def distances(left: Tensor, right: Tensor) -> Tensor:
    return functional.pairwise_distance(left[:, :, None], right[:, None])


def mixed(left: Tensor, right: Tensor) -> Tensor:
    scores = torch.einsum("bic,bjc->bij", left, right)
    mixture = torch.einsum("bij,bjc,bic->bic", scores, right, left)
    return mixture + torch.einsum("bjc->bc", right)[:, None]


class GraphLayer(nn.Module):
    """Messages along edges: gathered from their sources, added up at their targets."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(12, 16)
        self.message = nn.Linear(16, 16)
        self.after = nn.Linear(16, 6)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        nodes = self.before(nodes)
        messages = torch.relu(self.message(nodes[edges[0]]))
        targets = edges[1][:, None].expand_as(messages)
        received = torch.zeros_like(nodes).scatter_add(0, targets, messages)
        return self.after(nodes + received)


class BestTokens(nn.Module):
    """The tokens of the greatest scores, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores, places = self.scores(x).squeeze(-1).topk(4, dim=1)
        best = torch.gather(x, 1, places[..., None].expand(-1, -1, x.shape[-1]))
        return best * torch.sigmoid(scores)[..., None]


class Spectrogram(nn.Module):
    """Log magnitudes from a convolution with cosines and sines, then a net over frequencies."""

    def __init__(self, window: int = 32) -> None:
        super().__init__()
        angles = torch.arange(window) * torch.arange(window // 2)[:, None] * (2 * torch.pi / window)
        waves = torch.cat([angles.cos(), angles.sin()]) * torch.hann_window(window)
        self.register_buffer("waves", waves[:, None])
        self.after = nn.Sequential(nn.Conv1d(window // 2, 8, 3), nn.ReLU(), nn.Conv1d(8, 4, 1))

    def forward(self, signal: Tensor) -> Tensor:
        padded = functional.pad(signal, (16, 16))
        cosines, sines = functional.conv1d(padded, self.waves, stride=8).chunk(2, dim=1)
        return self.after(torch.log(cosines.square() + sines.square() + 1e-3))


class Warp(nn.Module):
    """Samples an image at places that a convolution moves."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        straight = torch.eye(2, 3).expand(x.shape[0], 2, 3)
        grid = functional.affine_grid(straight, list(x.shape), align_corners=False)
        grid = grid + 0.1 * torch.tanh(self.shift(x)).permute(0, 2, 3, 1)
        return functional.grid_sample(x, grid, align_corners=False)


class Residual(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norms[0](self.convs[0](x)))
        return torch.relu(x + self.norms[1](self.convs[1](hidden)))


def shared_blocks() -> Built:
    first, second = Residual(8), Residual(8)
    return image_net(first, second, first, nn.MaxPool2d(2), second, second)


def pointwise() -> nn.Module:
    """A linear layer over the 8 channels of an image."""
    return nn.Conv2d(8, 8, 1)


def dense() -> nn.Module:
    return nn.Linear(16, 16)


def apart(linear: Callable[[], nn.Module], *activations: nn.Module) -> list[nn.Module]:
    """The activations, each before a linear layer of its own."""
    return [module for activation in activations for module in (activation, linear())]


def resized(mode: str, **options: object) -> Callable[[], Built]:
    return lambda: image_net(nn.Upsample(mode=mode, **options))


NETS: dict[str, Callable[[], Built]] = {
    # Recurrence
    "lstm": lambda: recurrent_net(nn.LSTM(16, 20)),
    "lstm-batch-first": lambda: recurrent_net(nn.LSTM(16, 20, batch_first=True)),
    "lstm-bidirectional-2layers": lambda: recurrent_net(
        nn.LSTM(16, 20, num_layers=2, bidirectional=True)
    ),
    "lstm-cell-loop": lambda: (CellLoop(), (torch.randn(4, 3, 12),)),
    "gru": lambda: recurrent_net(nn.GRU(16, 20)),
    "gru-bidirectional": lambda: recurrent_net(
        nn.GRU(16, 20, bidirectional=True, batch_first=True)
    ),
    "rnn-tanh": lambda: recurrent_net(nn.RNN(16, 20)),
    "linear-scan": lambda: token_net(LinearScan()),
    "cumulative-sum": lambda: token_net(
        Apply(lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]),
        dense(),
        Apply(lambda x: x.flip(1).cumsum(1).flip(1)),
    ),
    # Norms
    "rms-norm": lambda: token_net(nn.RMSNorm(16), dense(), nn.GELU(), nn.RMSNorm(16, eps=1e-6)),
    "layer-norm": lambda: token_net(nn.LayerNorm(16), dense(), nn.LayerNorm((10, 16), bias=False)),
    "group-norm": lambda: image_net(nn.GroupNorm(4, 8), nn.SiLU(), pointwise(), nn.GroupNorm(1, 8)),
    "instance-norm": lambda: image_net(
        nn.InstanceNorm2d(8, affine=True),
        pointwise(),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        pointwise(),
        nn.InstanceNorm2d(8),
    ),
    "local-response-norm": lambda: image_net(
        nn.LocalResponseNorm(5, alpha=0.5, k=1.5), pointwise(), nn.ReLU()
    ),
    "weight-norm": lambda: signal_net(
        parametrizations.weight_norm(nn.Conv1d(8, 12, 3)),
        nn.ELU(),
        parametrizations.weight_norm(nn.ConvTranspose1d(12, 8, 4, stride=2)),
    ),
    "spectral-norm": lambda: image_net(
        parametrizations.spectral_norm(nn.Conv2d(8, 12, 3)),
        nn.LeakyReLU(0.2),
        parametrizations.spectral_norm(nn.Conv2d(12, 8, 3)),
    ),
    # Attention
    "multihead-attention": lambda: token_net(SelfAttention(batch_first=False)),
    "multihead-attention-batch-first": lambda: token_net(SelfAttention(batch_first=True)),
    "multihead-attention-cross": lambda: (
        CrossAttention(),
        (torch.randn(2, 7, 12), torch.randn(2, 9, 10)),
    ),
    "transformer-encoder-layer": lambda: token_net(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    ),
    "transformer-encoder-layer-norm-first": lambda: token_net(
        nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", norm_first=True)
    ),
    "transformer-encoder": lambda: token_net(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3, norm=nn.LayerNorm(16)
        )
    ),
    "transformer-decoder": lambda: (
        Decoding(),
        (torch.randint(0, 30, (6, 2)), torch.randn(5, 2, 16)),
    ),
    "attention-causal": lambda: token_net(Heads(4, 4, is_causal=True)),
    "attention-grouped-queries": lambda: token_net(Heads(4, 2, enable_gqa=True)),
    "attention-boolean-mask": lambda: (
        Heads(3, 3),
        (torch.randn(2, 7, 16), (torch.rand(2, 1, 7, 7) > 0.4) | torch.eye(7, dtype=torch.bool)),
    ),
    "attention-added-mask": lambda: (Heads(3, 3), (torch.randn(2, 7, 16), torch.randn(1, 3, 7, 7))),
    # Convolutions
    "conv-grouped": lambda: image_net(
        nn.Conv2d(8, 16, 3, stride=2, groups=4), nn.ReLU(), leaving=16
    ),
    "conv-depthwise": lambda: image_net(
        nn.Conv2d(8, 16, (3, 5), padding="same", groups=8),
        nn.ReLU6(),
        nn.Conv2d(16, 12, 1),
        leaving=12,
    ),
    "conv-padding-modes": lambda: image_net(
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(8, 8, 3, padding=(2, 1), padding_mode="circular"),
        nn.Conv2d(8, 8, 3, padding=2, padding_mode="replicate", dilation=2),
        nn.ConstantPad2d((1, 0, 2, -1), 0.5),
    ),
    "conv-transpose-1d": lambda: signal_net(
        nn.ConvTranspose1d(8, 12, 4, stride=3, padding=1, output_padding=2, groups=2), leaving=12
    ),
    "conv-transpose-2d": lambda: image_net(
        nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1, groups=4),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, (2, 3), stride=(1, 2), dilation=2, bias=False),
        leaving=6,
    ),
    "conv-transpose-3d": lambda: volume_net(
        nn.ConvTranspose3d(8, 6, 3, stride=(1, 2, 2), padding=1, output_padding=(0, 1, 1)),
        leaving=6,
    ),
    "conv-1d-dilated": lambda: signal_net(
        nn.Conv1d(8, 8, 3, dilation=2, padding="same"),
        nn.GLU(dim=1),
        nn.Conv1d(4, 8, 2, dilation=5),
    ),
    "conv-3d": lambda: volume_net(
        nn.Conv3d(8, 8, (3, 1, 3), stride=(2, 1, 1)), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2)
    ),
    "resnet-shared-blocks": shared_blocks,
    "spectrogram": lambda: (Spectrogram(), (torch.randn(2, 1, 400),)),
    # Pools and changes of size
    "pixel-shuffle": lambda: image_net(
        nn.PixelUnshuffle(2),
        nn.Conv2d(32, 36, 1),
        nn.PixelShuffle(3),
        nn.ChannelShuffle(2),
        leaving=4,
    ),
    "adaptive-pools": lambda: image_net(
        nn.AdaptiveAvgPool2d((8, 4)),
        pointwise(),
        nn.AdaptiveMaxPool2d(4),
        pointwise(),
        nn.AdaptiveAvgPool2d(1),
    ),
    "max-pool-ceil-dilation": lambda: image_net(
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        pointwise(),
        nn.MaxPool2d(2, stride=1, dilation=2, padding=1),
    ),
    "avg-pool-exclude-padding": lambda: image_net(
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        pointwise(),
        nn.AvgPool2d(3, padding=1),
    ),
    "lp-pool": lambda: image_net(nn.LPPool2d(2, 2), pointwise(), nn.MaxPool2d(2)),
    "interpolate-bilinear": resized("bilinear", size=(24, 20)),
    "interpolate-bilinear-align-corners": resized("bilinear", size=(24, 20), align_corners=True),
    "interpolate-bicubic": resized("bicubic", scale_factor=2),
    "interpolate-bicubic-align-corners": resized("bicubic", size=(24, 20), align_corners=True),
    "interpolate-nearest": lambda: image_net(
        nn.Upsample(scale_factor=2), pointwise(), nn.Upsample(size=(20, 28))
    ),
    "interpolate-area": resized("area", size=(8, 4)),
    "grid-sample": lambda: image_net(Warp()),
    # Activations
    "activations": lambda: image_net(
        nn.GLU(dim=1),
        nn.Conv2d(4, 8, 1),
        *apart(pointwise, nn.PReLU(8, init=0.2), nn.CELU(0.7), nn.Hardswish(), nn.Mish()),
        nn.Softplus(2),
    ),
    "activations-bounded": lambda: token_net(
        *apart(dense, nn.Hardsigmoid(), nn.Softsign(), nn.Hardtanh(-0.3, 0.4), nn.LogSigmoid()),
        nn.Softmax(dim=-1),
    ),
    "activations-leaky": lambda: token_net(
        *apart(dense, nn.LeakyReLU(0.2), nn.ELU(0.8), nn.SELU(), nn.GELU(approximate="tanh")),
        *apart(dense, nn.Softshrink(0.1), nn.LogSoftmax(dim=-1)),
    ),
    # Two inputs, indices
    "bilinear": lambda: two_towers(nn.Bilinear(16, 16, 9), leaving=9),
    "cosine-similarity": lambda: two_towers(cosines, leaving=7),
    "pairwise-distance": lambda: two_towers(distances, leaving=7),
    "einsum": lambda: two_towers(mixed, leaving=16),
    "embedding-bag": lambda: (Bags(), (torch.randint(0, 30, (4, 5)),)),
    "embedding-padding-idx": lambda: (
        nn.Sequential(nn.Embedding(30, 16, padding_idx=0), nn.LayerNorm(16), dense()),
        (torch.tensor([[4, 9, 0, 0], [1, 2, 29, 0]]),),
    ),
    "gather-scatter": lambda: (GraphLayer(), (torch.randn(9, 12), torch.randint(0, 9, (2, 20)))),
    "top-k-gather": lambda: token_net(BestTokens()),
}

for name, build in NETS.items():
    architecture(f"torch/{name}")(build)
