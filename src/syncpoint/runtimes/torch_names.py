"""What a node of an FX graph is called: its module, its source lines, its edges, its attributes."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, Frame, OpKey, Role
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch_tensors import dtype_name

FRAMES = "syncpoint_frames"
"""Key in a node's meta: its source stack, where the node was recorded while the model ran."""
_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+), in (?P<function>.+?)\s*$', re.M)
_TORCH_FOLDER = str(Path(torch.__file__).parent) + "/"
_LOCAL = re.compile(r"^(?:L\['\w+'\]|L__self__|L__fn__)")
"""What dynamo calls the object whose code it follows."""
_CALL = re.compile(r"@\d+$")
_GETATTR = re.compile(r"getattr\((?P<of>[^()]*), '(?P<name>[^']*)'\)")
_ITEM = re.compile(r"\['?([^\]']*)'?\]")


def frames(node: Node) -> tuple[Frame, ...]:
    """The user's lines that made the node, innermost last; torch's own where there are none."""
    if FRAMES in node.meta:
        recorded: tuple[Frame, ...] = node.meta[FRAMES]
        return recorded
    found = [
        Frame(m["file"], int(m["line"]), m["function"])
        for m in _FRAME.finditer(node.meta.get("stack_trace") or "")
        if not m["file"].startswith("<")
    ]
    return of_the_user(found)


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
    path = _CALL.sub("", path)
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


def mutates(node: Node) -> bool:
    """Whether the node changes one of its inputs."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target._schema.is_mutable:
        return True
    return bool(batch_statistics(target, node.args, node.kwargs))


_LEARNING = {
    torch.ops.aten.batch_norm.default,
    torch.ops.aten.instance_norm.default,
    torch.ops.aten.native_batch_norm.default,
}


def batch_statistics(target: Any, args: Tree, kwargs: Tree) -> list[Any]:
    """The running statistics that an op updates although its schema does not say so."""
    if target not in _LEARNING:
        return []
    names = [argument.name for argument in target._schema.arguments]
    given = dict(kwargs) | dict(zip(names, args, strict=False))
    if not given.get("training", given.get("use_input_stats")):
        return []
    found = [given.get("running_mean"), given.get("running_var")]
    return [value for value in found if value is not None]


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an op writes to."""
    if not isinstance(func, torch._ops.OpOverload):
        return []
    found: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += pytree.tree_leaves(value)
    found += batch_statistics(func, args, kwargs)
    return [value for value in found if isinstance(value, torch.Tensor)]


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


def parameter(name: str) -> Edge:
    """The edge of a parameter, a buffer or a constant."""
    return Edge(OpKey(name), role=Role.PARAMETER)


def state_before(name: str) -> Edge:
    """The edge of what a state holds before a step; what it holds afterwards has index 0."""
    return Edge(OpKey(name), 1, Role.STATE)


class Edges:
    """Resolves the nodes of one graph to the tensors they stand for."""

    def __init__(
        self,
        parameter_names: dict[str, str],
        graph: str = "",
        inputs: Mapping[str, Edge] | None = None,
        states: Container[str] = (),
    ) -> None:
        self._parameter_names = parameter_names
        self._states = states
        """Names of those that go from step to step, and are no parameters."""
        self.graph = graph
        """Which of several graphs of a model it is; "" for the only one."""
        self._inputs = inputs or {}
        """Placeholders that are not known by their own names."""
        self._found: dict[Node, Edge | None] = {}

    def keeping(self, states: Container[str]) -> Edges:
        """The same with these as states."""
        return Edges(self._parameter_names, self.graph, self._inputs, states)

    def name(self, target: str) -> str:
        """What the parameter, buffer or constant is called that a get_attr node fetches."""
        return self._parameter_names.get(target, "")

    def key(self, name: str) -> OpKey:
        """The key of the op of that name in this graph."""
        return OpKey(name, graph=self.graph)

    def of(self, node: Node) -> Edge | None:
        """The tensor that `node` is; None where it is not one tensor."""
        if node not in self._found:
            self._found[node] = self._of(node)
        return self._found[node]

    def _of(self, node: Node) -> Edge | None:
        if node.op == "placeholder":
            return self._inputs.get(node.name, Edge(OpKey(node.name), role=Role.MODEL_INPUT))
        if node.op == "get_attr":
            name = self._parameter_names.get(str(node.target))
            if name is None:
                return None
            return state_before(name) if name in self._states else parameter(name)
        if node.op != "call_function":
            return None
        producer, positions = _unwrapped(node)
        if producer.op != "call_function":
            return None
        found = positions
        if not isinstance(found, int):
            return None
        return Edge(self.key(producer.name), index=found)

    def inputs(self, node: Node) -> tuple[Edge, ...]:
        """The tensors an op reads, in the order of its schema; one read twice is there twice."""
        found: list[Edge] = []
        for _, value in arguments(node):
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, Node) and is_tensor(leaf):
                    edge = self.of(leaf)
                    if edge is not None:
                        found.append(edge)
        return tuple(found)


def is_tensor(node: Node) -> bool:
    """Whether the node's value is a tensor, as far as the export knows."""
    if node.op == "get_attr":
        return True
    value = node.meta.get("val")
    return value is None or isinstance(value, torch.Tensor)


def _unwrapped(node: Node) -> tuple[Node, Any]:
    """The op behind a chain of getitem, and which of its flattened outputs the chain picks."""
    picks: list[Any] = []
    while node.op == "call_function" and node.target is operator.getitem:
        picks.append(node.args[1])
        inner = node.args[0]
        assert isinstance(inner, Node)
        node = inner
    positions = _positions(node)
    for pick in reversed(picks):
        positions = pick if isinstance(positions, int) else positions[pick]
    return node, positions


def _positions(node: Node) -> Tree:
    """The structure of a node's value with each leaf replaced by its flattened position."""
    leaves, spec = pytree.tree_flatten(node.meta.get("val"))
    return pytree.tree_unflatten(list(range(len(leaves))), spec)
