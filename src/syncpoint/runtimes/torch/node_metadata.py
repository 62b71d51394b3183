"""Describe an FX node or an op being called: module, source lines, op type, arguments as JSON,
whether it is random or uninitialised."""

from __future__ import annotations

import math
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree as pytree

from syncpoint.run.model import Frame, Op, OpKey
from syncpoint.runtimes.parse_stack_trace import parse_frames, strip_call_number
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name

FRAMES = "syncpoint_frames"
"""Key in the meta of a node: its source stack, if it was recorded while the model ran."""
_TORCH_FOLDER = str(Path(torch.__file__).parent) + "/"
_DYNAMO_LOCAL = re.compile(r"^(?:L\['\w+'\]|L__self__|L__fn__)")
"""The prefix that dynamo gives to the traced object."""
_GETATTR = re.compile(r"getattr\((?P<of>[^()]*), '(?P<name>[^']*)'\)")
_ITEM = re.compile(r"\['?([^\]']*)'?\]")

_OWN_FOLDER = str(Path(__file__).parent) + "/"


def find_source_frames(node: Node) -> tuple[Frame, ...]:
    """The user's lines that made the node, innermost last; those of torch if there are none."""
    if FRAMES in node.meta:
        recorded: tuple[Frame, ...] = node.meta[FRAMES]
        return recorded
    return select_user_frames(parse_frames(node.meta.get("stack_trace") or ""))


def select_user_frames(stack: list[Frame]) -> tuple[Frame, ...]:
    """The frames outside torch; all frames where every frame is in torch."""
    users = [frame for frame in stack if not _is_torch_file(frame.file)]
    return tuple(users or stack)


def _is_torch_file(file: str) -> bool:
    # The path may come from another machine.
    return file.startswith(_TORCH_FOLDER) or "/site-packages/torch/" in file


def find_ancestors(node: Node) -> tuple[str, ...]:
    """Names of the nodes of earlier graphs that this one was made from, nearest first."""
    names: dict[str, None] = {}
    pending = list(node.meta.get("from_node") or ())
    while pending:
        source = pending.pop(0)
        if getattr(source, "name", ""):
            names[source.name] = None
        pending += getattr(source, "from_node", None) or ()
    return tuple(names)


def find_module(node: Node) -> tuple[str, str]:
    """Dotted path and class name of the innermost module the node was made in."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return "", ""
    path, class_or_name = list(stack.values())[-1]
    name = class_or_name if isinstance(class_or_name, str) else class_or_name.__qualname__
    return _to_dotted_path(path), name.rpartition(".")[2]


def _to_dotted_path(path: str) -> str:
    """Convert paths such as `L['self'].layers[0]` and `layers.0@1` to `layers.0`."""
    path = strip_call_number(path)
    while (changed := _GETATTR.sub(r"\g<of>.\g<name>", path)) != path:
        path = changed
    path = _DYNAMO_LOCAL.sub("", path).replace("._modules[", "[")
    return _ITEM.sub(r".\1", path).strip(".")


def is_op(node: Node) -> bool:
    """Whether the node computes something; the checks that torch adds to a graph do not."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    schema = node.target._schema
    return bool(schema.returns) or schema.is_mutable


def is_random(node: Node) -> bool:
    """Whether the node draws random numbers with its present arguments."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    argument_values = dict(list_arguments(node))
    for name in ("train", "training"):
        if argument_values.get(name) is False:
            return False
    return not any(argument_values.get(name) == 0 for name in ("p", "dropout_p", "dropout"))


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
    """Whether the node returns uninitialised memory."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.name in _UNINITIALISED


def list_arguments(node: Node) -> Iterator[tuple[str, Any]]:
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


def collect_attributes(node: Node, value_of: Callable[[Node], Any]) -> dict[str, Any]:
    """The non-tensor arguments by name; `value_of` returns the number of a scalar node."""

    def resolve(value: Tree) -> Tree:
        return value_of(value) if isinstance(value, Node) else value

    attributes = {}
    for name, value in list_arguments(node):
        if value is None:
            continue
        resolved = pytree.tree_map(resolve, value)
        leaves = [resolved] if isinstance(resolved, Node) else pytree.tree_leaves(resolved)
        if any(not isinstance(leaf, (torch.Tensor, Node)) for leaf in leaves):
            attributes[name] = to_json_value(resolved)
    return attributes


def op_type(node: Node) -> str:
    """The op type as torch names it: `aten.linear.default`."""
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return str(target)
    return getattr(target, "__name__", str(target))


def to_json_value(value: Tree) -> Tree:
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
        return [to_json_value(element) for element in value]
    if isinstance(value, dict):
        return {str(key): to_json_value(element) for key, element in value.items()}
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (torch.Tensor, Node)):
        return "tensor"
    return str(value).removeprefix("torch.")


def is_tensor(node: Node) -> bool:
    """Whether the value of the node is a tensor, as far as its metadata tells."""
    if node.op == "get_attr":
        return True
    value = node.meta.get("val")
    return value is None or isinstance(value, torch.Tensor)


AUTOCAST = "syncpoint_autocast"
"""Key in the meta of a node: the arguments of the autocast that it ran under."""


def describe_op(node: Node, originals: tuple[str, ...] = ()) -> Op:
    """The op of a node, from its metadata, without inputs and attributes."""
    module, module_type = find_module(node)
    return Op(
        OpKey(node.name),
        op_type(node),
        module=module,
        module_type=module_type,
        source=find_source_frames(node),
        origins=tuple(dict.fromkeys((node.name, *originals, *find_ancestors(node)))),
        random=is_random(node) or is_uninitialised(node),
    )


def fetch_attribute(module: torch.nn.Module, target: str) -> Tree:
    """Fetch the value of a get_attr node."""
    value: Any = module
    for name in target.split("."):
        value = getattr(value, name)
    return value


class ModuleStack:
    """The modules that are being called, in the thread that entered this object.

    It uses the global hooks of torch: a module with hooks of its own does not take fused paths.
    """

    def __init__(self, model: nn.Module) -> None:
        self._module_by_id = {id(m): (name, class_name(m)) for name, m in model.named_modules()}
        self._stack: list[tuple[str, str]] = []
        self._handles: list[Any] = []
        self._thread = 0

    @property
    def current(self) -> tuple[str, str]:
        """Dotted path and class name of the innermost module.

        A module without a name in the model counts as part of the module that calls it.
        """
        return self._stack[-1] if self._stack else ("", "")

    def __enter__(self) -> ModuleStack:
        self._thread = threading.get_ident()
        self._handles = [
            register_module_forward_pre_hook(self._on_enter),
            register_module_forward_hook(self._on_leave, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _on_enter(self, module: nn.Module, _: object) -> None:
        if threading.get_ident() == self._thread:
            self._stack.append(self._module_by_id.get(id(module), self.current))

    def _on_leave(self, _module: nn.Module, _args: object, _result: object) -> None:
        if threading.get_ident() == self._thread and self._stack:
            self._stack.pop()


def class_name(module: nn.Module) -> str:
    """The class name of a module; for TorchScript that of the original class."""
    return getattr(module, "original_name", None) or type(module).__name__


CallSite = tuple[tuple[Frame, ...], tuple[str, str] | None]
"""Source stack, and path and class of the module where the stack shows them."""
StackReader = Callable[[CodeType], CallSite]
"""Reads the stack of the op about to run, inside the call of the given code."""


def read_python_stack(outer_code: CodeType) -> CallSite:
    """The Python lines being executed inside `outer_code`, innermost last; without modules."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not outer_code:
        code = frame.f_code
        if not code.co_filename.startswith(("<", _OWN_FOLDER)):
            frames.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return select_user_frames(frames[::-1]), None
