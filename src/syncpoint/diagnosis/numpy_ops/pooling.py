"""NumPy functions of recorded max and average pooling in float64, also adaptive: windows, strides,
padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from syncpoint.diagnosis.numpy_ops.products_and_convolutions import (
    conv_pads,
    kernel_windows,
    padded,
)
from syncpoint.diagnosis.numpy_ops.recorded_op import (
    Array,
    Bound,
    Reader,
    RecordedOp,
    UnknownForm,
    named,
    pairs,
)


def pooled(
    x: Array,
    *,
    kind: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[Sequence[int]],
    dilation: Sequence[int],
    ceil: bool = False,
    include_pad: bool = False,
    divisor: float | None = None,
    border: float | None = None,
) -> Array:
    """Compute the maximum (`max`) or the mean (`avg`) of each window.

    `border` pads a `max` in place of -inf.
    """
    rank = len(kernel)
    spatial = x.shape[-rank:]
    sizes, extra_padding = [], []
    for n, k, s, d, (a, b) in zip(spatial, kernel, stride, dilation, pads, strict=True):
        room = n + a + b - d * (k - 1) - 1
        size = (-(-room // s) if ceil else room // s) + 1
        # A window must begin inside the input or its leading padding.
        if ceil and (size - 1) * s >= n + a:
            size -= 1
        sizes.append(size)
        extra_padding.append(max((size - 1) * s + d * (k - 1) + 1 - (n + a + b), 0))
    if min(sizes, default=1) <= 0:
        raise ValueError("the window does not fit")
    fill = (-np.inf if border is None else border) if kind == "max" else 0.0
    inside = padded(np.ones(spatial), pads, value=float(include_pad))
    inside = padded(inside, [(0, m) for m in extra_padding])
    # Positions beyond the padding never count.
    wide = padded(padded(x, pads, value=fill), [(0, m) for m in extra_padding], value=fill)
    pooled_values: Array | None = None
    count = np.zeros(sizes)
    for _, cut in kernel_windows(kernel, sizes, stride=stride, dilation=dilation):
        window_values = wide[..., *cut]
        count += inside[cut]
        if pooled_values is None:
            pooled_values = np.array(window_values)
        elif kind == "max":
            np.maximum(pooled_values, window_values, out=pooled_values)
        else:
            pooled_values += window_values
    assert pooled_values is not None
    return (
        pooled_values if kind == "max" else pooled_values / (count if divisor is None else divisor)
    )


def adapted(x: Array, *, sizes: Sequence[int | None], kind: str = "avg") -> Array:
    """Pool with windows that cover the input evenly."""
    rank = len(sizes)
    output_sizes = [n if s is None else s for s, n in zip(sizes, x.shape[-rank:], strict=True)]
    for axis, size in zip(range(x.ndim - rank, x.ndim), output_sizes, strict=True):
        n = x.shape[axis]
        pieces = [x.take(range(i * n // size, -(-(i + 1) * n // size)), axis) for i in range(size)]
        x = np.stack([p.mean(axis) if kind == "avg" else p.max(axis) for p in pieces], axis)
    return x


def _pool(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    kernel_said = recorded.get("kernel_size", "kernel_shape")
    name = recorded.name.lower()
    digits = [c for c in name if c.isdigit()]
    rank = int(digits[0]) if recorded.torch and digits else len(kernel_said)
    kernel = pairs(kernel_said, rank, 1)
    own = kernel if recorded.torch else [1] * rank
    stride = recorded.get("stride", "strides") or own
    dilation = pairs(recorded.get("dilation", "dilations"), rank, 1)
    steps = pairs(stride, rank, 1)
    kind = "max" if "max" in name else "avg"
    if recorded.torch and kind == "avg":
        include = bool(recorded.get("count_include_pad", default=True))
    else:
        include = bool(recorded.get("count_include_pad", default=False))
    yield Bound(
        pooled,
        (x,),
        {
            "kind": kind,
            "kernel": kernel,
            "stride": steps,
            "pads": conv_pads(recorded, x.shape[-rank:], kernel, steps, dilation),
            "dilation": dilation,
            "ceil": bool(recorded.get("ceil_mode", default=False)),
            "include_pad": include,
            "divisor": recorded.get("divisor_override"),
        },
    )


def _adaptive(recorded: RecordedOp) -> Iterable[Bound]:
    x = recorded.need(0)
    name = recorded.name.lower()
    if name.startswith("global"):
        sizes: Sequence[int | None] = [1] * (x.ndim - 2)
    else:
        rank = next((int(c) for c in name if c.isdigit()), 2)
        declared_size = recorded.get("output_size")
        if declared_size is None:
            raise UnknownForm("a pool without its size")
        sizes = [declared_size] * rank if isinstance(declared_size, int) else list(declared_size)
    yield Bound(adapted, (x,), {"sizes": sizes, "kind": "max" if "max" in name else "avg"})


READERS: dict[str, Reader] = {
    **named(
        "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices maxpool"
        " avg_pool1d avg_pool2d avg_pool3d averagepool",
        _pool,
    ),
    **named(
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d"
        " adaptive_max_pool2d globalaveragepool globalmaxpool",
        _adaptive,
    ),
}
