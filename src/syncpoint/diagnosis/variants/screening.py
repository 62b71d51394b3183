"""A few elements of a large op that stand for all: what they rule out need not be computed.

Of a convolution some output channels, of a row-wise op some rows, of an elementwise op some
elements; always those that are worst off among them, since an error may sit in few places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.numpy_ops.registry import readings, results
from syncpoint.diagnosis.variants.protocol import Array, Seen
from syncpoint.run.model import Edge

_SAMPLE = 1 << 15
_WORST = 1 << 10
"""Elements that a variant must promise to explain before all are looked at."""


LARGE = 1 << 17
"""Elements from which it pays."""
_CHANNELS = 4
_ELEMENTS = 1 << 15


def thinned(seen: Seen) -> Seen | None:
    """The op on fewer elements; None where it is small or has no such form."""
    if (
        seen.target is None
        or seen.output.size < LARGE
        or None in [None if a is None else 1 for a in seen.arguments]
    ):
        return None
    arguments = [a for a in seen.arguments if a is not None]
    error = np.abs(np.nan_to_num(seen.target - seen.output))
    for way in (_elements, _channels, _rows):
        found = way(seen, arguments, error)
        if found is None:
            continue
        few, cut = found
        thin = replace(
            seen,
            arguments=few,
            output=cut(seen.output),
            target=cut(seen.target),
            again=_again(seen, few),
            end=cut(seen.target),
            reach=_itself,
            values={},
            siblings={},
            kept=None if seen.kept is None else cut(seen.kept),
        )
        if thin.bound is not None:
            return thin
    return None


def _itself(value: Array) -> Array:
    return value


def _again(seen: Seen, few: list[Array]) -> Any:
    def again(changed: Mapping[Edge, Array]) -> Array | None:
        given = [changed.get(e, a) for e, a in zip(seen.op.inputs, few, strict=True)]
        for bound in readings(seen.op, given):
            found = results(bound)
            if found:
                return found[0]
        return None

    return again


def _elements(seen: Seen, arguments: list[Array], error: Array) -> Any:
    shape = seen.output.shape
    if not all(a.shape == shape or a.size == 1 for a in arguments):
        return None
    if seen.kind in ("softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum", "transpose"):
        return None
    at = _worst_and_even(error.reshape(-1), _ELEMENTS)

    def cut(value: Array) -> Array:
        return value.reshape(-1)[at] if value.shape == shape else value

    return [cut(a) for a in arguments], cut


def _channels(seen: Seen, arguments: list[Array], error: Array) -> Any:
    """Along the axis of channels: those that an output channel reads are kept whole."""
    output = seen.output
    if output.ndim < 3 or output.shape[1] <= _CHANNELS:
        return None
    others = tuple(a for a in range(output.ndim) if a != 1)
    at = _worst_and_even(error.sum(others), _CHANNELS)
    n = output.shape[1]
    if seen.kind == "conv":
        if int(seen.attribute("groups", "group", default=1)) != 1 or len(arguments) < 2:
            return None
        few = [arguments[0], arguments[1][at], *(a[at] for a in arguments[2:])]
        return few, lambda value: value[:, at]
    if seen.kind in ("max_pool", "avg_pool", "global_pool", "upsample", "batch_norm"):
        if arguments[0].ndim != output.ndim or arguments[0].shape[1] != n:
            return None
        few = [arguments[0][:, at], *(a[at] if a.shape == (n,) else a for a in arguments[1:])]
        return few, lambda value: value[:, at]
    return None


def _rows(seen: Seen, arguments: list[Array], error: Array) -> Any:
    """Rows along the last axis, each computed for itself."""
    output = seen.output
    if output.ndim < 2 or not arguments or arguments[0].ndim != output.ndim:
        return None
    x = arguments[0]
    width = output.shape[-1]
    if x.shape[:-1] != output.shape[:-1]:
        return None
    rest = arguments[1:]
    if seen.kind == "matmul":
        if len(rest) < 1 or rest[0].ndim != 2 or any(a.ndim > 1 for a in rest[1:]):
            return None
    elif seen.kind in ("layer_norm", "rms_norm", "softmax", "log_softmax"):
        if x.shape != output.shape or any(a.shape != (width,) for a in rest):
            return None
        if seen.attribute("dim", "axis", default=-1) != -1:
            return None
    else:
        return None
    rows = error.reshape(-1, width).sum(1)
    at = _worst_and_even(rows, max(_ELEMENTS // max(width, x.shape[-1]), 8))

    def cut(value: Array) -> Array:
        return value.reshape(-1, value.shape[-1])[at]

    return [cut(x), *rest], cut


def _worst_and_even(error: Array, count: int) -> NDArray[np.int64]:
    if error.size <= count:
        return np.arange(error.size)
    half = max(count // 2, 1)
    worst = np.argpartition(error, -half)[-half:]
    even = np.arange(0, error.size, -(-error.size // half))
    return np.unique(np.concatenate([worst, even]))


def places_to_try(error: Array) -> NDArray[np.int64]:
    """Places spread evenly, and those of the greatest errors, which may be few."""
    if error.size <= _SAMPLE:
        return np.arange(error.size)
    even = np.arange(0, error.size, -(-error.size // _SAMPLE))
    worst = np.argpartition(np.abs(error), -_WORST)[-_WORST:]
    return np.unique(np.concatenate([even, worst]))
