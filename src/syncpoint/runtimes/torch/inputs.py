"""Bind inputs to the arguments of a model's `forward`, in the structure that an exported program
requires; name the arguments of a call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.bind_inputs import fit_inputs
from syncpoint.runtimes.protocol import Inputs, InputSpec, Tree
from syncpoint.runtimes.torch.arrays import to_torch
from syncpoint.runtimes.torch.load_model import LoadedModel
from syncpoint.runtimes.torch.tree_paths import named_leaves

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def bind_arguments(
    loaded_model: LoadedModel, inputs: Inputs, specs: Sequence[InputSpec]
) -> tuple[Args, Kwargs]:
    """The arguments of forward as tensors of the right dtype, each with its own memory."""
    positional = loaded_model.positional
    open_ends = has_open_ends(loaded_model)
    if len(inputs.args) > len(positional) and not open_ends[0]:
        raise InputError(
            f"{loaded_model.title} takes at most {len(positional)} inputs by position, not"
            f" {len(inputs.args)}",
            cure="leave the rest out, or give inputs by name",
        )
    fitted_inputs = fit_inputs(inputs, specs, loaded_model.title, open_ends)
    used_addresses: set[int] = set()

    def leaf(value: Tree) -> Tree:
        if isinstance(value, (np.ndarray, np.generic)):
            value = to_torch(np.asarray(value))
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        moved = value.to(
            device=loaded_model.device,
            dtype=loaded_model.dtype if value.is_floating_point() else None,
        )
        # torch.export treats one tensor that is passed twice as one input.
        if moved.data_ptr() in used_addresses:
            moved = moved.clone()
        used_addresses.add(moved.data_ptr())
        return moved

    fitted_inputs = _to_declared_numbers(loaded_model, fitted_inputs)
    args = pytree.tree_map(leaf, fitted_inputs.args)
    kwargs = pytree.tree_map(leaf, dict(fitted_inputs.kwargs))
    return (
        _match_exported_structure(loaded_model, args, kwargs)
        if loaded_model.exported is not None
        else (args, kwargs)
    )


def _to_declared_numbers(loaded_model: LoadedModel, inputs: Inputs) -> Inputs:
    """The inputs, with arrays of one element as the numbers that TorchScript declares: a file of
    inputs holds only arrays."""
    if loaded_model.script is None:
        return inputs
    types = {
        argument.name: argument.type.kind()
        for argument in loaded_model.plain.forward.schema.arguments  # type: ignore[attr-defined]
    }

    def convert(name: str, value: Tree) -> Tree:
        is_number = types.get(name) in ("IntType", "FloatType", "BoolType")
        is_single = isinstance(value, np.ndarray | np.generic | torch.Tensor) and (
            np.prod(value.shape) == 1
        )
        return value.item() if is_number and is_single else value

    return Inputs(
        tuple(convert(*pair) for pair in zip(loaded_model.positional, inputs.args, strict=False)),
        {name: convert(name, value) for name, value in inputs.kwargs.items()},
    )


def _match_exported_structure(
    loaded_model: LoadedModel, args: Args, kwargs: Kwargs
) -> tuple[Args, Kwargs]:
    """The inputs in the structure that an exported program requires."""
    assert loaded_model.exported is not None
    bound = loaded_model.signature.bind(*args, **kwargs)
    exported_spec = loaded_model.exported.call_spec.in_spec
    leaves, spec = pytree.tree_flatten((bound.args, bound.kwargs))
    if spec != exported_spec:
        # A recorded run has tuples where the model took lists.
        names = [p for p, _ in named_leaves((bound.args, bound.kwargs), loaded_model.positional)]
        positions = pytree.tree_unflatten(list(range(exported_spec.num_leaves)), exported_spec)
        if names != [p for p, _ in named_leaves(positions, loaded_model.positional)]:
            raise InputError(
                f"the inputs {', '.join(names)} are not in the structure that"
                f" {loaded_model.title} was exported with",
                cure="nest them as in the export",
            )
    rebuilt: tuple[Args, Kwargs] = pytree.tree_unflatten(leaves, exported_spec)
    return rebuilt


def has_open_ends(loaded_model: LoadedModel) -> tuple[bool, bool]:
    """Whether forward takes any further inputs by position and by name."""
    kinds = {p.kind for p in loaded_model.signature.parameters.values()}
    return (
        inspect.Parameter.VAR_POSITIONAL in kinds,
        inspect.Parameter.VAR_KEYWORD in kinds,
    )


def named_arguments(module: nn.Module, args: Tree, kwargs: Tree) -> list[tuple[str, Any]]:
    """The arguments of a call, by the parameter names of forward."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [("args", args), *kwargs.items()]
    kinds = {p.name: p.kind for p in bound.signature.parameters.values()}
    arguments: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        if kinds[name] is inspect.Parameter.VAR_KEYWORD:
            arguments += value.items()
        else:
            positional = kinds[name] is inspect.Parameter.VAR_POSITIONAL
            arguments.append(("args" if positional else name, value))
    return arguments
