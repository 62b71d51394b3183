"""What the user gives, as a model with named inputs takes it: in the types it declares."""

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
    """The arrays to feed by name, and what a reader must know of how they came about."""
    takes = ", ".join(_declared(spec) for spec in specs)
    fitted = fit(_flat(inputs, specs), specs, f"{model} ({takes})")
    given = dict(zip((spec.name for spec in specs), fitted.args, strict=False))
    given |= dict(fitted.kwargs)
    notes: list[str] = []
    found = {}
    for spec in specs:
        if given.get(spec.name) is not None:
            found[spec.name] = _cast(as_array(given[spec.name]), spec, notes)
    return found, notes


def as_array(value: Tree) -> Array:
    """A value of NumPy, of torch or of Python as an array."""
    if hasattr(value, "detach"):
        from syncpoint.runtimes.torch.arrays import to_numpy

        return to_numpy(value)
    try:
        array = np.asarray(value)
        from_numpy(array.dtype)
    except (InputError, ValueError):
        raise InputError("an input of numbers", f"a {type(value).__qualname__}") from None
    return array


def _cast(array: Array, spec: InputSpec, notes: list[str]) -> Array:
    """The array in the type the model declares; only what keeps its meaning is converted."""
    if spec.shape is not None and not _fits(array.shape, spec.shape):
        raise InputError(f"the input {_declared(spec)}", f"shape {list(array.shape)}")
    own = from_numpy(array.dtype)
    if not spec.dtype or own.name == spec.dtype:
        return array
    wanted = DTYPES[spec.dtype]
    if own.kind is wanted.kind is Kind.FLOAT:
        with np.errstate(over="ignore"):
            made = array.astype(wanted.numpy)
        if not np.array_equal(made.astype(np.float64), array.astype(np.float64), equal_nan=True):
            notes.append(f"the input {spec.name} was rounded from {own} to {wanted}")
        return made
    if own.kind in (Kind.INT, Kind.BOOL) and wanted.kind in (Kind.INT, Kind.BOOL):
        made = array.astype(wanted.numpy)
        if np.array_equal(made.astype(array.dtype), array):
            return made
        raise InputError(f"the input {_declared(spec)}", f"values of {own} that it cannot hold")
    raise InputError(f"the input {_declared(spec)}", f"an array of {own}", "convert it")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        w in (-1, n) for n, w in zip(shape, wanted, strict=True)
    )


def _declared(spec: InputSpec) -> str:
    shape = "" if spec.shape is None else str(["?" if n < 0 else n for n in spec.shape])
    return f"{spec.name} {spec.dtype}{shape}".replace("'", "").strip()


def _flat(inputs: Inputs, specs: Sequence[InputSpec]) -> Inputs:
    """Such models know no nesting: a nested value is told by its path or by its last key, and where
    that fails all by position."""
    if not any(
        isinstance(v, Mapping | tuple | list) for v in (*inputs.args, *inputs.kwargs.values())
    ):
        return inputs
    names = {spec.name for spec in specs}
    leaves = [leaf for value in inputs.args for leaf in _leaves(value, ())]
    leaves += [leaf for key, value in inputs.kwargs.items() for leaf in _leaves(value, (key,))]
    called = [next((n for n in _called(path) if n in names), "") for path, _ in leaves]
    if all(called) and len(set(called)) == len(called):
        return Inputs(kwargs=dict(zip(called, (v for _, v in leaves), strict=True)))
    return Inputs(tuple(v for _, v in leaves))


def _called(path: tuple[Any, ...]) -> tuple[str, ...]:
    words = [str(step) for step in path]
    return ("_".join(words), ".".join(words), words[-1]) if words else ()


def _leaves(value: Tree, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, tuple | list) and not all(isinstance(v, int | float) for v in value):
        for at, inner in enumerate(value):
            yield from _leaves(inner, (*path, at))
    else:
        yield path, value


def fit(
    inputs: Inputs,
    specs: Sequence[InputSpec],
    signature: str,
    open_ended: tuple[bool, bool] = (False, False),
) -> Inputs:
    """The inputs under the names the model knows, or by position where the counts agree.

    `open_ended` says whether the model takes further positional and further named inputs.
    """
    names = [spec.name for spec in specs]
    required = [spec.name for spec in specs if spec.required]
    args, kwargs = inputs.args, dict(inputs.kwargs)
    if not open_ended[1]:
        kwargs = _renamed(inputs, names, required, signature)
    if len(args) > len(names) and not open_ended[0]:
        raise InputError(
            f"at most {len(names)} inputs for {signature}", f"{len(args) + len(kwargs)}"
        )
    by_position = set(names[: len(args)])
    twice = sorted(by_position & set(kwargs))
    if twice:
        raise InputError(f"each input of {signature} once", f"{twice[0]} by position and by name")
    missing = [name for name in required if name not in by_position and name not in kwargs]
    if missing:
        raise InputError(
            f"inputs for {signature}",
            f"{len(args) + len(kwargs)} without {', '.join(missing)}",
        )
    return Inputs(args, kwargs)


def _renamed(
    inputs: Inputs, names: Sequence[str], required: Sequence[str], signature: str
) -> dict[str, Any]:
    """The named inputs under the names the model knows: by order where it knows none of them and
    their number is right."""
    kwargs = dict(inputs.kwargs)
    unknown = [key for key in kwargs if key not in names]
    if not unknown:
        return kwargs
    are_all_unknown = len(unknown) == len(kwargs) and not inputs.args
    if not are_all_unknown or len(kwargs) not in (len(required), len(names)):
        known = ", ".join(names) or "none"
        raise InputError(f"inputs for {signature}", f"{', '.join(kwargs)}", f"it takes: {known}")
    chosen = names if len(kwargs) == len(names) else required
    return dict(zip(chosen, (kwargs[key] for key in _in_order(kwargs)), strict=True))


def _in_order(kwargs: Mapping[str, Any]) -> list[str]:
    """Keys by the number at their end where all have one (arr_0 ... arr_10), else as they came."""
    numbers = [re.search(r"(\d+)$", key) for key in kwargs]
    if all(numbers):
        return sorted(kwargs, key=lambda key: int(re.search(r"(\d+)$", key)[1]))  # type: ignore[index]
    return list(kwargs)
