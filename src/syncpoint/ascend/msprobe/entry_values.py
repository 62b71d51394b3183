"""What an entry of dump.json holds: tensors and other arguments, each with the name that msProbe
gives it, such as `input.1.0` or `parameters.weight`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from syncpoint.ascend.msprobe.names import GRADIENTS, Named
from syncpoint.errors import FormatError, InputError
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DType
from syncpoint.run.model import Role, Statistics

FIGURES = ("Max", "Min", "Mean", "Norm")
_DEEPEST = 32
_GROUPS = (
    ("input_args", "input", Role.INPUT),
    ("input_kwargs", "input", Role.INPUT),
    ("input", "input", Role.INPUT),
    ("parameters", "parameters", Role.PARAMETER),
    ("output", "output", Role.OUTPUT),
)
"""In the order in which the tool itself lists them."""


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One tensor or other value of an entry."""

    name: str
    """Within its entry."""
    role: Role
    index: int
    """Its place among those of its role, values that are no tensors included."""
    body: Any
    """As the file has it: an object, a plain value, or None."""
    dtype: DType | None = None
    """None where it is no tensor, or of a type that is not known here."""
    shape: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor that can be put in a run."""
        return self.dtype is not None


def leaves(entry: object, name: Named, where: str) -> Iterator[Leaf]:
    """All values of an entry, in order."""
    if not isinstance(entry, dict):
        raise FormatError(f"an object for {where}", type(entry).__name__)
    counts: dict[Role, int] = {}
    for role, path, body in _found(entry, name, where):
        at = counts.get(role, 0)
        counts[role] = at + 1
        dtype, shape = _described(body, f"{path} of {where}")
        yield Leaf(name=path, role=role, index=at, body=body, dtype=dtype, shape=shape)


def _found(entry: dict[str, Any], name: Named, where: str) -> Iterator[tuple[Role, str, Any]]:
    if name.way == GRADIENTS:
        for parameter, body in entry.items():
            # A list of one, which the name does not show.
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
    if depth > _DEEPEST:
        raise FormatError(f"at most {_DEEPEST} levels of nesting in {where}", "more")
    if isinstance(body, list):
        for at, value in enumerate(body):
            yield from _walk(value, f"{path}.{at}", where, depth + 1)
    elif isinstance(body, dict) and (top or not isinstance(body.get("type"), str)):
        for key, value in body.items():
            yield from _walk(value, f"{path}.{key}", where, depth + 1)
    else:
        yield path, body


def _described(body: Any, where: str) -> tuple[DType | None, tuple[int, ...]]:
    if not isinstance(body, dict) or "dtype" not in body or "shape" not in body:
        return None, ()
    shape = body["shape"]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise FormatError(f"a list of lengths as shape of {where}", repr(shape)[:80])
    if len(shape) > 64 or prod(n for n in shape if n) > 1 << 60:
        raise FormatError(f"a shape that a machine can hold for {where}", repr(shape)[:80])
    try:
        return dtypes.parse_dtype(str(body["dtype"])), tuple(shape)
    except InputError:
        return None, tuple(shape)


def figure(value: Any) -> float | None:
    """A number as the file has it: also true, NaN, or a text that says so."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def statistics(leaf: Leaf) -> Statistics | None:
    """What the file says of the values of a tensor.

    Where an extremum is not finite, it is not known how many elements are not, nor what the finite
    ones are like. Sums are in the precision of the tool, so no spread is made of them. What is not
    known is NaN, and -1 where it is a number of elements.
    """
    body: Mapping[str, Any] = leaf.body
    count = prod(leaf.shape)
    high, low, mean, norm = (figure(body.get(name)) for name in FIGURES)
    if high is None or low is None:
        if count:
            return None
        return Statistics(
            count=0, min=math.nan, max=math.nan, mean=math.nan, std=math.nan, l2=math.nan
        )
    nan = any(math.isnan(x) for x in (high, low))
    infinite = any(math.isinf(x) for x in (high, low))
    whole = not nan and not infinite
    return Statistics(
        count=count,
        min=low if math.isfinite(low) else math.nan,
        max=high if math.isfinite(high) else math.nan,
        mean=_known(mean) if whole else math.nan,
        std=math.nan,
        # Of a scalar the tool gives the value itself, with its sign.
        l2=abs(_known(norm)) if whole else math.nan,
        nan=-1 if nan else 0,
        inf=-1 if infinite else 0,
        zero=-1,
    )


def _known(value: float | None) -> float:
    """NaN where it overflowed, as the norm of a half-precision tensor does."""
    return value if value is not None and math.isfinite(value) else math.nan
