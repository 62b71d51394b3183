"""Numbers as the sentences of a finding have them."""

from __future__ import annotations

from math import inf

_LONG = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def number(value: float) -> str:
    """Three digits, and separators where it is long."""
    size = abs(value)
    if size == inf or value != value:
        return str(value)
    if size and (size >= 1e7 or size < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def share(count: float, total: float) -> str:
    """A part of a whole in percent; a small one is never 0."""
    percent = 100 * count / total if total else 0.0
    if count and percent < 0.1:
        return f"{percent:.1g} %"
    return f"{percent:.1f} %" if percent < 99.95 or count == total else "99.9 %"


def of_norm(ratio: float, whose: str = "its") -> str:
    """How large something is beside a norm."""
    return f"{ratio:.2%} of {whose} norm" if ratio < 2 else f"{number(ratio)} times {whose} norm"


def type_name(dtype: str) -> str:
    """An element type as people say it."""
    return _LONG.get(dtype, dtype)
