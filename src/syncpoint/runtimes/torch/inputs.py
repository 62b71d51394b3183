"""The inputs of a PyTorch model: fitted to its forward, and what is said when they do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from syncpoint.errors import CaptureError, InputError
from syncpoint.runtimes.import_path import one_line
from syncpoint.runtimes.inputs.bind_inputs import fit
from syncpoint.runtimes.protocol import Inputs, InputSpec, Tree
from syncpoint.runtimes.torch.arrays import describe, dtype_name, to_torch
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.tree_paths import input_path

_ILL_FITTING = ("shape", "size", "dimension", "channels", "dtype", "out of range", "expected")

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def bind(subject: Subject, inputs: Inputs, specs: Sequence[InputSpec]) -> tuple[Args, Kwargs]:
    """The arguments of forward as tensors of the right type, each with memory of its own."""
    positional = subject.positional
    open_ended = _open_ended(subject)
    if len(inputs.args) > len(positional) and not open_ended[0]:
        raise InputError(
            f"at most {len(positional)} inputs by position for {subject.title}",
            f"{len(inputs.args)}",
        )
    fitted = fit(inputs, specs, subject.title, open_ended)
    seen: set[int] = set()

    def leaf(value: Tree) -> Tree:
        if isinstance(value, (np.ndarray, np.generic)):
            value = to_torch(np.asarray(value))
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        moved = value.to(
            device=subject.device, dtype=subject.dtype if value.is_floating_point() else None
        )
        # Export takes one tensor given twice for one input.
        if moved.data_ptr() in seen:
            moved = moved.clone()
        seen.add(moved.data_ptr())
        return moved

    args = pytree.tree_map(leaf, fitted.args)
    kwargs = pytree.tree_map(leaf, dict(fitted.kwargs))
    return _as_exported(subject, args, kwargs) if subject.exported is not None else (args, kwargs)


def raised(
    subject: Subject, error: Exception, args: Args, kwargs: Kwargs, op: str = ""
) -> InputError | CaptureError:
    """The error of a model that raised; what smells of ill-fitting inputs says so."""
    given = ", ".join(
        f"{name} {describe(value)}" for name, value in named((args, kwargs), subject.positional)
    )
    floats = {p.dtype for p in subject.plain.parameters() if p.is_floating_point()}
    for name, value in named((args, kwargs), subject.positional):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if floats and value.dtype not in floats:
            return InputError(
                f"{subject.title} to be given floating-point inputs in "
                + " or ".join(sorted(dtype_name(d) for d in floats)),
                f"{name} {describe(value)}, and it raised {one_line(error)}",
                "convert the input, or set the option dtype",
            )
    text = str(error).lower()
    misfit = isinstance(error, (RuntimeError, IndexError)) and any(
        word in text for word in _ILL_FITTING
    )
    # What an exported program says of sizes it was not exported for.
    if misfit or (isinstance(error, AssertionError) and text.startswith("guard failed")):
        return InputError(
            f"inputs that fit {subject.title}",
            f"{given}, with which it raised {one_line(error)}{op}",
        )
    return CaptureError(f"{subject.title} to run on {given}", f"{one_line(error)}{op}")


def key_of(args: Args, kwargs: Kwargs, more: Tree) -> Tree:
    """What a program depends on of its inputs."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return (str(spec), tuple(_form(leaf) for leaf in leaves), more)


def named(tree: Tree, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The leaves of (args, kwargs), each with the path a user knows."""
    for path, value in pytree.tree_flatten_with_path(tree)[0]:
        yield input_path(path, names), value


def _as_exported(subject: Subject, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The inputs in the structure that an exported program insists on."""
    assert subject.exported is not None
    bound = subject.signature.bind(*args, **kwargs)
    wanted = subject.exported.call_spec.in_spec
    leaves, found = pytree.tree_flatten((bound.args, bound.kwargs))
    if found != wanted:
        # A recorded run gives tuples for lists and the like.
        names = [p for p, _ in named((bound.args, bound.kwargs), subject.positional)]
        places = pytree.tree_unflatten(list(range(wanted.num_leaves)), wanted)
        if names != [p for p, _ in named(places, subject.positional)]:
            raise InputError(
                f"inputs in the structure that {subject.title} was exported with",
                ", ".join(names),
            )
    made: tuple[Args, Kwargs] = pytree.tree_unflatten(leaves, wanted)
    return made


def _open_ended(subject: Subject) -> tuple[bool, bool]:
    kinds = {p.kind for p in subject.signature.parameters.values()}
    return (
        inspect.Parameter.VAR_POSITIONAL in kinds,
        inspect.Parameter.VAR_KEYWORD in kinds,
    )


def _form(leaf: Tree) -> Tree:
    """What a program depends on of one input."""
    if isinstance(leaf, torch.Tensor):
        return (leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()))
    return repr(leaf)
