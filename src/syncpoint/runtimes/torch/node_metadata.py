"""What a node of an FX graph is called and does: its module, source lines, type and attributes."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Frame, Op, OpKey
from syncpoint.runtimes.parse_stack_trace import frames_in, without_call
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name

FRAMES = "syncpoint_frames"
"""Key in a node's meta: its source stack, where the node was recorded while the model ran."""
_TORCH_FOLDER = str(Path(torch.__file__).parent) + "/"
_LOCAL = re.compile(r"^(?:L\['\w+'\]|L__self__|L__fn__)")
"""What dynamo calls the object whose code it follows."""
_GETATTR = re.compile(r"getattr\((?P<of>[^()]*), '(?P<name>[^']*)'\)")
_ITEM = re.compile(r"\['?([^\]']*)'?\]")


def frames(node: Node) -> tuple[Frame, ...]:
    """The user's lines that made the node, innermost last; torch's own where there are none."""
    if FRAMES in node.meta:
        recorded: tuple[Frame, ...] = node.meta[FRAMES]
        return recorded
    return of_the_user(frames_in(node.meta.get("stack_trace") or ""))


def of_the_user(stack: list[Frame]) -> tuple[Frame, ...]:
    """The frames outside torch; all of them where torch is all there is."""
    users = [frame for frame in stack if not _is_torch(frame.file)]
    return tuple(users or stack)


def _is_torch(file: str) -> bool:
    # A file may have been written on another machine.
    return file.startswith(_TORCH_FOLDER) or "/site-packages/torch/" in file


def ancestors(node: Node) -> tuple[str, ...]:
    """Names of the nodes of earlier graphs that this one was made from, the nearest first."""
    found: dict[str, None] = {}
    waiting = list(node.meta.get("from_node") or ())
    while waiting:
        source = waiting.pop(0)
        if getattr(source, "name", ""):
            found[source.name] = None
        waiting += getattr(source, "from_node", None) or ()
    return tuple(found)


def module_of(node: Node) -> tuple[str, str]:
    """Dotted path and class name of the innermost module the node was made in."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    name = kind if isinstance(kind, str) else kind.__qualname__
    return _dotted(path), name.rpartition(".")[2]


def _dotted(path: str) -> str:
    """`L['self'].layers[0]`, `layers.0@1` and their like, as `layers.0`."""
    path = without_call(path)
    while (changed := _GETATTR.sub(r"\g<of>.\g<name>", path)) != path:
        path = changed
    path = _LOCAL.sub("", path).replace("._modules[", "[")
    return _ITEM.sub(r".\1", path).strip(".")


def is_op(node: Node) -> bool:
    """Whether the node computes something; checks that torch adds to a graph do not."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    schema = node.target._schema
    return bool(schema.returns) or schema.is_mutable


def is_random(node: Node) -> bool:
    """Whether the node draws random numbers when it runs as it stands."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = dict(arguments(node))
    for name in ("train", "training"):
        if given.get(name) is False:
            return False
    return not any(given.get(name) == 0 for name in ("p", "dropout_p", "dropout"))


_UNINITIALISED = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
    )
)


def is_uninitialised(node: Node) -> bool:
    """Whether the node gives memory with whatever happens to be in it."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.name in _UNINITIALISED


def arguments(node: Node) -> Iterator[tuple[str, Any]]:
    """Every argument of the node by name, defaults included, in the order of the schema."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        yield from ((str(i), value) for i, value in enumerate(node.args))
        yield from node.kwargs.items()
        return
    for position, argument in enumerate(target._schema.arguments):
        if position < len(node.args):
            yield argument.name, node.args[position]
        elif argument.name in node.kwargs:
            yield argument.name, node.kwargs[argument.name]
        elif argument.has_default_value():
            yield argument.name, argument.default_value


def attributes(node: Node, value_of: Callable[[Node], Any]) -> dict[str, Any]:
    """The non-tensor arguments by name; `value_of` gives the number a node stands for."""

    def known(value: Tree) -> Tree:
        return value_of(value) if isinstance(value, Node) else value

    found = {}
    for name, value in arguments(node):
        if value is None:
            continue
        here = pytree.tree_map(known, value)
        leaves = [here] if isinstance(here, Node) else pytree.tree_leaves(here)
        if any(not isinstance(leaf, (torch.Tensor, Node)) for leaf in leaves):
            found[name] = json_value(here)
    return found


def type_of(node: Node) -> str:
    """The runtime's name of what the node does: `aten.linear.default`."""
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return str(target)
    return getattr(target, "__name__", str(target))


def json_value(value: Tree) -> Tree:
    """A non-tensor argument as JSON; non-finite numbers become text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (torch.Tensor, Node)):
        return "tensor"
    return str(value).removeprefix("torch.")


def is_tensor(node: Node) -> bool:
    """Whether the node's value is a tensor, as far as the export knows."""
    if node.op == "get_attr":
        return True
    value = node.meta.get("val")
    return value is None or isinstance(value, torch.Tensor)


AUTOCAST = "syncpoint_autocast"
"""Key in a node's meta: the arguments of the autocast it ran under."""


def describe(node: Node, originals: tuple[str, ...] = ()) -> Op:
    """An op as its node tells of it, without inputs and attributes."""
    module, module_type = module_of(node)
    return Op(
        OpKey(node.name),
        type_of(node),
        module=module,
        module_type=module_type,
        source=frames(node),
        origins=tuple(dict.fromkeys((node.name, *originals, *ancestors(node)))),
        random=is_random(node) or is_uninitialised(node),
    )


def attribute(module: torch.nn.Module, target: str) -> Tree:
    """What a get_attr node fetches."""
    found: Any = module
    for name in target.split("."):
        found = getattr(found, name)
    return found
