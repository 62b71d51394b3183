"""Shapes of inputs to generate: parse one `--shape` text, combine with the shapes that the model
declares, refuse missing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncpoint.errors import InputError, NoShape
from syncpoint.run.dtypes import parse_dtype
from syncpoint.runtimes.protocol import InputSpec


@dataclass(frozen=True)
class InputShape:
    """Shape and element type of one input, as `--shape` gives them."""

    dims: tuple[int, ...]
    dtype: str = "f32"


def parse_shape(text: str) -> tuple[str, InputShape]:
    """Parse `ids=1,16:i64` to a name and a shape; the name is "" where there is none."""
    name, _, dims_and_type = text.rpartition("=")
    numbers, _, dtype_text = dims_and_type.partition(":")
    try:
        dims = tuple(int(n) for n in numbers.split(",")) if numbers.strip() else ()
    except ValueError:
        dims = (-1,)
    if any(n < 0 for n in dims):
        raise InputError(
            f"{text!r} is not a shape",
            cure="write it as x=1,3,224,224 or ids=1,16:i64",
        )
    return name.strip(), InputShape(dims, parse_dtype(dtype_text).name if dtype_text else "f32")


def resolve_shapes(
    shapes: Mapping[str, InputShape], declared: Sequence[InputSpec], required: Sequence[str]
) -> dict[str, InputShape]:
    """The shapes of the user, then those that the model declares in full.

    A shape without a name is for the first required input without a shape."""
    shape_by_name = dict(shapes)
    unnamed_shape = shape_by_name.pop("", None)
    if unnamed_shape is not None:
        names_without_shape = [name for name in required if name not in shape_by_name]
        shape_by_name[names_without_shape[0] if names_without_shape else "0"] = unnamed_shape
    for spec in declared:
        if (
            spec.name not in shape_by_name
            and spec.shape is not None
            and min(spec.shape, default=0) >= 0
        ):
            shape_by_name[spec.name] = InputShape(spec.shape, spec.dtype or "f32")
    return shape_by_name


def refuse_missing_shapes(
    kind: str,
    shape_by_name: Mapping[str, InputShape],
    required: Sequence[str],
    declared: Sequence[InputSpec] = (),
) -> None:
    """Raise NoShape where a required input has no full shape, unless the count of shapes fits."""
    missing = [name for name in required if name not in shape_by_name]
    fits_by_count = (
        bool(shape_by_name)
        and not set(shape_by_name) & set(required)
        and len(shape_by_name) == len(required)
    )
    if not shape_by_name or (missing and not fits_by_count):
        open_shapes = {spec.name: spec.shape for spec in declared if spec.shape}
        names = [
            f"{name} (the model declares {_text_of(open_shapes[name])})"
            if name in open_shapes
            else name
            for name in missing
        ]
        example_name = missing[0] if missing else "NAME"
        dims = [abs(n) for n in open_shapes.get(example_name, (1, 3, 224, 224))]
        raise NoShape(
            f"cannot generate {kind} values: no shape for {', '.join(names) or 'any input'}",
            f"{example_name}={','.join(map(str, dims))}",
        )


def _text_of(shape: Sequence[int]) -> str:
    """A declared shape as text: `?x32` has a first axis of any length."""
    return "x".join("?" if n < 0 else str(n) for n in shape)


def to_shapes(shapes: Mapping[str, InputShape | tuple[int, ...]] | None) -> dict[str, InputShape]:
    """The shapes of the user by name; plain tuples get the default type."""
    return {
        name: shape if isinstance(shape, InputShape) else InputShape(tuple(shape))
        for name, shape in (shapes or {}).items()
    }
