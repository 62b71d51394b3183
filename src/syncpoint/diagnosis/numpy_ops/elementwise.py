"""Ops that work on each element alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from math import erf as exact_erf
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.op_arguments import Array, Bound, Reader, Said, Unread

_STEPS = 512


def erf(x: Any) -> Array:
    """The error function to 1e-15: a table, and Taylor's series from its nearest entry."""
    at, known = _table()
    x = np.asarray(x, np.float64)
    size = np.minimum(np.abs(x), 6.0)
    near = np.rint(np.nan_to_num(size) * _STEPS).astype(np.int64)
    a = at[near]
    h = size - a
    series = h * (1 - h * (a - h * ((2 * a * a - 1) / 3 - h * (a * (2 * a * a - 3) / 6))))
    found: Array = np.copysign(known[near] + 2 / np.sqrt(np.pi) * np.exp(-a * a) * series, x)
    return found


@cache
def _table() -> tuple[Array, Array]:
    at = np.arange(6 * _STEPS + 2) / _STEPS
    return at, np.array([exact_erf(v) for v in at])


def sigmoid(x: Any) -> Array:
    """Without overflow on either side."""
    found: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def gelu(x: Array, approximate: str = "none") -> Array:
    """GELU as it is defined, or by tanh."""
    if approximate == "tanh":
        inner = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x))
    else:
        inner = erf(x / np.sqrt(2))
    found: Array = 0.5 * x * (1 + inner)
    return found


def clamp(x: Array, least: Any = None, most: Any = None) -> Array:
    """Between two bounds; the upper wins where they cross."""
    found = x if least is None else np.maximum(x, least)
    return found if most is None else np.minimum(found, most)


def leaky(x: Array, slope: Any = 0.01) -> Array:
    """ReLU with a slope below 0."""
    return np.where(x > 0, x, slope * x)


def added(a: Any, b: Any, alpha: float = 1.0, sign: float = 1.0) -> Array:
    """Sum or difference."""
    return np.asarray(a + sign * (alpha * b if alpha != 1 else b))


def divided(a: Any, b: Any, mode: str = "") -> Array:
    """Quotient, rounded to an integer by a mode."""
    if mode == "floor":
        return np.asarray(np.floor_divide(a, b))
    if mode == "trunc":
        found = np.trunc(np.true_divide(a, b))
        whole = all(np.asarray(v).dtype.kind in "iu" for v in (a, b))
        return np.asarray(found.astype(np.int64) if whole else found)
    return np.asarray(np.true_divide(a, b))


def rounded(x: Array, mode: str = "even") -> Array:
    """To an integer by a mode."""
    if mode == "away":
        return np.copysign(np.floor(np.abs(x) + 0.5), x)
    return {"even": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}[mode](x)


def selu(x: Array) -> Array:
    """SELU with its usual constants."""
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "silu": lambda x: x * sigmoid(x),
    "erf": erf,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "neg": np.negative,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
    "sign": np.sign,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "tan": np.tan,
    "atan": np.arctan,
    "not": np.logical_not,
    "logical_not": np.logical_not,
    "bitwise_not": np.invert,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "selu": selu,
}
_SAME = (
    "identity clone contiguous alias detach dropout to _to_copy cast type_as float half double"
    " lift_fresh_copy alias_copy"
)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "gt": np.greater,
    "greater": np.greater,
    "lt": np.less,
    "less": np.less,
    "ge": np.greater_equal,
    "greaterorequal": np.greater_equal,
    "le": np.less_equal,
    "lessorequal": np.less_equal,
    "eq": np.equal,
    "equal": np.equal,
    "ne": np.not_equal,
    "logical_and": np.logical_and,
    "and": np.logical_and,
    "logical_or": np.logical_or,
    "or": np.logical_or,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "__and__": np.bitwise_and,
    "__or__": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "remainder": np.mod,
    "fmod": np.fmod,
    "atan2": np.arctan2,
}


def _unary(function: Callable[[Any], Any]) -> Reader:
    return lambda said: [Bound(function, (said.need(0),), {})]


def _same(said: Said) -> Iterable[Bound]:
    """Types count for nothing in float64; a cast of real numbers to integers does round."""
    wanted = str(said.get("dtype", "to", default=""))
    x = said.need(0)
    whole = {"i64", "i32", "i16", "i8", "u8", "7", "6", "5", "3", "2"}
    if x.dtype.kind == "f" and wanted in whole:
        yield Bound(lambda v, mode="trunc": rounded(v, mode).astype(np.int64), (x,), {})
        return
    if wanted in ("bool", "9"):
        yield Bound(lambda v: v != 0, (x,), {})
        return
    real = wanted in ("f64", "f32", "f16", "bf16", "1", "10", "11", "16")
    yield Bound(lambda v: v.astype(np.float64) if real else v, (x,), {})


def _binary(function: Callable[[Any, Any], Any]) -> Reader:
    return lambda said: [Bound(function, _two(said), {})]


def _two(said: Said) -> tuple[Any, Any]:
    a, b = said.take("self", "other") if said.torch else (said.need(0), said.need(1))
    if a is None or b is None:
        raise Unread(f"{said.op.key} lacks an operand")
    return a, b


def _add(said: Said) -> Iterable[Bound]:
    sign = -1.0 if "sub" in said.name.lower() else 1.0
    a, b = _two(said)
    if said.name == "rsub":
        a, b = b, a
        if said.get("alpha", default=1) != 1:
            raise Unread("rsub with a factor")
    yield Bound(added, (a, b), {"alpha": said.get("alpha", default=1), "sign": sign})


def _div(said: Said) -> Iterable[Bound]:
    a, b = _two(said)
    whole = all(np.asarray(v).dtype.kind in "iu" for v in (a, b)) and not said.torch
    mode = said.get("rounding_mode", default="trunc" if whole else "")
    yield Bound(divided, (a, b), {"mode": "floor" if said.name == "floor_divide" else mode})


def _pow(said: Said) -> Iterable[Bound]:
    a, b = said.take("self", "exponent") if said.torch else (said.need(0), said.need(1))
    yield Bound(np.power, (a, b), {})


def _clamp(said: Said) -> Iterable[Bound]:
    if said.name in ("clamp_min", "clamp_max"):
        x, bound = said.take("self", "min" if said.name == "clamp_min" else "max")
        bounds = (bound, None) if said.name == "clamp_min" else (None, bound)
        yield _clamped(x, *bounds)
        return
    x = said.need(0)
    if said.name == "hardtanh":
        yield _clamped(x, said.get("min_val", default=-1.0), said.get("max_val", default=1.0))
        return
    if len(said.arguments) == 1:
        yield _clamped(x, said.get("min"), said.get("max"))
    elif len(said.arguments) == 2:
        # Which of the two is left out was not recorded.
        yield _clamped(x, said.need(1), said.get("max"))
        yield _clamped(x, said.get("min"), said.need(1))
    else:
        yield _clamped(x, said.need(1), said.need(2))


def _clamped(x: Array, least: Any, most: Any) -> Bound:
    return Bound(clamp, (x,), {"least": least, "most": most})


def _gelu(said: Said) -> Iterable[Bound]:
    form = "tanh" if said.name == "FastGelu" else said.get("approximate", default="none")
    yield Bound(gelu, (said.need(0),), {"approximate": form})


def _leaky(said: Said) -> Iterable[Bound]:
    yield Bound(
        leaky, (said.need(0),), {"slope": said.get("negative_slope", "alpha", default=0.01)}
    )


def _prelu(said: Said) -> Iterable[Bound]:
    x, slope = said.need(0), said.need(1)
    if slope.ndim == 1 and slope.size > 1 and x.ndim > 2 and said.torch:
        slope = slope.reshape(1, -1, *[1] * (x.ndim - 2))
    yield Bound(leaky, (x,), {"slope": slope})


def _where(said: Said) -> Iterable[Bound]:
    if said.name == "masked_fill":
        x, mask, value = said.take("self", "mask", "value")
        yield Bound(np.where, (mask, value, x), {})
        return
    condition, a, b = said.take("condition", "self", "other") if said.torch else said.all()
    if a is None or b is None:
        raise Unread("where with one argument")
    yield Bound(np.where, (np.asarray(condition) != 0, a, b), {})


def _round(said: Said) -> Iterable[Bound]:
    if said.get("decimals"):
        raise Unread("rounding to decimals")
    mode = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc"}
    yield Bound(rounded, (said.need(0),), {"mode": mode.get(said.name.lower(), "even")})


def _elu(said: Said) -> Iterable[Bound]:
    def elu(x: Array, alpha: float) -> Array:
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))

    yield Bound(elu, (said.need(0),), {"alpha": said.get("alpha", default=1.0)})


def _softplus(said: Said) -> Iterable[Bound]:
    yield Bound(lambda x: np.logaddexp(0, x), (said.need(0),), {})


def _hard_sigmoid(said: Said) -> Iterable[Bound]:
    slope = 1 / 6 if said.torch else said.get("alpha", default=0.2)
    middle = 0.5 if said.torch else said.get("beta", default=0.5)
    yield Bound(
        lambda x, slope, middle: np.clip(slope * x + middle, 0, 1),
        (said.need(0),),
        {"slope": slope, "middle": middle},
    )


READERS: dict[str, Reader] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(("add", "sub", "rsub"), _add),
    **dict.fromkeys(("div", "floor_divide", "true_divide"), _div),
    "pow": _pow,
    **dict.fromkeys(("clamp", "clip", "hardtanh", "clamp_min", "clamp_max"), _clamp),
    **dict.fromkeys(("gelu", "fastgelu"), _gelu),
    **dict.fromkeys(("leaky_relu", "leakyrelu"), _leaky),
    "prelu": _prelu,
    **dict.fromkeys(("where", "masked_fill"), _where),
    **dict.fromkeys(("round", "floor", "ceil", "trunc"), _round),
    "elu": _elu,
    "softplus": _softplus,
    **dict.fromkeys(("hardsigmoid", "hard_sigmoid"), _hard_sigmoid),
}
