"""Ops in NumPy against torch's own in float64, as they are recorded."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

import syncpoint as sp
from models.calls import Calls
from syncpoint.diagnosis.numpy_ops.registry import is_known, readings, results
from syncpoint.run.model import Role, TensorKey


def check(function, *args):
    """Every op of the function, from its recorded inputs to its recorded outputs."""
    run = sp.capture(Calls(function).eval(), tuple(args))
    assert list(run.ops)
    for op in run.ops:
        if not op.inputs:
            continue
        assert is_known(op), op.type
        arguments = [
            np.asarray(run.values(run.tensor(TensorKey(e.op, e.role, e.index)))) for e in op.inputs
        ]
        wanted = []
        while (t := run.tensor(TensorKey(op.key, Role.OUTPUT, len(wanted)))) is not None:
            wanted.append(np.asarray(run.values(t)))
        found = [results(bound) for bound in readings(op, arguments)]
        assert any(_fits(one, wanted) for one in found), (op.type, dict(op.attributes), found)


def _fits(found, wanted):
    return found is not None and all(
        f.shape == w.shape and np.allclose(f, w, rtol=1e-10, atol=1e-12, equal_nan=True)
        for f, w in zip(found, wanted, strict=False)
    )


def real(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


ELEMENTWISE = {
    "activations": lambda x: (
        F.relu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), x.sigmoid(), x.tanh(),
        F.leaky_relu(x, 0.2), F.elu(x), F.softplus(x), F.hardswish(x), F.hardsigmoid(x),
        F.relu6(x), F.hardtanh(x, -0.5, 0.7), F.mish(x), F.selu(x),
    ),
    "functions": lambda x: (
        x.exp(), x.abs().log(), x.abs().sqrt(), x.abs().rsqrt(), -x, x.sin(), x.cos(), x.erf(),
        x.reciprocal(), x.square(), x.pow(3), 2**x, x.sign(), x.abs().log1p(), x.expm1(),
    ),
    "arithmetic": lambda x: (
        x + 1, 1 - x, x - x * 2, torch.add(x, x, alpha=3), torch.sub(x, 2, alpha=2), x / 3, 2 / x,
        torch.div(x, 0.3, rounding_mode="floor"), torch.div(x, 0.3, rounding_mode="trunc"),
        torch.maximum(x, -x), torch.minimum(x, -x), x.remainder(0.7), torch.fmod(x, 0.7),
    ),
    "choices": lambda x: (
        torch.where(x > 0, x, -x), torch.where(x > 0, x, 0.0), x.masked_fill(x < 0, -1.0),
        x.clamp(-1, 1), x.clamp(min=0.1), x.clamp(max=0.1), x.clamp_min(0.2), (x >= 0) & (x <= 1),
        x.eq(0), x.ne(0), ~(x > 0),
    ),
    "rounding": lambda x: (
        (4 * x).round(), x.floor(), x.ceil(), x.trunc(), (9 * x).to(torch.int64), x.bool(),
        (9 * x).to(torch.int64) // 4,
    ),
}  # fmt: skip
OTHERS = {
    "reductions": lambda x: (
        x.sum(), x.sum(1), x.mean((0, 2), keepdim=True), x.amax(1), x.amin((0, 1)), x.max(1),
        x.min(2), x.var(1), x.std((0, 1)), x.var(1, unbiased=False), x.prod(1), x.argmax(1),
        x.argmin(2, keepdim=True), x.argmax(), x.cumsum(1), x.logsumexp(1),
    ),
    "shapes": lambda x: (
        x.reshape(2, -1), x.flatten(1), x.permute(2, 0, 1), x.transpose(0, 2), x[1:], x[:, ::2],
        x[:, :-1, 1:3], x[0], x.unsqueeze(1), x[:, :1].squeeze(1), torch.cat([x, x[:1]], 0),
        torch.stack([x, x], 1), *x.split(2, 1), *x.chunk(2, 2), *x.unbind(0),
        x[:, :1].expand(-1, 7, -1),
        x.repeat(2, 1, 1), F.pad(x, (1, 2)), F.pad(x, (1, 2, 0, 1), value=3.0),
        F.pad(x, (1, 2), mode="reflect"), F.pad(x, (1, 1), mode="replicate"),
        F.pad(x, (1, 1), mode="circular"), x.flip(1), x.roll(1, 2), x.triu(), x.tril(1),
        x.narrow(1, 1, 2), F.pad(x, (-1, 1)),
    ),
    "norms": lambda x: (
        F.layer_norm(x, (6,)), F.layer_norm(x, (5, 6), eps=1e-3), F.rms_norm(x, (6,)),
        x.softmax(1), x.log_softmax(-1), F.group_norm(x.reshape(4, 6, 5), 3),
        F.instance_norm(x),
    ),
    "products": lambda x: (
        x @ x.transpose(1, 2), x @ x[0].T, F.linear(x, x[0]), torch.bmm(x, x.transpose(1, 2)),
        torch.addmm(x[0, :, :5], x[0], x[1].T), torch.mm(x[0], x[1].T), x @ x[0, 0],
        F.scaled_dot_product_attention(x, x, x),
        F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.scaled_dot_product_attention(x, x, x, scale=0.3, attn_mask=x[0] @ x[1].T),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    check(ELEMENTWISE[name], real(5, 7) * 2)


@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    check(OTHERS[name], real(4, 5, 6))


def test_lookups():
    index = torch.tensor([[0, 2], [3, 1]])
    table = real(4, 5)
    check(
        lambda i, t: (
            F.embedding(i, t), t.index_select(0, i[0]), t[i], t[:, i[0]], t.gather(0, i % 4)
        ),
        index, table,
    )  # fmt: skip


def test_trained_norms():
    x, v = real(3, 6, 4, 4), real(6).abs()
    check(lambda x, v: F.batch_norm(x, v, v, 2 * v, 3 * v, eps=1e-3), x, v)
    check(lambda x, v: F.batch_norm(x, v, v), x, v)
    check(lambda x, v: (F.group_norm(x, 2, v, v), F.layer_norm(x.mT, (4, 4))), x, v)


@settings(max_examples=4, deadline=None)
@given(st.data())
def test_convolutions(data):
    n, groups = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 2]))
    rank = data.draw(st.integers(1, 2))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    stride, dilation = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    pad = data.draw(st.integers(0, 2))
    x, w, b = real(n, 4, *[9] * rank), real(6, 4 // groups, *kernel), real(6)
    conv = (F.conv1d, F.conv2d)[rank - 1]
    back = (F.conv_transpose1d, F.conv_transpose2d)[rank - 1]
    check(
        lambda x, w, b: (
            conv(x, w, b, stride, pad, dilation, groups), conv(x, w, padding="same")
            if groups == 1 else conv(x, w, groups=2),
        ),
        x, w, b,
    )  # fmt: skip
    extra = min(stride, dilation) - 1
    if all(k * dilation > pad * 2 for k in kernel):
        check(
            lambda x, w, b: back(x, w, b, stride, pad, extra, groups, dilation),
            x, real(4, 3 * groups, *kernel), real(3 * groups * groups),
        )  # fmt: skip


@settings(max_examples=4, deadline=None)
@given(st.integers(2, 3), st.integers(1, 3), st.integers(0, 1), st.booleans(), st.booleans())
def test_pools(kernel, stride, pad, ceil, include):
    check(
        lambda x: (
            F.max_pool2d(x, kernel, stride, pad, 1, ceil),
            F.max_pool2d(x, kernel, stride, pad, 2, ceil),
            F.avg_pool2d(x, kernel, stride, pad, ceil, include),
            F.avg_pool1d(x[0], kernel, stride, pad, ceil, include),
            F.adaptive_avg_pool2d(x, (kernel, 1)), F.adaptive_max_pool2d(x, 3),
        ),
        real(2, 3, 10, 7),
    )  # fmt: skip


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 13), st.integers(1, 13), st.sampled_from([0.5, 1.5, 2.0, 2.3]))
def test_resizing(height, width, scale):
    size = (height, width)
    check(
        lambda x: (
            F.interpolate(x, size, mode="nearest"), F.interpolate(x, scale_factor=scale),
            F.interpolate(x, size, mode="nearest-exact"),
            F.interpolate(x, size, mode="bilinear"), F.interpolate(x, size, mode="bicubic"),
            F.interpolate(x, size, mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=scale, mode="bilinear"),
            F.interpolate(x, size, mode="bicubic", align_corners=True),
            F.interpolate(x[0], width, mode="linear"),
        ),
        real(1, 2, 6, 7),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_with_antialias(mode):
    check(lambda x: F.interpolate(x, (4, 9), mode=mode, antialias=True), real(1, 2, 9, 7))
