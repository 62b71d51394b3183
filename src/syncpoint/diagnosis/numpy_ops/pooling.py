"""Pools: the greatest or the mean of each window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.op_arguments import (
    Array,
    Bound,
    Reader,
    Said,
    Unread,
    named,
    pairs,
)
from syncpoint.diagnosis.numpy_ops.products import conv_pads, padded


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
    """Of each window the greatest element (`max`) or the mean (`avg`).

    `border` stands in the borders of a `max` in place of -inf.
    """
    rank = len(kernel)
    spatial = x.shape[-rank:]
    sizes, more = [], []
    for n, k, s, d, (a, b) in zip(spatial, kernel, stride, dilation, pads, strict=True):
        room = n + a + b - d * (k - 1) - 1
        size = (-(-room // s) if ceil else room // s) + 1
        # A window must begin inside the input or its left border.
        if ceil and (size - 1) * s >= n + a:
            size -= 1
        sizes.append(size)
        more.append(max((size - 1) * s + d * (k - 1) + 1 - (n + a + b), 0))
    if min(sizes, default=1) <= 0:
        raise ValueError("a window that does not fit")
    fill = (-np.inf if border is None else border) if kind == "max" else 0.0
    inside = padded(np.ones(spatial), pads, value=float(include_pad))
    inside = padded(inside, [(0, m) for m in more])
    # What a window reaches beyond the borders is never counted.
    wide = padded(padded(x, pads, value=fill), [(0, m) for m in more], value=fill)
    made: Array | None = None
    count = np.zeros(sizes)
    places: Iterable[Any] = product(*(range(k) for k in kernel))
    for place in places:
        cut: Any = tuple(
            slice(p * d, p * d + s * (n - 1) + 1, s)
            for p, d, s, n in zip(place, dilation, stride, sizes, strict=True)
        )
        seen = wide[..., *cut]
        count += inside[cut]
        if made is None:
            made = np.array(seen)
        elif kind == "max":
            np.maximum(made, seen, out=made)
        else:
            made += seen
    assert made is not None
    return made if kind == "max" else made / (count if divisor is None else divisor)


def adapted(x: Array, *, sizes: Sequence[int | None], kind: str = "avg") -> Array:
    """Windows that cover the input evenly."""
    rank = len(sizes)
    wanted = [n if s is None else s for s, n in zip(sizes, x.shape[-rank:], strict=True)]
    for axis, size in zip(range(x.ndim - rank, x.ndim), wanted, strict=True):
        n = x.shape[axis]
        pieces = [x.take(range(i * n // size, -(-(i + 1) * n // size)), axis) for i in range(size)]
        x = np.stack([p.mean(axis) if kind == "avg" else p.max(axis) for p in pieces], axis)
    return x


def _pool(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    kernel_said = said.get("kernel_size", "kernel_shape")
    name = said.name.lower()
    digits = [c for c in name if c.isdigit()]
    rank = int(digits[0]) if said.torch and digits else len(kernel_said)
    kernel = pairs(kernel_said, rank, 1)
    own = kernel if said.torch else [1] * rank
    stride = said.get("stride", "strides") or own
    dilation = pairs(said.get("dilation", "dilations"), rank, 1)
    steps = pairs(stride, rank, 1)
    kind = "max" if "max" in name else "avg"
    if said.torch and kind == "avg":
        include = bool(said.get("count_include_pad", default=True))
    else:
        include = bool(said.get("count_include_pad", default=False))
    yield Bound(
        pooled,
        (x,),
        {
            "kind": kind,
            "kernel": kernel,
            "stride": steps,
            "pads": conv_pads(said, x.shape[-rank:], kernel, steps, dilation),
            "dilation": dilation,
            "ceil": bool(said.get("ceil_mode", default=False)),
            "include_pad": include,
            "divisor": said.get("divisor_override"),
        },
    )


def _adaptive(said: Said) -> Iterable[Bound]:
    x = said.need(0)
    name = said.name.lower()
    if name.startswith("global"):
        sizes: Sequence[int | None] = [1] * (x.ndim - 2)
    else:
        rank = next((int(c) for c in name if c.isdigit()), 2)
        given = said.get("output_size")
        if given is None:
            raise Unread("a pool without its size")
        sizes = [given] * rank if isinstance(given, int) else list(given)
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
