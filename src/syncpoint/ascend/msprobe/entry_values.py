"""List the tensors and other arguments of an entry of dump.json: types, statistics, numbers parsed
leniently from JSON values or texts.

Each has the name that msProbe gives it, such as `input.1.0` or `parameters.weight`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from syncpoint.ascend.msprobe.names import GRADIENTS, HookedName
from syncpoint.errors import FormatError, InputError
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DType
from syncpoint.run.model import Role, Statistics

FIGURES = ("Max", "Min", "Mean", "Norm")
_MAX_DEPTH = 32
_GROUPS = (
    ("input_args", "input", Role.INPUT),
    ("input_kwargs", "input", Role.INPUT),
    ("input", "input", Role.INPUT),
    ("parameters", "parameters", Role.PARAMETER),
    ("output", "output", Role.OUTPUT),
)
"""In the order in which msProbe lists them."""


@dataclass(frozen=True, kw_only=True)
class EntryValue:
    """One tensor or other value of an entry."""

    name: str
    """Name within its entry."""
    role: Role
    index: int
    """Position among the values of its role, including those that are not tensors."""
    body: Any
    """JSON value: an object, a plain value, or None."""
    dtype: DType | None = None
    """None if it is not a tensor, or of an unknown type."""
    shape: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor of a known type."""
        return self.dtype is not None


def list_values(entry: object, name: HookedName, where: str) -> Iterator[EntryValue]:
    """Yield all values of an entry, in order."""
    if not isinstance(entry, dict):
        raise FormatError(
            f"{where} must be a JSON object, not {type(entry).__name__}", cure="dump it again"
        )
    counts: dict[Role, int] = {}
    for role, path, body in _values_by_role(entry, name, where):
        index = counts.get(role, 0)
        counts[role] = index + 1
        dtype, shape = _parse_type(body, f"{path} of {where}")
        yield EntryValue(name=path, role=role, index=index, body=body, dtype=dtype, shape=shape)


def _values_by_role(
    entry: dict[str, Any], name: HookedName, where: str
) -> Iterator[tuple[Role, str, Any]]:
    if name.way == GRADIENTS:
        for parameter, body in entry.items():
            # The name of a value does not show that it is in a list of one.
            several = isinstance(body, list) and len(body) != 1
            inner = body if several or not isinstance(body, list) else body[0]
            for path, value in _walk(inner, parameter, where, 0):
                yield Role.OUTPUT, path, value
        return
    for key, prefix, role in _GROUPS:
        if entry.get(key) is not None:
            for path, value in _walk(entry[key], prefix, where, 0, top=True):
                yield role, path, value


def _walk(
    body: Any, path: str, where: str, depth: int, top: bool = False
) -> Iterator[tuple[str, Any]]:
    if depth > _MAX_DEPTH:
        raise FormatError(
            f"{where} is nested in more than {_MAX_DEPTH} levels", cure="dump it again"
        )
    if isinstance(body, list):
        for index, value in enumerate(body):
            yield from _walk(value, f"{path}.{index}", where, depth + 1)
    elif isinstance(body, dict) and (top or not isinstance(body.get("type"), str)):
        for key, value in body.items():
            yield from _walk(value, f"{path}.{key}", where, depth + 1)
    else:
        yield path, body


def _parse_type(body: Any, where: str) -> tuple[DType | None, tuple[int, ...]]:
    if not isinstance(body, dict) or "dtype" not in body or "shape" not in body:
        return None, ()
    shape = body["shape"]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise FormatError(
            f"the shape of {where} must be a list of lengths, not {repr(shape)[:80]}",
            cure="dump it again",
        )
    if len(shape) > 64 or prod(n for n in shape if n) > 1 << 60:
        raise FormatError(
            f"the shape of {where} is too large: {repr(shape)[:80]}", cure="dump it again"
        )
    try:
        return dtypes.parse_dtype(str(body["dtype"])), tuple(shape)
    except InputError:
        return None, tuple(shape)


def parse_number(value: Any) -> float | None:
    """Parse a number: also true, NaN, or a text."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def read_statistics(entry_value: EntryValue) -> Statistics | None:
    """Read the statistics of a tensor.

    If an extremum is not finite, the number of non-finite elements and the statistics of the
    finite ones are unknown. Sums are in the precision of msProbe, so no standard deviation is
    computed from them. Unknown figures are NaN, unknown counts are -1.
    """
    body: Mapping[str, Any] = entry_value.body
    count = prod(entry_value.shape)
    high, low, mean, norm = (parse_number(body.get(name)) for name in FIGURES)
    if high is None or low is None:
        if count:
            return None
        return Statistics(
            count=0, min=math.nan, max=math.nan, mean=math.nan, std=math.nan, l2=math.nan
        )
    nan = any(math.isnan(x) for x in (high, low))
    infinite = any(math.isinf(x) for x in (high, low))
    is_finite = not nan and not infinite
    return Statistics(
        count=count,
        min=low if math.isfinite(low) else math.nan,
        max=high if math.isfinite(high) else math.nan,
        mean=_finite_or_nan(mean) if is_finite else math.nan,
        std=math.nan,
        # For a scalar msProbe gives the value itself, with its sign.
        l2=abs(_finite_or_nan(norm)) if is_finite else math.nan,
        nan=-1 if nan else 0,
        inf=-1 if infinite else 0,
        zero=-1,
    )


def _finite_or_nan(value: float | None) -> float:
    """Replace a missing or overflowed figure by NaN, such as the norm of a float16 tensor."""
    return value if value is not None and math.isfinite(value) else math.nan
