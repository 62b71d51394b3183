"""What is nested in the arguments and results of a model, each tensor by the path a user knows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from syncpoint.runtimes.protocol import Tree


def leaves_of(value: Tree, root: str) -> Iterator[tuple[int, str, Any]]:
    """Position, path and value of all that is nested in a value: `out["logits"][0]`."""
    for position, (path, leaf) in enumerate(_walk(value, root, ())):
        yield position, path, leaf


def _walk(value: Tree, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor) or id(value) in above:
        yield path, value
        return
    inner: list[tuple[str, Any]] | None = None
    if isinstance(value, Mapping):
        inner = [
            (f"{path}[{json.dumps(k) if isinstance(k, str) else k}]", v) for k, v in value.items()
        ]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = [(f"{path}.{field}", getattr(value, field)) for field in value._fields]
    elif isinstance(value, list | tuple):
        inner = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        inner = [(f"{path}.{n}", getattr(value, n)) for n in names if hasattr(value, n)]
    elif type(value) in pytree.SUPPORTED_NODES:
        inner = [(f"{path}[{i}]", leaf) for i, leaf in enumerate(pytree.tree_leaves(value))]
    if inner is None:
        yield path, value
        return
    for where, item in inner:
        yield from _walk(item, where, (*above, id(value)))


def input_path(path: tuple[Any, ...], names: tuple[str, ...]) -> str:
    """A leaf of (args, kwargs) as the user knows it: by the name of the parameter."""
    side, which, rest = path[0].idx, path[1], path[2:]
    if side == 1:
        root = str(which.key)
    else:
        root = names[which.idx] if which.idx < len(names) else f"args[{which.idx}]"
    return path_text(root, rest)


def output_paths(spec: pytree.TreeSpec) -> tuple[str, ...]:
    """The flattened outputs as the user knows them."""
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
    """The leaves of (args, kwargs), each with the path a user knows."""
    for path, value in pytree.tree_flatten_with_path(tree)[0]:
        yield input_path(path, names), value
