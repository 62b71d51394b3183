"""Shapes of inputs to generate: as `--shape` gives them, and as the model declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncpoint.errors import InputError, NoShape
from syncpoint.run.dtypes import parse_dtype
from syncpoint.runtimes.protocol import InputSpec


@dataclass(frozen=True)
class Shape:
    """What `--shape` says of one input."""

    dims: tuple[int, ...]
    dtype: str = "f32"


def parse_shape(text: str) -> tuple[str, Shape]:
    """`ids=1,16:i64` as a name and a shape; without a name the input is meant by position."""
    name, _, rest = text.rpartition("=")
    numbers, _, kind = rest.partition(":")
    try:
        dims = tuple(int(n) for n in numbers.split(",")) if numbers.strip() else ()
    except ValueError:
        dims = (-1,)
    if any(n < 0 for n in dims):
        raise InputError("a shape such as x=1,3,224,224 or ids=1,16:i64", repr(text))
    return name.strip(), Shape(dims, parse_dtype(kind).name if kind else "f32")


def shapes_by_name(
    shapes: Mapping[str, Shape], declared: Sequence[InputSpec], required: Sequence[str]
) -> dict[str, Shape]:
    """The shapes of the user, one without a name for the first input that has none, then those
    that the model declares in full."""
    wanted = dict(shapes)
    nameless = wanted.pop("", None)
    if nameless is not None:
        free = [name for name in required if name not in wanted]
        wanted[free[0] if free else "0"] = nameless
    for spec in declared:
        if spec.name not in wanted and spec.shape is not None and min(spec.shape, default=0) >= 0:
            wanted[spec.name] = Shape(spec.shape, spec.dtype or "f32")
    return wanted


def refuse_missing_shapes(kind: str, wanted: Mapping[str, Shape], required: Sequence[str]) -> None:
    """Raise NoShape where an input of the model has no shape, unless the user named as many."""
    missing = [name for name in required if name not in wanted]
    unnamed = bool(wanted) and not set(wanted) & set(required) and len(wanted) == len(required)
    if not wanted or (missing and not unnamed):
        lacking = missing[0] if missing else "NAME"
        raise NoShape(
            f"cannot generate {kind} values: no shape for {', '.join(missing) or 'any input'}",
            f"{lacking}=1,3,224,224",
        )


def as_shapes(given: Mapping[str, Shape | tuple[int, ...]] | None) -> dict[str, Shape]:
    """The shapes of the user by name; plain tuples get the default type."""
    return {
        name: shape if isinstance(shape, Shape) else Shape(tuple(shape))
        for name, shape in (given or {}).items()
    }
