"""Forward hooks that record calls of an nn.Module and the modules inside it, with inputs,
parameters and edges, for `syncpoint.record`.

The hooks are the global ones of torch, filtered by module identity. So the modules stay as they
are: copies and pickles carry no hooks, and the fused encoder, which looks for hooks on its
layers, stays on. Only the root gets hooks of its own, and so do modules with hooks of the user,
which may replace outputs.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.utils.weak import WeakIdKeyDictionary

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Edge, Op, OpKey, Part, Role, TensorKey
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.inputs import named_arguments
from syncpoint.runtimes.torch.tree_paths import iterate_leaves

F = TypeVar("F", bound=Callable[..., None])


def _exclude_from_compile(hook: F) -> F:
    """Exclude a hook from torch.compile: it causes a graph break and sees real values."""
    return cast(F, torch.compiler.disable(hook))  # type: ignore[no-untyped-call]


class RecordingSink(Protocol):
    """The recording that takes ops and tensors."""

    @property
    def lock(self) -> threading.RLock:
        """Held while one op is recorded."""

    @property
    def listening(self) -> bool:
        """Whether it still records."""

    @property
    def whole(self) -> Part:
        """The part of parameters."""

    def begin(self, step: int | None) -> Part:
        """The part of a call of the root."""

    def note(self, text: str) -> None:
        """Add a note."""

    def add_op(self, op: Op, part: Part) -> OpKey:
        """Record an op."""

    def add_tensor(
        self,
        op: OpKey,
        value: Any,
        *,
        part: Part,
        role: Role = Role.OUTPUT,
        index: int = 0,
        name: str = "",
        alias_of: str = "",
    ) -> TensorKey | None:
        """Take a tensor; None where it cannot be read."""


@dataclasses.dataclass
class _RootCall:
    """One call of the root, and what was recorded of it so far."""

    part: Part
    number: int
    """Number of earlier calls of the root in the same part."""
    key_by_tensor: WeakIdKeyDictionary = dataclasses.field(default_factory=WeakIdKeyDictionary)
    """Live tensor -> the key it was last recorded under, and its version then."""
    unread: dict[OpKey, TensorKey] = dataclasses.field(default_factory=dict)
    """Ops whose outputs no later op is known to read. A tensor computed between modules comes
    from some of these, or from their inputs."""


class Attachment:
    """The hooks on one root module; in effect from construction until `detach`."""

    def __init__(self, sink: RecordingSink, root: Any, name: str, steps: bool) -> None:
        _check_module(root)
        self._sink = sink
        self._root: nn.Module = root
        self._name = name
        self._steps = steps
        self._begun_calls = 0
        self._calls_by_part: Counter[Part] = Counter()
        self._local = threading.local()
        self._paths = {id(inner): path for path, inner in root.named_modules() if path}
        self._modules = [inner for _, inner in root.named_modules()]
        """The modules must live as long as their ids are used."""
        self._parameters: dict[int, OpKey] | None = None
        """By id of the tensor; None until they are recorded."""
        self._hooked_ids = {id(m) for m in self._modules if m._forward_hooks}
        self._handles = [
            nn_module.register_module_forward_hook(self._after_any_module, with_kwargs=True),
            root.register_forward_pre_hook(_Hook(self._before_root), with_kwargs=True),
            root.register_forward_hook(_Hook(self._after_root), with_kwargs=True, always_call=True),
        ]
        for inner in self._modules[1:]:
            if id(inner) in self._hooked_ids:
                hook = _Hook(self._after_module)
                self._handles.append(inner.register_forward_hook(hook, with_kwargs=True))
        for note in _list_notes(self._modules):
            sink.note(note)

    def detach(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
            # torch does not remove this entry; compiled modules would warn of hooks.
            nn_module._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []

    @_exclude_from_compile
    def _before_root(self, module: nn.Module, args: Tree, kwargs: Tree) -> None:
        """Begin a call of the root: record its inputs and, once, the parameters."""
        if module is not self._root or not self._sink.listening or _in_backward():
            return
        with self._sink.lock:
            part = self._sink.begin(self._begun_calls if self._steps else None)
            call = _RootCall(part, self._calls_by_part[part])
            self._begun_calls += 1
            self._calls_by_part[part] += 1
            self._stack().append(call)
            self._local.last = call
            self._record_parameters()
            names = named_arguments(module, args, kwargs)
            for _, path, value in (leaf for n, v in names for leaf in iterate_leaves(v, n)):
                if isinstance(value, torch.Tensor):
                    op = OpKey(path, call.number, self._name)
                    key = self._sink.add_tensor(
                        op, value, part=part, role=Role.MODEL_INPUT, name=path
                    )
                    self._remember_key(call, value, key)

    @_exclude_from_compile
    def _after_root(self, module: nn.Module, args: Tree, kwargs: Tree, output: Tree) -> None:
        """End a call of the root; there is no output if it raised."""
        if module is not self._root or not self._stack() or _in_backward():
            return
        call = self._stack().pop()
        if not self._sink.listening or output is None:
            return
        with self._sink.lock:
            self._record(call, module, self._name or type(module).__name__, args, kwargs, output)

    @_exclude_from_compile
    def _after_any_module(self, module: nn.Module, args: Tree, kwargs: Tree, output: Tree) -> None:
        """Record a module of the root; called after any module of the process ran."""
        if id(module) in self._paths and id(module) not in self._hooked_ids:
            self._after_module(module, args, kwargs, output)

    @_exclude_from_compile
    def _after_module(self, module: nn.Module, args: Tree, kwargs: Tree, output: Tree) -> None:
        path = self._paths.get(id(module))
        if path is None or not self._sink.listening:
            return
        with self._sink.lock:
            if _in_backward():
                self._sink.note(
                    f"{path} ran again during the backward pass (checkpointing): not recorded"
                )
                return
            self._record(self._current_call(), module, path, args, kwargs, output)

    def _current_call(self) -> _RootCall:
        """The call that a module belongs to.

        A module called from outside its root, as engines do with the head, belongs to the last
        call of the root.
        """
        stack = self._stack()
        if stack:
            return stack[-1]
        last: _RootCall | None = getattr(self._local, "last", None)
        if last is None:
            last = _RootCall(
                self._sink.begin(max(self._begun_calls - 1, 0) if self._steps else None), 0
            )
            self._local.last = last
        return last

    def _stack(self) -> list[_RootCall]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[_RootCall] = self._local.stack
        return stack

    def _record(
        self, call: _RootCall, module: nn.Module, name: str, args: Tree, kwargs: Tree, output: Tree
    ) -> None:
        """Record one op, its inputs and all its output tensors."""
        is_root = module is self._root
        leaves = list(iterate_leaves(output, "out"))
        inputs, assumed = self._reads(call, module, args, kwargs, leaves)
        op = Op(
            OpKey(name, graph=self._name),
            _op_type(module),
            inputs,
            attributes={"inputs_assumed": True} if assumed else {},
            module="" if is_root else name,
            module_type=type(module).__name__,
        )
        key = self._sink.add_op(op, call.part)
        for edge in inputs:
            call.unread.pop(edge.op, None)
        role = Role.MODEL_OUTPUT if is_root else Role.OUTPUT
        for index, path, value in leaves:
            if not isinstance(value, torch.Tensor):
                if not isinstance(value, bool | int | float | str | type(None)):
                    type_name = type(value).__qualname__
                    self._sink.note(
                        f"{path} of {name} is a {type_name}: not a tensor, not recorded"
                    )
                continue
            recorded_key = self._find_unchanged(call, value)
            key_of_tensor = self._sink.add_tensor(
                key,
                value,
                part=call.part,
                role=role,
                index=index,
                name="" if path == "out" and not is_root else path,
                alias_of="" if recorded_key is None else str(recorded_key),
            )
            if key_of_tensor is not None and not is_root:
                self._remember_key(call, value, key_of_tensor)
                call.unread[key] = key_of_tensor

    def _reads(
        self,
        call: _RootCall,
        module: nn.Module,
        args: Tree,
        kwargs: Tree,
        leaves: list[tuple[int, str, Any]],
    ) -> tuple[tuple[Edge, ...], bool]:
        """The edges that an op reads, and whether some of them are assumed.

        Recorded tensors are found by identity. A tensor computed between modules may come from
        every tensor before it in this call: it gets all these edges, since the precision that an
        op is judged by follows them. A module with modules inside reads their outputs.
        """
        values = [
            v for _, _, v in iterate_leaves((args, kwargs), "") if isinstance(v, torch.Tensor)
        ]
        if next(module.children(), None) is not None:
            values += [v for _, _, v in leaves if isinstance(v, torch.Tensor)]
        edges: dict[Edge, None] = {}
        is_assumed = False
        for value in values:
            recorded_key = self._find_unchanged(call, value)
            if recorded_key is None:
                is_assumed = True
            else:
                edges[Edge(recorded_key.op, recorded_key.index, recorded_key.role)] = None
        if is_assumed:
            for key in call.unread.values():
                edges[Edge(key.op, key.index, key.role)] = None
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            parameter = (self._parameters or {}).get(id(tensor))
            if parameter is not None:
                edges[Edge(parameter, role=Role.PARAMETER)] = None
        return tuple(edges), is_assumed

    def _remember_key(self, call: _RootCall, value: torch.Tensor, key: TensorKey | None) -> None:
        version = _write_version(value)
        if key is not None and version is not None:
            call.key_by_tensor[value] = (key, version)

    def _find_unchanged(self, call: _RootCall, value: torch.Tensor) -> TensorKey | None:
        """The key of a tensor that did not change since it was recorded."""
        if value not in call.key_by_tensor:
            return None
        key, version = call.key_by_tensor[value]
        unchanged_key: TensorKey | None = key if _write_version(value) == version else None
        return unchanged_key

    def _record_parameters(self) -> None:
        if self._parameters is not None:
            return
        self._parameters = {}
        tensors = (*self._root.named_parameters(), *self._root.named_buffers())
        for name, value in tensors:
            key = OpKey(name, graph=self._name)
            if self._sink.add_tensor(key, value, part=self._sink.whole, role=Role.PARAMETER):
                self._parameters[id(value)] = key


class _Hook:
    """A hook on one module; it does nothing in copies and pickles of the module."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *args: Tree) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_ignore_call,)


def _ignore_call(*args: Tree) -> None:
    """Ignore a call; the function of a copied hook."""


def _check_module(root: object) -> None:
    if not isinstance(root, nn.Module):
        type_name = type(root).__qualname__
        raise InputError(
            f"cannot attach to a {type_name}, which is not an nn.Module",
            cure="record its tensors by name",
        )
    for path, inner in root.named_modules():
        is_compiled = getattr(inner, "_compiled_call_impl", None) is not None
        if is_compiled or hasattr(inner, "_orig_mod"):
            problem = f"{path or 'the module'} is compiled by torch.compile, which ignores hooks"
            cure = "attach to the module that was compiled, and call that one"
            raise Unsupported(
                problem,
                cure=cure,
            )


def _list_notes(modules: list[nn.Module]) -> Iterator[str]:
    if any(isinstance(inner, torch.jit.ScriptModule) for inner in modules):
        yield "the attached module holds TorchScript: ops inside it are not recorded"
    if isinstance(modules[0], nn.TransformerEncoderLayer):
        yield "recording disabled the fused path of nn.TransformerEncoderLayer"


def _op_type(module: nn.Module) -> str:
    """The class name for modules of torch, `module NAME` for others.

    The prefix keeps a user's `Add`, which may do more than add, apart from the op of that name.
    """
    kind = type(module)
    return kind.__name__ if kind.__module__.startswith("torch.nn.") else f"module {kind.__name__}"


def _write_version(value: torch.Tensor) -> int | None:
    """Number of in-place writes to a tensor; None where torch does not count them."""
    return None if value.is_inference() else value._version


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)
