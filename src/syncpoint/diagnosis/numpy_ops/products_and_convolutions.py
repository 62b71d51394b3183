"""NumPy functions of recorded matrix products, linear layers, convolutions (windows, pads,
transposed), padding and attention in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.recorded_op import (
    Array,
    Bound,
    Reader,
    RecordedOp,
    UnknownForm,
    pairs,
)

_MODES = {"zeros": "constant", "replicate": "edge", "reflect": "reflect", "circular": "wrap"}


def affine(
    x: Array,
    weight: Array,
    bias: Any = None,
    transposed: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Array:
    """Compute x @ weight + bias; `transposed` for a weight in the layout of torch."""
    output: Array = alpha * (x @ (np.swapaxes(weight, -1, -2) if transposed else weight))
    return output if bias is None else output + beta * bias


def padded(x: Array, pads: Sequence[Sequence[int]], mode: str = "zeros", value: float = 0) -> Array:
    """Pad the last axes; a negative number crops."""
    borders = [(0, 0)] * (x.ndim - len(pads)) + [(int(a), int(b)) for a, b in pads]
    if any(a < 0 or b < 0 for a, b in borders):
        cut = [
            slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(borders, x.shape, strict=True)
        ]
        x = x[tuple(cut)]
        borders = [(max(a, 0), max(b, 0)) for a, b in borders]
    if not any(a or b for a, b in borders):
        return x
    if mode == "zeros":
        return np.pad(x, borders, constant_values=value)
    return np.pad(x, borders, mode=_MODES[mode])  # type: ignore[call-overload, no-any-return]


def kernel_windows(
    kernel: Sequence[int], sizes: Sequence[int], *, stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield each position in a kernel, and the slices of the input that it meets over `sizes`
    positions of the kernel."""
    for place in product(*(range(k) for k in kernel)):
        cut = tuple(
            slice(p * d, p * d + s * (n - 1) + 1, s)
            for p, d, s, n in zip(place, dilation, stride, sizes, strict=True)
        )
        yield place, cut


def convolved(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Sequence[int],
    pads: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
    mode: str = "zeros",
) -> Array:
    """Convolve (cross-correlate) with a kernel: one matrix product for each kernel position."""
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        output: Array = convolved(
            x[None], weight, bias, stride=stride, pads=pads, dilation=dilation, groups=groups,
            mode=mode,
        )[0]  # fmt: skip
        return output
    x = padded(x, pads, mode)
    kernel, spatial = weight.shape[2:], x.shape[2:]
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(spatial, kernel, stride, dilation, strict=True)
    ]
    if any(n <= 0 for n in sizes) or x.shape[1] != weight.shape[1] * groups:
        raise ValueError("the kernel does not fit")
    batch, out = x.shape[0], weight.shape[0]
    grouped = x.reshape(batch, groups, -1, *spatial)
    taps = weight.reshape(groups, out // groups, -1, *kernel)
    total = np.zeros((batch, groups, out // groups, *sizes))
    # With few output channels, multiply before slicing: the input is not copied.
    early = 4 * prod(stride) * (out // groups) <= grouped.shape[2]
    whole = grouped.reshape(batch, groups, grouped.shape[2], -1)
    for place, cut in kernel_windows(kernel, sizes, stride=stride, dilation=dilation):
        tap = taps[..., *place]
        if early:
            total += (tap @ whole).reshape(batch, groups, -1, *spatial)[..., *cut]
        else:
            window_values = grouped[..., *cut].reshape(batch, groups, grouped.shape[2], -1)
            total += (tap @ window_values).reshape(total.shape)
    result = total.reshape(batch, out, *sizes)
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def spread(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Sequence[int],
    pads: Sequence[Sequence[int]],
    extra: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Compute a transposed convolution: each element adds a kernel to the output."""
    rank = weight.ndim - 2
    kernel, spatial = weight.shape[2:], x.shape[2:]
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, s, d, k, e in zip(spatial, stride, dilation, kernel, extra, strict=True)
    ]
    batch = x.shape[0]
    inputs = x.reshape(batch, groups, -1, prod(spatial))
    taps = weight.reshape(groups, weight.shape[0] // groups, -1, *kernel)
    output = np.zeros((batch, groups, taps.shape[2], *full))
    for place, cut in kernel_windows(kernel, spatial, stride=stride, dilation=dilation):
        contribution = np.swapaxes(taps[..., *place], -1, -2) @ inputs
        output[..., *cut] += contribution.reshape(batch, groups, -1, *spatial)
    result = output.reshape(batch, -1, *full)
    ends = [slice(a, n - b) for (a, b), n in zip(pads, full, strict=True)]
    result = result[(slice(None), slice(None), *ends)]
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def attended(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Array:
    """Scaled dot-product attention."""
    if key.shape[-3:-2] != query.shape[-3:-2] and key.ndim > 2:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    factor = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    scores = factor * (query @ np.swapaxes(key, -1, -2))
    if causal:
        window_values = np.tril(np.ones(scores.shape[-2:], bool))
        scores = np.where(window_values, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    greatest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(greatest), greatest, 0))
    total = weights.sum(-1, keepdims=True)
    output: Array = np.divide(weights, total, where=total != 0, out=np.zeros_like(weights)) @ value
    return output


def _linear(recorded: RecordedOp) -> Iterable[Bound]:
    x, weight, bias = recorded.take("input", "weight", "bias")
    if weight.ndim != 2:
        raise UnknownForm("a weight of one axis")
    yield Bound(affine, (x, weight, bias), {"transposed": True})


def _matmul(recorded: RecordedOp) -> Iterable[Bound]:
    x, weight = recorded.all()[:2]
    turned = {"transposed": bool(recorded.get("transB"))}
    if recorded.get("transA"):
        x = np.swapaxes(x, -1, -2)
    if min(x.ndim, weight.ndim) < 2:
        yield Bound(np.matmul, (x, weight), {})
        return
    yield Bound(affine, (x, weight, None), {**turned, "alpha": recorded.get("alpha", default=1.0)})


def _addmm(recorded: RecordedOp) -> Iterable[Bound]:
    bias, x, weight = recorded.all()
    factors = {name: recorded.get(name, default=1.0) for name in ("alpha", "beta")}
    yield Bound(affine, (x, weight, bias), factors)


def _gemm(recorded: RecordedOp) -> Iterable[Bound]:
    x, weight, *bias = recorded.all()
    if recorded.get("transA"):
        x = np.swapaxes(x, -1, -2)
    factors = {name: recorded.get(name, default=1.0) for name in ("alpha", "beta")}
    turned = {"transposed": bool(recorded.get("transB"))}
    yield Bound(affine, (x, weight, bias[0] if bias else None), {**factors, **turned})


def conv_pads(
    recorded: RecordedOp, spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Borders before and after each axis, as torch or ONNX says them."""
    rank = len(kernel)
    auto = str(recorded.get("auto_pad", default="NOTSET"))
    named = recorded.get("padding")
    if auto.startswith("SAME") or named == "same":
        output = []
        for n, k, s, d in zip(spatial, kernel, stride, dilation, strict=True):
            more = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            less = more // 2
            output.append((more - less, less) if auto == "SAME_LOWER" else (less, more - less))
        return output
    if recorded.torch:
        return [(p, p) for p in pairs(0 if named == "valid" else named, rank, 0)]
    pads = pairs(recorded.get("pads"), 2 * rank, 0) if auto != "VALID" else [0] * (2 * rank)
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _conv(recorded: RecordedOp) -> Iterable[Bound]:
    x, weight, *bias = recorded.all()
    rank = weight.ndim - 2
    if rank < 1 or recorded.get("transposed") or recorded.get("activation") or len(bias) > 1:
        raise UnknownForm("a convolution of another form")
    if str(recorded.op.type).startswith("com.microsoft.nchwc"):
        raise UnknownForm("weights in blocks")
    stride = pairs(recorded.get("stride", "strides"), rank, 1)
    dilation = pairs(recorded.get("dilation", "dilations"), rank, 1)
    pads = conv_pads(recorded, x.shape[-rank:], weight.shape[2:], stride, dilation)
    groups = int(recorded.get("groups", "group", default=1))
    yield Bound(
        convolved,
        (x, weight, bias[0] if bias else None),
        {"stride": stride, "pads": pads, "dilation": dilation, "groups": groups},
    )


def _conv_transpose(recorded: RecordedOp) -> Iterable[Bound]:
    x, weight, *bias = recorded.all()
    rank = weight.ndim - 2
    if x.ndim != rank + 2 or recorded.get("output_shape"):
        raise UnknownForm("a transposed convolution of another form")
    stride = pairs(recorded.get("stride", "strides"), rank, 1)
    dilation = pairs(recorded.get("dilation", "dilations"), rank, 1)
    yield Bound(
        spread,
        (x, weight, bias[0] if bias else None),
        {
            "stride": stride,
            "pads": conv_pads(recorded, x.shape[2:], weight.shape[2:], stride, dilation),
            "extra": pairs(recorded.get("output_padding"), rank, 0),
            "dilation": dilation,
            "groups": int(recorded.get("groups", "group", default=1)),
        },
    )


def _attention(recorded: RecordedOp) -> Iterable[Bound]:
    query, key, value, *mask = recorded.all()
    settings = {"causal": bool(recorded.get("is_causal")), "scale": recorded.get("scale")}
    yield Bound(attended, (query, key, value, mask[0] if mask else None), settings)


READERS: dict[str, Reader] = {
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm", "fusedmatmul"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    "gemm": _gemm,
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d", "convolution"), _conv),
    **dict.fromkeys(
        ("convtranspose", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        _conv_transpose,
    ),
    "scaled_dot_product_attention": _attention,
}
