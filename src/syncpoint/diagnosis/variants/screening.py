"""Try variants of a large op on a sample of its channels, rows or elements first.

The sample has some output channels of a convolution, some rows of a row-wise op, or some elements
of an elementwise op. It always includes the worst ones, because an error may affect few elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.numpy_ops.registry import readings, results
from syncpoint.diagnosis.variants.protocol import Array, OpUnderTest
from syncpoint.run.model import Edge

_MAX_SAMPLED_ELEMENTS = 1 << 15
"""Number of evenly spaced elements that a variant is tested on before all elements are."""
_WORST_ELEMENTS = 1 << 10
"""Number of elements with the greatest errors in the same sample."""
MIN_SCREENED_ELEMENTS = 1 << 17
"""Minimum output size for screening; below it a full computation is as fast."""
_MAX_CHANNELS = 4
_MAX_REDUCED_ELEMENTS = 1 << 15


def reduce_op(tested_op: OpUnderTest) -> OpUnderTest | None:
    """Reduce an op to fewer elements; None if it is small or cannot be reduced."""
    if (
        tested_op.target is None
        or tested_op.output.size < MIN_SCREENED_ELEMENTS
        or None in [None if a is None else 1 for a in tested_op.arguments]
    ):
        return None
    arguments = [a for a in tested_op.arguments if a is not None]
    error = np.abs(np.nan_to_num(tested_op.target - tested_op.output))
    for select in (_select_elements, _select_channels, _select_rows):
        selection = select(tested_op, arguments, error)
        if selection is None:
            continue
        selected_arguments, cut = selection
        reduced = replace(
            tested_op,
            arguments=selected_arguments,
            output=cut(tested_op.output),
            target=cut(tested_op.target),
            rerun=_rerun_reduced(tested_op, selected_arguments),
            region_target=cut(tested_op.target),
            run_to_region_end=_return_value,
            values={},
            siblings={},
            kept=None if tested_op.kept is None else cut(tested_op.kept),
        )
        if reduced.bound is not None:
            return reduced
    return None


def _return_value(value: Array) -> Array:
    return value


def _rerun_reduced(tested_op: OpUnderTest, selected_arguments: list[Array]) -> Any:
    def rerun(changed: Mapping[Edge, Array]) -> Array | None:
        arguments = [
            changed.get(e, a) for e, a in zip(tested_op.op.inputs, selected_arguments, strict=True)
        ]
        for bound in readings(tested_op.op, arguments):
            outputs = results(bound)
            if outputs:
                return outputs[0]
        return None

    return rerun


def _select_elements(tested_op: OpUnderTest, arguments: list[Array], error: Array) -> Any:
    shape = tested_op.output.shape
    if not all(a.shape == shape or a.size == 1 for a in arguments):
        return None
    if tested_op.kind in (
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "cumsum",
        "transpose",
    ):
        return None
    indices = _choose_indices(error.reshape(-1), _MAX_REDUCED_ELEMENTS)

    def cut(value: Array) -> Array:
        return value.reshape(-1)[indices] if value.shape == shape else value

    return [cut(a) for a in arguments], cut


def _select_channels(tested_op: OpUnderTest, arguments: list[Array], error: Array) -> Any:
    """Select output channels; the input of a convolution keeps all its channels."""
    output = tested_op.output
    if output.ndim < 3 or output.shape[1] <= _MAX_CHANNELS:
        return None
    other_axes = tuple(a for a in range(output.ndim) if a != 1)
    indices = _choose_indices(error.sum(other_axes), _MAX_CHANNELS)
    n = output.shape[1]
    if tested_op.kind == "conv":
        if int(tested_op.attribute("groups", "group", default=1)) != 1 or len(arguments) < 2:
            return None
        selected = [arguments[0], arguments[1][indices], *(a[indices] for a in arguments[2:])]
        return selected, lambda value: value[:, indices]
    if tested_op.kind in ("max_pool", "avg_pool", "global_pool", "upsample", "batch_norm"):
        if arguments[0].ndim != output.ndim or arguments[0].shape[1] != n:
            return None
        selected = [
            arguments[0][:, indices],
            *(a[indices] if a.shape == (n,) else a for a in arguments[1:]),
        ]
        return selected, lambda value: value[:, indices]
    return None


def _select_rows(tested_op: OpUnderTest, arguments: list[Array], error: Array) -> Any:
    """Select rows along the last axis, if each row is computed independently."""
    output = tested_op.output
    if output.ndim < 2 or not arguments or arguments[0].ndim != output.ndim:
        return None
    x = arguments[0]
    width = output.shape[-1]
    if x.shape[:-1] != output.shape[:-1]:
        return None
    other_arguments = arguments[1:]
    if tested_op.kind == "matmul":
        if (
            len(other_arguments) < 1
            or other_arguments[0].ndim != 2
            or any(a.ndim > 1 for a in other_arguments[1:])
        ):
            return None
    elif tested_op.kind in ("layer_norm", "rms_norm", "softmax", "log_softmax"):
        if x.shape != output.shape or any(a.shape != (width,) for a in other_arguments):
            return None
        if tested_op.attribute("dim", "axis", default=-1) != -1:
            return None
    else:
        return None
    row_errors = error.reshape(-1, width).sum(1)
    indices = _choose_indices(row_errors, max(_MAX_REDUCED_ELEMENTS // max(width, x.shape[-1]), 8))

    def cut(value: Array) -> Array:
        return value.reshape(-1, value.shape[-1])[indices]

    return [cut(x), *other_arguments], cut


def _choose_indices(error: Array, count: int) -> NDArray[np.int64]:
    if error.size <= count:
        return np.arange(error.size)
    half = max(count // 2, 1)
    worst = np.argpartition(error, -half)[-half:]
    even = np.arange(0, error.size, -(-error.size // half))
    return np.unique(np.concatenate([worst, even]))


def choose_sample_indices(error: Array) -> NDArray[np.int64]:
    """Choose evenly spaced indices and those of the greatest errors."""
    if error.size <= _MAX_SAMPLED_ELEMENTS:
        return np.arange(error.size)
    even = np.arange(0, error.size, -(-error.size // _MAX_SAMPLED_ELEMENTS))
    worst = np.argpartition(np.abs(error), -_WORST_ELEMENTS)[-_WORST_ELEMENTS:]
    return np.unique(np.concatenate([even, worst]))
