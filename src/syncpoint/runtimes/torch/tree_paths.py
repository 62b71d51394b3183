"""Paths of nested arguments and outputs of a model, such as `out["logits"][0]`, written as text,
and iteration over their leaves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from syncpoint.runtimes.protocol import Tree


def iterate_leaves(value: Tree, root: str) -> Iterator[tuple[int, str, Any]]:
    """Position, path and value of each leaf that is nested in a value."""
    for position, (path, leaf) in enumerate(_walk_leaves(value, root, ())):
        yield position, path, leaf


def _walk_leaves(value: Tree, path: str, ancestors: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor) or id(value) in ancestors:
        yield path, value
        return
    children: list[tuple[str, Any]] | None = None
    if isinstance(value, Mapping):
        children = [
            (f"{path}[{json.dumps(k) if isinstance(k, str) else k}]", v) for k, v in value.items()
        ]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        children = [(f"{path}.{field}", getattr(value, field)) for field in value._fields]
    elif isinstance(value, list | tuple):
        children = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        children = [(f"{path}.{n}", getattr(value, n)) for n in names if hasattr(value, n)]
    elif type(value) in pytree.SUPPORTED_NODES:
        children = [(f"{path}[{i}]", leaf) for i, leaf in enumerate(pytree.tree_leaves(value))]
    if children is None:
        yield path, value
        return
    for child_path, child in children:
        yield from _walk_leaves(child, child_path, (*ancestors, id(value)))


def input_path(path: tuple[Any, ...], names: tuple[str, ...]) -> str:
    """The path of a leaf of (args, kwargs), which begins with the name of the parameter."""
    side, which, rest = path[0].idx, path[1], path[2:]
    if side == 1:
        root = str(which.key)
    else:
        root = names[which.idx] if which.idx < len(names) else f"args[{which.idx}]"
    return path_text(root, rest)


def output_paths(spec: pytree.TreeSpec) -> tuple[str, ...]:
    """The paths of the flattened outputs."""
    places = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    return tuple(path_text("out", path) for path, _ in pytree.tree_flatten_with_path(places)[0])


def path_text(root: str, keys: tuple[Any, ...]) -> str:
    """The path of a leaf as a user would write it: `out["logits"][0]`."""
    text = root
    for key in keys:
        if isinstance(key, pytree.SequenceKey):
            text += f"[{key.idx}]"
        elif isinstance(key, pytree.MappingKey):
            text += f"[{json.dumps(key.key) if isinstance(key.key, str) else key.key}]"
        else:
            text += f".{getattr(key, 'name', key)}"
    return text


def named_leaves(tree: Tree, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The leaves of (args, kwargs), each with its path."""
    for path, value in pytree.tree_flatten_with_path(tree)[0]:
        yield input_path(path, names), value
