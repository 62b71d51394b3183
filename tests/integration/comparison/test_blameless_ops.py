"""Ops that are off for reasons that lie elsewhere are not blamed for it; those that do it are."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.small_runs import run
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Quantization, Role
from syncpoint.run.reader import in_memory

DIVISOR = 3.4641016


class Scores(nn.Module):
    def forward(self, x, y):
        return x @ y / DIVISOR


def fused(x, y, dtype, factor):
    """One op in float32 that multiplies and scales, below inputs of another type."""
    product = (x.astype(np.float64) @ y * factor).astype(np.float32)
    made = run(
        ("cast_x", "Cast", "", ("x",), x),
        ("cast_y", "Cast", "", ("y",), y),
        ("fused", "com.microsoft.FusedMatMul", "", ("cast_x", "cast_y"), product),
        inputs=[("x", x.astype(dtype)), ("y", y.astype(dtype))],
        outputs=[("fused", product)],
    )
    said = {"alpha": float(np.float32(factor))}
    ops = [replace(op, attributes=said) if op.key.op == "fused" else op for op in made.ops]
    return in_memory(made.info, ops, [(t, made.values(t)) for t in made.tensors])


@pytest.mark.parametrize(
    ("dtype", "divisor", "expected"),
    [
        (np.float16, np.float16(DIVISOR), Verdict.CLOSE),
        # It is a number of float16, and another one.
        (np.float16, np.float16(3.5), Verdict.LARGE),
        # Nothing of this run is float16 besides.
        (np.float32, np.float16(DIVISOR), Verdict.LARGE),
    ],
)
def test_a_factor_that_was_rounded_with_its_model_is_no_error_of_the_op(dtype, divisor, expected):
    rng = np.random.default_rng(0)
    # Both types hold the inputs, so that the factor is all that was rounded.
    x, y = rng.standard_normal((2, 32, 32)).astype(np.float16).astype(np.float32)
    reference = sp.capture(Scores(), (torch.from_numpy(x), torch.from_numpy(y)))
    comparison = sp.compare(fused(x, y, dtype, 1 / float(divisor)), reference)
    row = next(r for r in comparison.rows if r.target.key.op.op == "fused" and r.introduced)
    assert row.introduced_verdict is expected, row.introduced


class Chain(nn.Module):
    def forward(self, x):
        return torch.tanh(x * 2.0 + 1.0)


def quantized(x, factor, step):
    """The same in integers of one scale, behind a product with another factor."""
    scaled = x * np.float32(factor)
    stored = np.clip(np.round((scaled + 1) / step), -128, 127).astype(np.int8)
    real = stored * np.float32(step)
    made = run(
        ("mul", "Mul", "", ("x",), scaled),
        ("add", "QLinearAdd", "", ("mul",), stored),
        ("read", "DequantizeLinear", "", ("add",), real),
        ("tanh", "Tanh", "", ("read",), np.tanh(real)),
        inputs=[("x", x)],
        outputs=[("tanh", np.tanh(real))],
    )
    known = Quantization((float(step),))
    tensors = [replace(t, quantization=known) if t.dtype == "i8" else t for t in made.tensors]
    return in_memory(made.info, list(made.ops), [(t, made.values(t)) for t in tensors])


X = np.linspace(-2.5, 2.5, 256, dtype=np.float32).reshape(4, 64)
FITTING = 6 / 127
"""2 x + 1 lies between -4 and 6."""


@pytest.mark.parametrize(
    ("factor", "step", "mul", "add"),
    [
        (2.0, FITTING, Verdict.CLOSE, Verdict.CLOSE),
        # What overruns the integers is the product before.
        (4.0, FITTING, Verdict.LARGE, Verdict.CLOSE),
        # They are too short for what the reference has itself.
        (2.0, FITTING / 2, Verdict.CLOSE, Verdict.LARGE),
        (4.0, FITTING / 2, Verdict.LARGE, Verdict.LARGE),
    ],
)
def test_integers_are_blamed_for_what_the_reference_has_beyond_their_ends(factor, step, mul, add):
    reference = sp.capture(Chain(), (torch.from_numpy(X),))
    comparison = sp.compare(quantized(X, factor, step), reference)
    found = {
        r.reference.key.op.op: r.introduced_verdict
        for r in comparison.rows
        if r.target.key.role is Role.OUTPUT and r.introduced is not None
    }
    assert (found["mul"], found["add"]) == (mul, add)


class Centred(nn.Module):
    """A small difference of large numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        y = self.layer(x)
        return y - y.mean(0, keepdim=True)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_recordings_alone_tell_an_op_that_only_shows_an_earlier_error(tmp_path, dtype):
    generator = torch.Generator().manual_seed(1)
    near, far = (torch.randn(rows, 16, generator=generator) for rows in (32, 1))
    net, x = Centred().eval(), 0.03 * near + 3 * far
    target = sp.capture(net, (x,), dtype=dtype, out=tmp_path / "target.run")
    reference = sp.capture(net, (x,), out=tmp_path / "reference.run")
    comparison = sp.compare(sp.open_run(target.path), sp.open_run(reference.path))
    assert [r.target.label for r in comparison.first_divergence] == ["sub"]
    assert not [f for f in comparison.findings if "sub" in f.ops and f.level == "cause"]
