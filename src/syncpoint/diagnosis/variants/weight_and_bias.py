"""Variants of convolutions and matrix products: bias ignored, doubled or negated; weight
transposed, or its memory read in another axis order (HWIO, OHWI)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest

_KINDS = ("conv", "conv_transpose", "matmul")


def vary_weighted_product(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary convolutions and matrix products."""
    if tested_op.kind not in _KINDS:
        return
    yield from _vary_bias(tested_op)
    bound = tested_op.bound
    if bound is None or len(bound.arrays) < 2:
        return
    x, weight = bound.arrays[:2]
    for kind, text, other_weight, simplicity in _vary_weight(weight, tested_op.kind):
        value = (
            tested_op.run_bound(bound.on(x, other_weight)) if tested_op.is_requested(kind) else None
        )
        if value is not None:
            yield Hypothesis(kind, text, value, simplicity=simplicity)
    if (
        tested_op.kind == "matmul"
        and weight.ndim == x.ndim
        and weight.shape == x.shape
        and tested_op.is_requested("operands-swapped")
    ):
        value = tested_op.run_bound(bound.on(weight, x))
        if value is not None:
            yield Hypothesis("operands-swapped", "swaps its operands", value)


def _vary_bias(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    bound = tested_op.bound
    bias = bound.arrays[2] if bound is not None and len(bound.arrays) > 2 else None
    if bound is None or bias is None:
        return
    axis = -1 if tested_op.kind == "matmul" else 1
    shape = [1] * tested_op.output.ndim
    if np.ndim(bias) == 1 and bias.size == tested_op.output.shape[axis]:
        shape[axis] = bias.size
        term = float(bound.settings.get("beta", 1.0)) * bias.reshape(shape)
    elif tested_op.kind == "matmul":
        term = float(bound.settings.get("beta", 1.0)) * bias
    else:
        return
    yield Hypothesis("bias-missing", "ignores its bias", tested_op.output - term, simplicity=3)
    yield Hypothesis("bias-twice", "adds its bias twice", tested_op.output + term, simplicity=2)
    yield Hypothesis(
        "bias-negated", "subtracts its bias instead of adding it", tested_op.output - 2 * term
    )


def _vary_weight(weight: Array, kind: str) -> Iterator[tuple[str, str, Array, int]]:
    if kind == "matmul":
        if weight.shape[-1] == weight.shape[-2]:
            transposed = np.swapaxes(weight, -1, -2)
            yield "weight-transposed", "uses its weight transposed", transposed, 2
        else:
            misread = np.swapaxes(weight, -1, -2).reshape(weight.shape)
            text = "reads its weight in column order instead of row order"
            yield "weight-misread", text, misread, 1
        yield (
            "weight-rows-reversed",
            "uses the rows of its weight in reverse order",
            weight[..., ::-1, :],
            0,
        )
        columns = weight[..., ::-1]
        yield (
            "weight-columns-reversed",
            "uses the columns of its weight in reverse order",
            columns,
            0,
        )
        return
    spatial = tuple(range(2, weight.ndim))
    if any(weight.shape[a] > 1 for a in spatial):
        flipped = np.flip(weight, spatial)
        text = "flips its kernel (convolution instead of correlation, or the reverse)"
        yield "kernel-flipped", text, flipped, 2
        if weight.ndim == 4:
            for axis, name in ((2, "vertically"), (3, "horizontally")):
                text = f"flips its kernel {name}"
                yield "kernel-flipped-axis", text, np.flip(weight, axis), 1
            if weight.shape[2] == weight.shape[3]:
                text = "swaps height and width of its kernel"
                yield "kernel-transposed", text, np.swapaxes(weight, 2, 3), 2
    if weight.shape[0] == weight.shape[1]:
        text = "swaps the input and output channels of its weight"
        yield "weight-channels-exchanged", text, np.swapaxes(weight, 0, 1), 2
    if weight.shape[1] > 1:
        text = "uses the input channels of its weight in reverse order"
        yield "weight-inputs-reversed", text, weight[:, ::-1], 1
    if weight.shape[0] > 1:
        text = "uses the output channels of its weight in reverse order"
        yield "weight-outputs-reversed", text, weight[::-1], 0
    yield from _vary_weight_layout(weight)


def _vary_weight_layout(weight: Array) -> Iterator[tuple[str, str, Array, int]]:
    """Read the memory of the weight in another layout than it is stored in."""
    if weight.ndim != 4:
        return
    names = "OIHW"
    for order in permutations(range(4)):
        layout = "".join(names[a] for a in order)
        if layout in ("HWIO", "OHWI", "IOHW"):
            misread = weight.transpose(order).reshape(weight.shape)
            if not np.array_equal(misread, weight):
                text = f"reads its weight as OIHW; it is stored as {layout}"
                yield "weight-misread", text, misread, 1
