"""Bind inputs to the names, types and shapes that a model declares: flatten nested ones by path or
key, rename, order by number, convert dtypes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from syncpoint.errors import InputError
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy
from syncpoint.runtimes.protocol import Array, Inputs, InputSpec, Tree


def bind(
    inputs: Inputs, specs: Sequence[InputSpec], model: str
) -> tuple[dict[str, Array], list[str]]:
    """The input arrays by name, and notes about conversions."""
    declared_inputs = ", ".join(_describe_spec(spec) for spec in specs)
    fitted = fit_inputs(_flatten(inputs, specs), specs, f"{model} ({declared_inputs})")
    value_by_name = dict(zip((spec.name for spec in specs), fitted.args, strict=False))
    value_by_name |= dict(fitted.kwargs)
    notes: list[str] = []
    arrays = {}
    for spec in specs:
        if value_by_name.get(spec.name) is not None:
            arrays[spec.name] = _cast(as_array(value_by_name[spec.name], spec.name), spec, notes)
    return arrays, notes


def as_array(value: Tree, name: str) -> Array:
    """The value of the input `name`, of NumPy, torch or Python, as an array."""
    if hasattr(value, "detach"):
        from syncpoint.runtimes.torch.arrays import to_numpy

        return to_numpy(value)
    try:
        array = np.asarray(value)
        from_numpy(array.dtype)
    except (InputError, ValueError):
        is_array = isinstance(value, np.ndarray)
        actual = f"an array of {value.dtype}" if is_array else f"a {type(value).__qualname__}"
        raise InputError(
            f"the input {name} must be an array of numbers, a tensor or a number, not {actual}",
            cure="give its values as numbers",
        ) from None
    return array


def _cast(array: Array, spec: InputSpec, notes: list[str]) -> Array:
    """The array in the type that the model declares; converts only within one kind of number."""
    if spec.shape is not None and not _is_shape_allowed(array.shape, spec.shape):
        raise InputError(
            f"shape mismatch: the input {spec.name} has shape {list(array.shape)}, but the"
            f" model declares {_describe_spec(spec)}",
            cure="give an input of the declared shape",
        )
    dtype = from_numpy(array.dtype)
    if not spec.dtype or dtype.name == spec.dtype:
        return array
    declared_dtype = DTYPES[spec.dtype]
    if dtype.kind is declared_dtype.kind is Kind.FLOAT:
        with np.errstate(over="ignore"):
            converted = array.astype(declared_dtype.numpy)
        if not np.array_equal(
            converted.astype(np.float64), array.astype(np.float64), equal_nan=True
        ):
            notes.append(f"the input {spec.name} was rounded from {dtype} to {declared_dtype}")
        return converted
    if dtype.kind in (Kind.INT, Kind.BOOL) and declared_dtype.kind in (Kind.INT, Kind.BOOL):
        converted = array.astype(declared_dtype.numpy)
        if np.array_equal(converted.astype(array.dtype), array):
            return converted
        raise InputError(
            f"the input {spec.name} holds values of {dtype} that do not fit into"
            f" {_describe_spec(spec)}",
            cure=f"give values in the range of {declared_dtype}",
        )
    raise InputError(
        f"the input {spec.name} is an array of {dtype}, but the model declares"
        f" {_describe_spec(spec)}",
        cure=f"convert it to {declared_dtype}",
    )


def _is_shape_allowed(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    return len(shape) == len(declared) and all(
        size in (-1, n) for n, size in zip(shape, declared, strict=True)
    )


def _describe_spec(spec: InputSpec) -> str:
    shape = "" if spec.shape is None else str(["?" if n < 0 else n for n in spec.shape])
    return f"{spec.name} {spec.dtype}{shape}".replace("'", "").strip()


def _flatten(inputs: Inputs, specs: Sequence[InputSpec]) -> Inputs:
    """Flatten nested inputs: each value by its path or its last key, else all by position."""
    if not any(
        isinstance(v, Mapping | tuple | list) for v in (*inputs.args, *inputs.kwargs.values())
    ):
        return inputs
    names = {spec.name for spec in specs}
    leaves = [leaf for value in inputs.args for leaf in _leaves(value, ())]
    leaves += [leaf for key, value in inputs.kwargs.items() for leaf in _leaves(value, (key,))]
    matched_names = [
        next((n for n in _possible_names(path) if n in names), "") for path, _ in leaves
    ]
    if all(matched_names) and len(set(matched_names)) == len(matched_names):
        return Inputs(kwargs=dict(zip(matched_names, (v for _, v in leaves), strict=True)))
    return Inputs(tuple(v for _, v in leaves))


def _possible_names(path: tuple[Any, ...]) -> tuple[str, ...]:
    steps = [str(step) for step in path]
    return ("_".join(steps), ".".join(steps), steps[-1]) if steps else ()


def _leaves(value: Tree, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, tuple | list) and not all(isinstance(v, int | float) for v in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def fit_inputs(
    inputs: Inputs,
    specs: Sequence[InputSpec],
    signature: str,
    open_ended: tuple[bool, bool] = (False, False),
) -> Inputs:
    """The inputs under the names of the model, or by position where the counts agree.

    `open_ended` is whether the model takes any further positional and any further named inputs.
    """
    names = [spec.name for spec in specs]
    required = [spec.name for spec in specs if spec.required]
    args, kwargs = inputs.args, dict(inputs.kwargs)
    if not open_ended[1]:
        kwargs = _rename_inputs(inputs, names, required, signature)
    if len(args) > len(names) and not open_ended[0]:
        raise InputError(
            f"{signature} takes at most {len(names)} inputs, not {len(args) + len(kwargs)}",
            cure="leave the rest out",
        )
    by_position = set(names[: len(args)])
    repeated_names = sorted(by_position & set(kwargs))
    if repeated_names:
        raise InputError(
            f"the input {repeated_names[0]} of {signature} is given by position and by name",
            cure="give it once",
        )
    missing = [name for name in required if name not in by_position and name not in kwargs]
    if missing:
        raise InputError(
            f"{'the input' if len(missing) == 1 else 'the inputs'}"
            f" {', '.join(repr(name) for name in missing)} of {signature}"
            f" {'is' if len(missing) == 1 else 'are'} missing: {len(args) + len(kwargs)} of"
            f" {len(required)} were given",
            cure="give all inputs with --inputs, by name or in order",
        )
    return Inputs(args, kwargs)


def _rename_inputs(
    inputs: Inputs, names: Sequence[str], required: Sequence[str], signature: str
) -> dict[str, Any]:
    """The named inputs under the names of the model; by order where no name is known and the
    count agrees."""
    kwargs = dict(inputs.kwargs)
    unknown_names = [key for key in kwargs if key not in names]
    if not unknown_names:
        return kwargs
    are_all_unknown = len(unknown_names) == len(kwargs) and not inputs.args
    if not are_all_unknown or len(kwargs) not in (len(required), len(names)):
        known_names = ", ".join(names) or "none"
        raise InputError(
            f"the inputs {', '.join(kwargs)} do not fit {signature}",
            cure=f"use the names that it takes: {known_names}",
        )
    target_names = names if len(kwargs) == len(names) else required
    return dict(zip(target_names, (kwargs[key] for key in _sort_by_number(kwargs)), strict=True))


def _sort_by_number(kwargs: Mapping[str, Any]) -> list[str]:
    """Keys by their final number where all have one (arr_0 ... arr_10), else in given order."""
    numbers = [re.search(r"(\d+)$", key) for key in kwargs]
    if all(numbers):
        return sorted(kwargs, key=lambda key: int(re.search(r"(\d+)$", key)[1]))  # type: ignore[index]
    return list(kwargs)
