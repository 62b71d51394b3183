"""Norms and softmax."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.op_arguments import Array, Bound, Reader, Said, Unread, named


def normalized(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    *,
    over: Sequence[int],
    eps: float,
    centred: bool = True,
    unbiased: bool = False,
    outside: bool = False,
) -> Array:
    """To mean 0 and variance 1 over some axes; `centred` False is RMS norm."""
    axes = tuple(over)
    left = x - x.mean(axes, keepdims=True) if centred else x
    variance = np.square(left).mean(axes, keepdims=True)
    if unbiased:
        n = np.prod([x.shape[a] for a in axes])
        variance = variance * n / max(n - 1, 1)
    found = left / (np.sqrt(variance) + eps if outside else np.sqrt(variance + eps))
    return _scaled(found, weight, bias)


def grouped(x: Array, weight: Any = None, bias: Any = None, *, groups: int, eps: float) -> Array:
    """Group norm; as many groups as channels is instance norm."""
    apart = x.reshape(x.shape[0], groups, -1)
    found = normalized(apart, over=[2], eps=eps).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return _scaled(
        found,
        None if weight is None else weight.reshape(shape),
        None if bias is None else bias.reshape(shape),
    )


def batch_norm(
    x: Array, weight: Any, bias: Any, mean: Array, variance: Array, *, eps: float,
    outside: bool = False,
) -> Array:  # fmt: skip
    """With the statistics that were learnt."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, variance = mean.reshape(shape), variance.reshape(shape)
    root = np.sqrt(variance) + eps if outside else np.sqrt(variance + eps)
    return _scaled(
        (x - mean) / root,
        None if weight is None else weight.reshape(shape),
        None if bias is None else bias.reshape(shape),
    )


def softmax(x: Array, *, axis: int, log: bool = False) -> Array:
    """Along an axis."""
    most = x.max(axis, keepdims=True)
    left = x - np.where(np.isfinite(most), most, 0)
    total = np.exp(left).sum(axis, keepdims=True)
    found: Array = left - np.log(total) if log else np.exp(left) / total
    return found


def _scaled(x: Array, weight: Any, bias: Any) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer(said: Said) -> Iterable[Bound]:
    x, *rest = said.all()
    shape = said.get("normalized_shape")
    if shape is not None:
        rank = len(shape)
    else:
        axis = int(said.get("axis", default=-1))
        rank = x.ndim - axis if axis >= 0 else -axis
    over = list(range(x.ndim - rank, x.ndim))
    centred = "rms" not in said.name.lower() and "simplified" not in said.name.lower()
    # Without one, torch takes that of an element type, which is not recorded.
    usual = [2.0**-23, 2.0**-52] if not centred and said.torch else [1e-5]
    given = said.get("eps", "epsilon")
    weight, bias = (*rest, None, None)[:2]
    for eps in usual if given is None else [given]:
        settings = {"over": over, "eps": eps, "centred": centred}
        yield Bound(normalized, (x, weight, bias), settings)
        if weight is not None and bias is None:
            yield Bound(normalized, (x, None, weight), settings)


def _group(said: Said) -> Iterable[Bound]:
    x, *rest = said.all()
    weight, bias = (*rest, None, None)[:2]
    if "instance" in said.name.lower():
        if len(rest) > 2:
            raise Unread("an instance norm with statistics")
        count = x.shape[1]
    else:
        count = int(said.get("num_groups", "groups", "group", default=1))
    eps = said.get("eps", "epsilon", default=1e-5)
    yield Bound(grouped, (x, weight, bias), {"groups": count, "eps": eps})


def _batch(said: Said) -> Iterable[Bound]:
    x, *rest = said.all()
    if said.get("training") or said.get("training_mode"):
        raise Unread("a norm that learns")
    eps = {"eps": said.get("eps", "epsilon", default=1e-5)}
    if len(rest) == 4:
        yield Bound(batch_norm, (x, *rest), eps)
    elif len(rest) == 2:
        yield Bound(batch_norm, (x, None, None, *rest), eps)


def _softmax(said: Said) -> Iterable[Bound]:
    axis = int(said.get("dim", "axis", default=-1))
    yield Bound(softmax, (said.need(0),), {"axis": axis, "log": "log" in said.name.lower()})


READERS: dict[str, Reader] = {
    **named(
        "layer_norm native_layer_norm layernormalization rms_norm rmsnormalization"
        " simplifiedlayernormalization",
        _layer,
    ),
    **named("group_norm instance_norm groupnormalization instancenormalization", _group),
    **named("batch_norm batchnormalization _native_batch_norm_legit_no_training", _batch),
    **named("softmax _softmax log_softmax _log_softmax logsoftmax _safe_softmax", _softmax),
}
