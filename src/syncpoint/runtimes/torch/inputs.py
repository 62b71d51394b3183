"""The inputs of a PyTorch model: fitted to its forward, and what is said when they do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.bind_inputs import fit
from syncpoint.runtimes.protocol import Inputs, InputSpec, Tree
from syncpoint.runtimes.torch.arrays import to_torch
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.tree_paths import named_leaves

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


def key_of(args: Args, kwargs: Kwargs, more: Tree) -> Tree:
    """What a program depends on of its inputs."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return (str(spec), tuple(_form(leaf) for leaf in leaves), more)


def _as_exported(subject: Subject, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The inputs in the structure that an exported program insists on."""
    assert subject.exported is not None
    bound = subject.signature.bind(*args, **kwargs)
    wanted = subject.exported.call_spec.in_spec
    leaves, found = pytree.tree_flatten((bound.args, bound.kwargs))
    if found != wanted:
        # A recorded run gives tuples for lists and the like.
        names = [p for p, _ in named_leaves((bound.args, bound.kwargs), subject.positional)]
        places = pytree.tree_unflatten(list(range(wanted.num_leaves)), wanted)
        if names != [p for p, _ in named_leaves(places, subject.positional)]:
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


def named_arguments(module: nn.Module, args: Tree, kwargs: Tree) -> list[tuple[str, Any]]:
    """The arguments of a call by the names that forward has for them."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [("args", args), *kwargs.items()]
    kinds = {p.name: p.kind for p in bound.signature.parameters.values()}
    found: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        if kinds[name] is inspect.Parameter.VAR_KEYWORD:
            found += value.items()
        else:
            positional = kinds[name] is inspect.Parameter.VAR_POSITIONAL
            found.append(("args" if positional else name, value))
    return found
