"""Large ops: a few elements rule variants out, and never the right one."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import syncpoint as sp
from models.calls import Calls
from syncpoint.diagnosis.variants.screening import MIN_SCREENED_ELEMENTS


def real(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X = real(1, 16, 96, 96)
W, B = 0.1 * real(16, 16, 3, 3, seed=2), real(16, seed=3)
ONE = torch.zeros(16, 1, 1)
ONE[11] = 1
S = real(96, 96, seed=4)

FAULTS = [
    ("bias-missing", lambda x: F.conv2d(x, W, padding=1), lambda x: F.conv2d(x, W, B, padding=1)),
    (
        "kernel-flipped",
        lambda x: F.conv2d(x, W.flip(2, 3), B, padding=1),
        lambda x: F.conv2d(x, W, B, padding=1),
    ),
    (
        "padding-mode",
        lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), W, B),
        lambda x: F.conv2d(x, W, B, padding=1),
    ),
    ("gelu-tanh", lambda x: F.gelu(x, approximate="tanh"), F.gelu),
    ("weight-transposed", lambda x: F.linear(x, S.T.clone()), lambda x: F.linear(x, S)),
    (
        "pool-count-include-pad",
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
    ),
    ("slice-zero", lambda x: F.relu(x) * (1 - ONE), F.relu),
    ("sub-instead", lambda x: x - x.flip(3), lambda x: x + x.flip(3)),
]


@pytest.mark.parametrize(("kind", "target", "reference"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_fault_of_a_large_op_is_named(kind, target, reference):
    assert reference(X).numel() >= MIN_SCREENED_ELEMENTS
    comparison = sp.compare(Calls(target).eval(), Calls(reference).eval(), inputs=(X,))
    first = comparison.diagnosis.findings[0]
    assert first.kind == kind, [(f.kind, f.title) for f in comparison.diagnosis.findings]


def test_noise_is_not_explained():
    noise = real(1, 16, 96, 96, seed=9)
    target = Calls(lambda x: F.conv2d(x, W, B, padding=1) + 0.2 * noise).eval()
    reference = Calls(lambda x: F.conv2d(x, W, B, padding=1)).eval()
    comparison = sp.compare(target, reference, inputs=(X,))
    assert [f.kind for f in comparison.diagnosis.findings] in ([], ["unexplained"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_clean_is_left_alone(dtype):
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.GELU(),
        torch.nn.MaxPool2d(2), torch.nn.Upsample(scale_factor=2, mode="bilinear"),
        torch.nn.Conv2d(16, 8, 1), torch.nn.LeakyReLU(0.2), torch.nn.Softmax(1),
    ]  # fmt: skip
    reference = torch.nn.Sequential(*layers).eval()
    x = X[..., :32, :32]
    run = sp.capture(reference, (x,))
    target = sp.capture(deepcopy(reference).to(dtype), (x.to(dtype),))
    comparison = sp.compare(target, run, reference_model=reference)
    assert not [f.title for f in comparison.diagnosis.findings if f.level != "note"]
