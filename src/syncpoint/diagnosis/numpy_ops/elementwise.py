"""NumPy functions of recorded elementwise ops in float64: arithmetic, rounding, clamp, where,
casts, erf, sigmoid, activations (GELU, ELU, ReLU forms)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from math import erf as exact_erf
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.recorded_op import Array, Bound, Reader, RecordedOp, UnknownForm

_STEPS_PER_UNIT = 512


def erf(x: Any) -> Array:
    """Compute the error function to 1e-15: a table, and a Taylor series from the nearest entry."""
    grid, erf_values = _table()
    x = np.asarray(x, np.float64)
    size = np.minimum(np.abs(x), 6.0)
    nearest = np.rint(np.nan_to_num(size) * _STEPS_PER_UNIT).astype(np.int64)
    a = grid[nearest]
    h = size - a
    series = h * (1 - h * (a - h * ((2 * a * a - 1) / 3 - h * (a * (2 * a * a - 3) / 6))))
    output: Array = np.copysign(
        erf_values[nearest] + 2 / np.sqrt(np.pi) * np.exp(-a * a) * series, x
    )
    return output


@cache
def _table() -> tuple[Array, Array]:
    grid = np.arange(6 * _STEPS_PER_UNIT + 2) / _STEPS_PER_UNIT
    return grid, np.array([exact_erf(v) for v in grid])


def sigmoid(x: Any) -> Array:
    """Compute the logistic function without overflow."""
    output: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return output


def gelu(x: Array, approximate: str = "none") -> Array:
    """Compute GELU exactly, or approximated by tanh."""
    if approximate == "tanh":
        inner = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x))
    else:
        inner = erf(x / np.sqrt(2))
    output: Array = 0.5 * x * (1 + inner)
    return output


def clamp(x: Array, lower: Any = None, upper: Any = None) -> Array:
    """Clamp between two bounds; the upper wins if they cross."""
    output = x if lower is None else np.maximum(x, lower)
    return output if upper is None else np.minimum(output, upper)


def leaky(x: Array, slope: Any = 0.01) -> Array:
    """Compute ReLU with a slope for negative values."""
    return np.where(x > 0, x, slope * x)


def added(a: Any, b: Any, alpha: float = 1.0, sign: float = 1.0) -> Array:
    """Add or subtract."""
    return np.asarray(a + sign * (alpha * b if alpha != 1 else b))


def divided(a: Any, b: Any, mode: str = "") -> Array:
    """Divide, and round to an integer if a mode says so."""
    if mode == "floor":
        return np.asarray(np.floor_divide(a, b))
    if mode == "trunc":
        output = np.trunc(np.true_divide(a, b))
        whole = all(np.asarray(v).dtype.kind in "iu" for v in (a, b))
        return np.asarray(output.astype(np.int64) if whole else output)
    return np.asarray(np.true_divide(a, b))


def rounded(x: Array, mode: str = "even") -> Array:
    """Round to an integer by a mode."""
    if mode == "away":
        return np.copysign(np.floor(np.abs(x) + 0.5), x)
    return {"even": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}[mode](x)


def selu(x: Array) -> Array:
    """Compute SELU with its standard constants."""
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
    return lambda recorded: [Bound(function, (recorded.need(0),), {})]


def _same(recorded: RecordedOp) -> Iterable[Bound]:
    """Read a copy or cast. In float64 only a cast of reals to integers or booleans matters."""
    dtype_name = str(recorded.get("dtype", "to", default=""))
    x = recorded.need(0)
    whole = {"i64", "i32", "i16", "i8", "u8", "7", "6", "5", "3", "2"}
    if x.dtype.kind == "f" and dtype_name in whole:
        yield Bound(lambda v, mode="trunc": rounded(v, mode).astype(np.int64), (x,), {})
        return
    if dtype_name in ("bool", "9"):
        yield Bound(lambda v: v != 0, (x,), {})
        return
    real = dtype_name in ("f64", "f32", "f16", "bf16", "1", "10", "11", "16")
    yield Bound(lambda v: v.astype(np.float64) if real else v, (x,), {})


def _binary(function: Callable[[Any, Any], Any]) -> Reader:
    return lambda recorded: [Bound(function, _two(recorded), {})]


def _two(recorded: RecordedOp) -> tuple[Any, Any]:
    a, b = (
        recorded.take("self", "other") if recorded.torch else (recorded.need(0), recorded.need(1))
    )
    if a is None or b is None:
        raise UnknownForm(f"{recorded.op.key} lacks an operand")
    return a, b


def _add(recorded: RecordedOp) -> Iterable[Bound]:
    sign = -1.0 if "sub" in recorded.name.lower() else 1.0
    a, b = _two(recorded)
    if recorded.name == "rsub":
        a, b = b, a
        if recorded.get("alpha", default=1) != 1:
            raise UnknownForm("rsub with a factor")
    yield Bound(added, (a, b), {"alpha": recorded.get("alpha", default=1), "sign": sign})


def _div(recorded: RecordedOp) -> Iterable[Bound]:
    a, b = _two(recorded)
    whole = all(np.asarray(v).dtype.kind in "iu" for v in (a, b)) and not recorded.torch
    mode = recorded.get("rounding_mode", default="trunc" if whole else "")
    yield Bound(divided, (a, b), {"mode": "floor" if recorded.name == "floor_divide" else mode})


def _pow(recorded: RecordedOp) -> Iterable[Bound]:
    a, b = (
        recorded.take("self", "exponent")
        if recorded.torch
        else (recorded.need(0), recorded.need(1))
    )
    yield Bound(np.power, (a, b), {})


def _clamp(recorded: RecordedOp) -> Iterable[Bound]:
    if recorded.name in ("clamp_min", "clamp_max"):
        x, bound = recorded.take("self", "min" if recorded.name == "clamp_min" else "max")
        bounds = (bound, None) if recorded.name == "clamp_min" else (None, bound)
        yield _clamped(x, *bounds)
        return
    x = recorded.need(0)
    if recorded.name == "hardtanh":
        yield _clamped(
            x, recorded.get("min_val", default=-1.0), recorded.get("max_val", default=1.0)
        )
        return
    if len(recorded.arguments) == 1:
        yield _clamped(x, recorded.get("min"), recorded.get("max"))
    elif len(recorded.arguments) == 2:
        # The recording does not say which of the two bounds is left out.
        yield _clamped(x, recorded.need(1), recorded.get("max"))
        yield _clamped(x, recorded.get("min"), recorded.need(1))
    else:
        yield _clamped(x, recorded.need(1), recorded.need(2))


def _clamped(x: Array, lower: Any, upper: Any) -> Bound:
    return Bound(clamp, (x,), {"lower": lower, "upper": upper})


def _gelu(recorded: RecordedOp) -> Iterable[Bound]:
    form = "tanh" if recorded.name == "FastGelu" else recorded.get("approximate", default="none")
    yield Bound(gelu, (recorded.need(0),), {"approximate": form})


def _leaky(recorded: RecordedOp) -> Iterable[Bound]:
    yield Bound(
        leaky, (recorded.need(0),), {"slope": recorded.get("negative_slope", "alpha", default=0.01)}
    )


def _prelu(recorded: RecordedOp) -> Iterable[Bound]:
    x, slope = recorded.need(0), recorded.need(1)
    if slope.ndim == 1 and slope.size > 1 and x.ndim > 2 and recorded.torch:
        slope = slope.reshape(1, -1, *[1] * (x.ndim - 2))
    yield Bound(leaky, (x,), {"slope": slope})


def _where(recorded: RecordedOp) -> Iterable[Bound]:
    if recorded.name == "masked_fill":
        x, mask, value = recorded.take("self", "mask", "value")
        yield Bound(np.where, (mask, value, x), {})
        return
    condition, a, b = (
        recorded.take("condition", "self", "other") if recorded.torch else recorded.all()
    )
    if a is None or b is None:
        raise UnknownForm("where with one argument")
    yield Bound(np.where, (np.asarray(condition) != 0, a, b), {})


def _round(recorded: RecordedOp) -> Iterable[Bound]:
    if recorded.get("decimals"):
        raise UnknownForm("rounding to decimals")
    mode = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc"}
    yield Bound(rounded, (recorded.need(0),), {"mode": mode.get(recorded.name.lower(), "even")})


def _elu(recorded: RecordedOp) -> Iterable[Bound]:
    def elu(x: Array, alpha: float) -> Array:
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))

    yield Bound(elu, (recorded.need(0),), {"alpha": recorded.get("alpha", default=1.0)})


def _softplus(recorded: RecordedOp) -> Iterable[Bound]:
    yield Bound(lambda x: np.logaddexp(0, x), (recorded.need(0),), {})


def _hard_sigmoid(recorded: RecordedOp) -> Iterable[Bound]:
    slope = 1 / 6 if recorded.torch else recorded.get("alpha", default=0.2)
    middle = 0.5 if recorded.torch else recorded.get("beta", default=0.5)
    yield Bound(
        lambda x, slope, middle: np.clip(slope * x + middle, 0, 1),
        (recorded.need(0),),
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
