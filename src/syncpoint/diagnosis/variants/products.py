"""Products with weights: the bias, and how the weight is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen

_KINDS = ("conv", "conv_transpose", "matmul")


def weighted(seen: Seen) -> Iterable[Hypothesis]:
    """For convolutions and matrix products with weights."""
    if seen.kind not in _KINDS:
        return
    yield from _biases(seen)
    bound = seen.bound
    if bound is None or len(bound.arrays) < 2:
        return
    x, weight = bound.arrays[:2]
    for kind, text, other, simplicity in _weights(weight, seen.kind):
        value = seen.ran(bound.on(x, other)) if seen.wants(kind) else None
        if value is not None:
            yield Hypothesis(kind, text, value, simplicity=simplicity)
    if (
        seen.kind == "matmul"
        and weight.ndim == x.ndim
        and weight.shape == x.shape
        and seen.wants("operands-swapped")
    ):
        value = seen.ran(bound.on(weight, x))
        if value is not None:
            yield Hypothesis("operands-swapped", "swaps its operands", value)


def _biases(seen: Seen) -> Iterator[Hypothesis]:
    bound = seen.bound
    bias = bound.arrays[2] if bound is not None and len(bound.arrays) > 2 else None
    if bound is None or bias is None:
        return
    axis = -1 if seen.kind == "matmul" else 1
    shape = [1] * seen.output.ndim
    if np.ndim(bias) == 1 and bias.size == seen.output.shape[axis]:
        shape[axis] = bias.size
        term = float(bound.settings.get("beta", 1.0)) * bias.reshape(shape)
    elif seen.kind == "matmul":
        term = float(bound.settings.get("beta", 1.0)) * bias
    else:
        return
    yield Hypothesis("bias-missing", "ignores its bias", seen.output - term, simplicity=3)
    yield Hypothesis("bias-twice", "adds its bias twice", seen.output + term, simplicity=2)
    yield Hypothesis(
        "bias-negated", "subtracts its bias instead of adding it", seen.output - 2 * term
    )


def _weights(weight: Array, kind: str) -> Iterator[tuple[str, str, Array, int]]:
    if kind == "matmul":
        if weight.shape[-1] == weight.shape[-2]:
            turned = np.swapaxes(weight, -1, -2)
            yield "weight-transposed", "uses its weight transposed", turned, 2
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
    yield from _misread(weight)


def _misread(weight: Array) -> Iterator[tuple[str, str, Array, int]]:
    """The memory of one layout of the weight read as if it were another."""
    if weight.ndim != 4:
        return
    names = "OIHW"
    for order in permutations(range(4)):
        said = "".join(names[a] for a in order)
        if said in ("HWIO", "OHWI", "IOHW"):
            misread = weight.transpose(order).reshape(weight.shape)
            if not np.array_equal(misread, weight):
                text = f"reads its weight as OIHW; it is stored as {said}"
                yield "weight-misread", text, misread, 1
