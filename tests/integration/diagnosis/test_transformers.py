"""Faults that converters plant in transformers are named: what, where, and of which class."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import syncpoint as sp
from models.onnx_files import quiet

WIDTH, HEADS, PLACES = 32, 4, 8


class Decoder(nn.Module):
    """One block, every step of which can be told to do something else."""

    def __init__(self, **faults):
        super().__init__()
        self.faults = faults
        self.norm = nn.LayerNorm(WIDTH, eps=faults.get("epsilon", 1e-5))
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key, self.value = (nn.Linear(WIDTH, WIDTH // 2) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.normed(x))
        return x + self.down(self.gelu(self.up(self.rms(x))))

    def gelu(self, x):
        return functional.gelu(x, approximate=self.faults.get("gelu", "none"))

    def normed(self, x):
        form = self.faults.get("norm")
        weight, bias = self.norm.weight, self.norm.bias
        if form == "no weight":
            weight = None
        elif form == "no bias":
            bias = None
        elif form == "1 + weight":
            weight = 1 + weight
        return functional.layer_norm(x, (WIDTH,), weight, bias, self.norm.eps)

    def rms(self, x):
        epsilon = self.faults.get("rms epsilon", 1e-6)
        square = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(square + epsilon) * self.scale

    def heads(self, x, count):
        return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)

    def repeated(self, x):
        if self.faults.get("heads") == "tiled":
            return x.repeat(1, 2, 1, 1)
        return x.repeat_interleave(2, 1)

    def attention(self, x):
        query = self.heads(self.query(x), HEADS)
        key, value = (
            self.repeated(self.heads(part(x), HEADS // 2)) for part in (self.key, self.value)
        )
        mixed = self.mixed(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def mixed(self, query, key, value):
        faults = self.faults
        if faults.get("exchanged"):
            query, key = key, query
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=faults.get("mask"),
            is_causal=faults.get("causal", "mask" not in faults),
            scale=faults.get("attention scale"),
        )


class Spread(Decoder):
    """The same with its attention written out."""

    def mixed(self, query, key, value):
        faults = self.faults
        scale = faults.get("attention scale", 1 / math.sqrt(WIDTH // HEADS))
        scores = query @ key.transpose(-2, -1)
        if scale is not None:
            scores = scores * scale
        if faults.get("causal", True):
            later = torch.ones(PLACES, PLACES, dtype=torch.bool)
            later = torch.triu(later, diagonal=faults.get("diagonal", 1))
            scores = scores.masked_fill(later, -math.inf)
        return functional.softmax(scores, dim=faults.get("axis", -1)) @ value


def pair(kind, dtype=torch.float32, seed=0, **faults):
    torch.manual_seed(seed)
    reference = kind()
    for parameter in reference.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    target = kind(**faults)
    target.load_state_dict(reference.state_dict())
    # Scores that are far apart, as those of trained models are.
    x = 0.3 * torch.randn(2, PLACES, WIDTH)
    return target.to(dtype).eval(), reference.to(dtype).eval(), x.to(dtype)


def first(target, reference, x):
    return sp.compare(target, reference, inputs=(x,)).findings[0]


FUSED = [
    ({"epsilon": 1e-3}, "epsilon", "layer_norm"),
    ({"epsilon": 3e-4}, "epsilon", "layer_norm"),
    ({"norm": "no weight"}, "weight-missing", "layer_norm"),
    ({"norm": "no bias"}, "bias-missing", "layer_norm"),
    ({"norm": "1 + weight"}, "weight-plus-one", "layer_norm"),
    ({"rms epsilon": 1e-3}, "epsilon", "add"),
    ({"causal": False}, "causal-missing", "attention"),
    ({"attention scale": 1.0}, "scale-missing", "attention"),
    ({"attention scale": HEADS / WIDTH}, "scale-by-width", "attention"),
    ({"attention scale": WIDTH**-0.5}, "scale-of-model", "attention"),
    ({"attention scale": 0.2}, "scale-other", "attention"),
    ({"mask": torch.ones(PLACES, PLACES).triu().bool()}, "causal-transposed", "attention"),
    ({"mask": torch.ones(PLACES, PLACES).tril(1).bool()}, "causal-off-by-one", "attention"),
    ({"exchanged": True}, "query-key-exchanged", "attention"),
    ({"heads": "tiled"}, "heads-repeated", ""),
]
SPREAD = [
    ({"attention scale": None}, "scale-missing", ""),
    ({"attention scale": 1 / 8}, "scale-twice", "mul"),
    ({"attention scale": 0.2}, "scale-other", "mul"),
    ({"causal": False}, "causal-missing", ""),
    ({"diagonal": 2}, "causal-off-by-one", "triu"),
    ({"axis": -2}, "softmax-axis", "softmax"),
]


@pytest.mark.parametrize(
    ("kind", "faults", "wanted", "op"),
    [(Decoder, *case) for case in FUSED] + [(Spread, *case) for case in SPREAD],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_fault_is_named(kind, faults, wanted, op):
    found = first(*pair(kind, **faults))
    assert (found.cause, found.kind) == ("implementation", wanted), found.text
    assert op in found.ops[0]
    assert found.confidence >= 0.9


def test_an_epsilon_is_solved_for():
    found = first(*pair(Decoder, epsilon=3e-4))
    assert "epsilon 0.0003 instead of 1e-05" in found.title


EXPORTED = [
    ({"epsilon": 1e-3}, "epsilon"),
    ({"norm": "no bias"}, "bias-missing"),
    ({"rms epsilon": 1e-3}, "epsilon"),
    ({"attention scale": 1 / 8}, "scale-twice"),
    ({"attention scale": 0.2}, "scale-other"),
    ({"diagonal": 2}, "causal-off-by-one"),
]


def in_onnx(model, x):
    with quiet():
        return torch.onnx.export(model, (x,), dynamo=True, verbose=False, optimize=False)


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
@pytest.mark.parametrize(("faults", "wanted"), EXPORTED, ids=lambda v: v if type(v) is str else "")
def test_the_fault_is_named_in_onnx_runtime(faults, wanted, fusion):
    target, reference, x = pair(Spread, **faults)
    found = sp.compare(
        in_onnx(target, x), reference, inputs=(x,), target_options={"fusion": fusion}
    ).findings
    assert (found[0].cause, found[0].kind) == ("implementation", wanted), found[0].text
    assert found[0].confidence >= 0.9


@pytest.mark.parametrize("fusion", ["as-executed", "unfused"])
def test_a_clean_onnx_model_gives_nothing_above_a_note(fusion):
    target, reference, x = pair(Spread)
    found = sp.compare(
        in_onnx(target, x), reference, inputs=(x,), target_options={"fusion": fusion}
    ).findings
    assert [f.text for f in found if f.level != "note"] == []


LOW = [
    ({"epsilon": 1e-3}, "epsilon"),
    ({"norm": "no bias"}, "bias-missing"),
    ({"causal": False}, "causal-missing"),
    ({"attention scale": WIDTH**-0.5}, "scale-of-model"),
    ({"gelu": "tanh"}, "gelu-tanh"),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("faults", "wanted"), LOW, ids=lambda v: v if type(v) is str else "")
def test_the_fault_is_named_in_sixteen_bits(faults, wanted, dtype):
    target, reference, x = pair(Decoder, dtype, **faults)
    found = sp.compare(target, reference, inputs=(x,)).findings
    assert (found[0].cause, found[0].kind) == ("implementation", wanted), found[0].text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [Decoder, Spread])
def test_a_clean_transformer_gives_nothing_above_a_note(kind, dtype):
    target, reference, x = pair(kind, dtype)
    reference = reference.float()
    found = sp.compare(sp.capture(target, (x,)), sp.capture(reference, (x.float(),)))
    assert [f.text for f in found.findings if f.level != "note"] == []
