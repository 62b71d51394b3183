"""Faults planted in torch: the op is named, and what it computes instead."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import syncpoint as sp
from models.calls import Calls
from syncpoint.comparison.findings import Level


def real(*shape, seed=5):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X = real(2, 6, 12, 12)
W, B = real(6, 6, 3, 3, seed=6), real(6, seed=7)
WIDE, SHIFT, SQUARE = real(8, 12, seed=8), real(8, seed=9), real(12, 12, seed=10)
MEAN, NONE, VARIANCE = real(6, seed=11), torch.zeros(6), 0.02 * real(6, seed=12).abs() + 0.006


def findings(target, reference, *inputs):
    comparison = sp.compare(Calls(target).eval(), Calls(reference).eval(), inputs=inputs or (X,))
    return comparison.diagnosis.findings


def norm(x, eps=1e-5, weight=B, mean=MEAN):
    return F.batch_norm(x, mean, VARIANCE, weight, B, eps=eps)


FAULTS = [
    ("bias-missing", lambda x: F.conv2d(x, W, padding=1), lambda x: F.conv2d(x, W, B, padding=1)),
    ("bias-missing", lambda x: F.linear(x, WIDE), lambda x: F.linear(x, WIDE, SHIFT)),
    ("bias-twice", lambda x: F.linear(x, WIDE, 2 * SHIFT), lambda x: F.linear(x, WIDE, SHIFT)),
    ("weight-transposed", lambda x: F.linear(x, SQUARE.T.clone()), lambda x: F.linear(x, SQUARE)),
    ("weight-misread", lambda x: F.linear(x, WIDE.T.reshape(8, 12)), lambda x: F.linear(x, WIDE)),
    ("kernel-flipped", lambda x: F.conv2d(x, W.flip(2, 3)), lambda x: F.conv2d(x, W)),
    ("kernel-transposed", lambda x: F.conv2d(x, W.mT.contiguous()), lambda x: F.conv2d(x, W)),
    (
        "weight-channels-exchanged",
        lambda x: F.conv2d(x, W.transpose(0, 1).contiguous()),
        lambda x: F.conv2d(x, W),
    ),
    ("weight-inputs-reversed", lambda x: F.conv2d(x, W.flip(1)), lambda x: F.conv2d(x, W)),
    (
        "padding-side",
        lambda x: F.conv2d(F.pad(x, (0, 1, 0, 1)), W, B, stride=2),
        lambda x: F.conv2d(x, W, B, stride=2, padding=1),
    ),
    (
        "padding-mode",
        lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), W, B),
        lambda x: F.conv2d(x, W, B, padding=1),
    ),
    (
        "dilation-ignored",
        lambda x: F.conv2d(x, W, B, padding=1),
        lambda x: F.conv2d(x, W, B, padding=2, dilation=2),
    ),
    ("pool-kind", lambda x: F.avg_pool2d(x, 2), lambda x: F.max_pool2d(x, 2)),
    (
        "pool-count-include-pad",
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
    ),
    (
        "pool-pad-value",
        lambda x: F.max_pool2d(F.pad(x - 2, (1, 1, 1, 1)), 3, 2),
        lambda x: F.max_pool2d(x - 2, 3, 2, 1),
    ),
    (
        "resize-coordinates",
        lambda x: F.interpolate(x, (24, 24), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x, (24, 24), mode="bilinear"),
    ),
    (
        "resize-rounding",
        lambda x: F.interpolate(x, (17, 17), mode="nearest-exact"),
        lambda x: F.interpolate(x, (17, 17)),
    ),
    (
        "resize-antialias",
        lambda x: F.interpolate(x, (5, 5), mode="bilinear", antialias=True),
        lambda x: F.interpolate(x, (5, 5), mode="bilinear"),
    ),
    ("clamp-bounds", lambda x: x.clamp(-0.5, 1), lambda x: x.clamp(-1, 1)),
    ("clamp-max-missing", lambda x: x.clamp(min=-1), lambda x: x.clamp(-1, 1)),
    ("relu-instead", lambda x: F.relu(9 * x), lambda x: F.relu6(9 * x)),
    ("leaky-slope", lambda x: F.leaky_relu(x, 0.15), lambda x: F.leaky_relu(x, 0.01)),
    ("broadcast-axis", lambda x: x + SQUARE[0][:, None], lambda x: x + SQUARE[0]),
    ("rounding-mode", lambda x: torch.trunc(4 * x), lambda x: torch.round(4 * x)),
    (
        "div-rounding",
        lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
        lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    ),
    (
        "layout-order",
        lambda x: x.permute(0, 2, 3, 1).reshape(2, -1),
        lambda x: x.reshape(2, -1),
    ),
    ("halves-exchanged", lambda x: torch.cat([x * 2, x], 1), lambda x: torch.cat([x, x * 2], 1)),
    ("slice-off", lambda x: x[:, 1:4], lambda x: x[:, :3]),
    ("reduce-axis", lambda x: x.mean(3), lambda x: x.mean(2)),
    ("sum-instead", lambda x: x.sum(3), lambda x: x.mean(3)),
    ("variance-biased", lambda x: x.var(1, unbiased=False), lambda x: x.var(1)),
    ("sub-instead", lambda x: x - x.flip(3), lambda x: x + x.flip(3)),
    ("operands-swapped", lambda x: x.flip(3) - x, lambda x: x - x.flip(3)),
    ("alpha-ignored", lambda x: x + x.flip(3), lambda x: torch.add(x, x.flip(3), alpha=3)),
    ("pow-exponent", lambda x: x.pow(3), lambda x: x.pow(2)),
    ("cumsum-axis", lambda x: x.cumsum(3), lambda x: x.cumsum(2)),
    ("epsilon", lambda x: norm(x, 1e-3), norm),
    ("batch_norm-missing", lambda x: F.conv2d(x, W), lambda x: norm(F.conv2d(x, W))),
    ("batch_norm-weight", lambda x: norm(x, weight=None), norm),
    ("batch_norm-mean", lambda x: norm(x, mean=NONE), norm),
    ("relu-missing", lambda x: F.conv2d(x, W), lambda x: F.relu(F.conv2d(x, W))),
    ("relu-before", lambda x: F.relu(x) + x.flip(3), lambda x: F.relu(x + x.flip(3))),
    ("scale", lambda x: F.conv2d(x, W) * 1.5, lambda x: F.conv2d(x, W)),
    ("shifted", lambda x: x.softmax(1).roll(1, 2), lambda x: x.softmax(1)),
    ("axes-exchanged", lambda x: x.softmax(1).mT, lambda x: x.softmax(1)),
]


@pytest.mark.parametrize(("kind", "target", "reference"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_named(kind, target, reference):
    reported = findings(target, reference)
    assert reported[0].level is Level.CAUSE
    assert reported[0].confidence >= 0.9
    if kind in CAUSE_BY_OTHER_KIND:
        assert reported[0].cause == CAUSE_BY_OTHER_KIND[kind], [(f.kind, f.title) for f in reported]
        return
    assert reported[0].kind == kind, [(f.kind, f.title) for f in reported]
    assert reported[0].cause == "implementation"


@pytest.mark.parametrize(
    ("axes", "place"), [(1, "at the end"), (2, "at the end (right, bottom)")], ids=["1-D", "2-D"]
)
def test_the_separate_op_that_pads_is_named(axes, place):
    convolve = (F.conv1d, F.conv2d)[axes - 1]
    weight, x = W.flatten(2)[..., :3] if axes == 1 else W, X.flatten(2) if axes == 1 else X
    first = findings(
        lambda x: convolve(F.pad(x, (0, 1) * axes), weight, stride=2),
        lambda x: convolve(x, weight, stride=2, padding=1),
        x,
    )[0]
    assert first.title.endswith(f"pads only {place}; the reference pads on both sides")
    assert "in the target, a separate op pads its input: pad" in first.evidence
    assert first.next.startswith("change pad in the target to pad as conv")


CAUSE_BY_OTHER_KIND = {
    **dict.fromkeys(("scale", "shifted", "axes-exchanged"), "processing"),
    "batch_norm-mean": "weights",
}
"""Faults after the last op of the reference, or in a constant, are reported as these causes."""

COARSE = [f for f in FAULTS if f[0] in ("bias-missing", "pool-count-include-pad", "leaky-slope")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kind", "target", "reference"), COARSE, ids=[f[0] for f in COARSE])
def test_also_in_16_bits(dtype, kind, target, reference):
    def cast(function):
        originals = {name: globals()[name] for name in ("W", "B", "WIDE", "SHIFT")}

        def run(x):
            globals().update({name: value.to(dtype) for name, value in originals.items()})
            try:
                return function(x)
            finally:
                globals().update(originals)

        return run

    reported = findings(cast(target), cast(reference), X.to(dtype))
    assert reported[0].kind == kind, [(f.kind, f.title) for f in reported]


NOISES = {
    "small": lambda y, n: y + 1e-3 * n,
    "large": lambda y, n: y + 3 * n,
    "relative": lambda y, n: y * (1 + 0.1 * n),
    "one element": lambda y, n: torch.where(n == n.max(), 50.0, y),
    "one zero": lambda y, n: torch.where(n == n.max(), 0.0, y),
    "a tenth": lambda y, n: torch.where(n > 1.28, y + n, y),
    "another tensor": lambda y, n: n,
}
OPS = {
    "conv2d": lambda x: F.conv2d(x, W, B, padding=1),
    "linear": lambda x: F.linear(x, SQUARE, None),
    "relu": F.relu,
    "gelu": F.gelu,
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 1, 1),
    "add": lambda x: x + x.flip(3),
    "clamp": lambda x: x.clamp(-1, 1),
    "batch_norm": norm,
    "mean": lambda x: x.mean(3),
}


@pytest.mark.parametrize("op", OPS)
def test_what_no_variant_explains_is_not_explained(op):
    """Noise of any size and kind: a wrong explanation is worse than none."""
    function = OPS[op]
    noise = {name: real(*function(X).shape, seed=20 + i) for i, name in enumerate(NOISES)}
    reference = sp.capture(Calls(function).eval(), (X,))
    for name, add_noise in NOISES.items():
        target = Calls(lambda x, s=add_noise, n=noise[name]: s(function(x), n)).eval()
        comparison = sp.compare(
            target, reference, inputs=(X,), reference_model=Calls(function).eval()
        )
        explained_titles = [
            f.title for f in comparison.diagnosis.findings if f.kind != "unexplained"
        ]
        assert not explained_titles, (name, explained_titles)
