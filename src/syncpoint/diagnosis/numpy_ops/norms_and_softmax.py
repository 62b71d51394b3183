"""NumPy functions of recorded norms (layer, RMS, group, instance, batch; epsilon and variance
forms), softmax and log-softmax in float64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.recorded_op import (
    Array,
    Bound,
    Reader,
    RecordedOp,
    UnknownForm,
    named,
)


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
    """Normalize to mean 0 and variance 1 over some axes; `centred=False` is RMS norm."""
    axes = tuple(over)
    centred_values = x - x.mean(axes, keepdims=True) if centred else x
    variance = np.square(centred_values).mean(axes, keepdims=True)
    if unbiased:
        n = np.prod([x.shape[a] for a in axes])
        variance = variance * n / max(n - 1, 1)
    output = centred_values / (np.sqrt(variance) + eps if outside else np.sqrt(variance + eps))
    return _scaled(output, weight, bias)


def grouped(x: Array, weight: Any = None, bias: Any = None, *, groups: int, eps: float) -> Array:
    """Compute group norm; with as many groups as channels it is instance norm."""
    apart = x.reshape(x.shape[0], groups, -1)
    output = normalized(apart, over=[2], eps=eps).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return _scaled(
        output,
        None if weight is None else weight.reshape(shape),
        None if bias is None else bias.reshape(shape),
    )


def batch_norm(
    x: Array, weight: Any, bias: Any, mean: Array, variance: Array, *, eps: float,
    outside: bool = False,
) -> Array:  # fmt: skip
    """Compute batch norm with the trained statistics."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, variance = mean.reshape(shape), variance.reshape(shape)
    root = np.sqrt(variance) + eps if outside else np.sqrt(variance + eps)
    return _scaled(
        (x - mean) / root,
        None if weight is None else weight.reshape(shape),
        None if bias is None else bias.reshape(shape),
    )


def softmax(x: Array, *, axis: int, log: bool = False) -> Array:
    """Compute softmax or log-softmax along an axis."""
    greatest = x.max(axis, keepdims=True)
    centred_values = x - np.where(np.isfinite(greatest), greatest, 0)
    total = np.exp(centred_values).sum(axis, keepdims=True)
    output: Array = centred_values - np.log(total) if log else np.exp(centred_values) / total
    return output


def _scaled(x: Array, weight: Any, bias: Any) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer(recorded: RecordedOp) -> Iterable[Bound]:
    x, *rest = recorded.all()
    shape = recorded.get("normalized_shape")
    if shape is not None:
        rank = len(shape)
    else:
        axis = int(recorded.get("axis", default=-1))
        rank = x.ndim - axis if axis >= 0 else -axis
    over = list(range(x.ndim - rank, x.ndim))
    centred = "rms" not in recorded.name.lower() and "simplified" not in recorded.name.lower()
    # The default of torch is that of the element type, which is not recorded.
    default_eps = [2.0**-23, 2.0**-52] if not centred and recorded.torch else [1e-5]
    declared_eps = recorded.get("eps", "epsilon")
    weight, bias = (*rest, None, None)[:2]
    for eps in default_eps if declared_eps is None else [declared_eps]:
        settings = {"over": over, "eps": eps, "centred": centred}
        yield Bound(normalized, (x, weight, bias), settings)
        if weight is not None and bias is None:
            yield Bound(normalized, (x, None, weight), settings)


def _group(recorded: RecordedOp) -> Iterable[Bound]:
    x, *rest = recorded.all()
    weight, bias = (*rest, None, None)[:2]
    if "instance" in recorded.name.lower():
        if len(rest) > 2:
            raise UnknownForm("an instance norm with statistics")
        count = x.shape[1]
    else:
        count = int(recorded.get("num_groups", "groups", "group", default=1))
    eps = recorded.get("eps", "epsilon", default=1e-5)
    yield Bound(grouped, (x, weight, bias), {"groups": count, "eps": eps})


def _batch(recorded: RecordedOp) -> Iterable[Bound]:
    x, *rest = recorded.all()
    if recorded.get("training") or recorded.get("training_mode"):
        raise UnknownForm("a batch norm in training mode")
    eps = {"eps": recorded.get("eps", "epsilon", default=1e-5)}
    if len(rest) == 4:
        yield Bound(batch_norm, (x, *rest), eps)
    elif len(rest) == 2:
        yield Bound(batch_norm, (x, None, None, *rest), eps)


def _softmax(recorded: RecordedOp) -> Iterable[Bound]:
    axis = int(recorded.get("dim", "axis", default=-1))
    yield Bound(softmax, (recorded.need(0),), {"axis": axis, "log": "log" in recorded.name.lower()})


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
