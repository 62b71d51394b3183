"""Listens to the calls of an nn.Module and of the modules inside it, and records what they give.

The hooks are those torch has for all modules together, filtered by identity: the modules stay as
they are, so that copies and pickles of them carry nothing along, and the fused encoder, which
looks for hooks on its layers, is not switched off. Only the root, and modules that have hooks of
the user's which may replace their outputs, get hooks of their own.
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
from syncpoint.runtimes.torch.tree_paths import leaves_of

F = TypeVar("F", bound=Callable[..., None])


def _never_compiled(hook: F) -> F:
    """Inside what torch.compile traces, a hook is a break: it sees the values there are."""
    return cast(F, torch.compiler.disable(hook))  # type: ignore[no-untyped-call]


class Sink(Protocol):
    """What takes the ops and tensors: a recording."""

    @property
    def lock(self) -> threading.RLock:
        """Held while one op is recorded."""

    @property
    def listening(self) -> bool:
        """Whether it still takes anything."""

    @property
    def whole(self) -> Part:
        """The part of parameters."""

    def begin(self, step: int | None) -> Part:
        """The part of a call of the root."""

    def note(self, text: str) -> None:
        """Take a remark."""

    def add_op(self, op: Op, part: Part) -> OpKey:
        """Take an op."""

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
class _Call:
    """One call of the root: what of it has been recorded so far."""

    part: Part
    number: int
    """How many calls of the root there were before it in the same part."""
    made: WeakIdKeyDictionary = dataclasses.field(default_factory=WeakIdKeyDictionary)
    """Live tensor -> the key it was recorded under last, and its version then."""
    unread: dict[OpKey, TensorKey] = dataclasses.field(default_factory=dict)
    """Ops whose outputs no later op is known to read: a tensor that was made between modules
    comes from some of these, or from what they read."""


class Attachment:
    """The hooks on one root module; in effect from construction until `detach`."""

    def __init__(self, sink: Sink, root: Any, name: str, steps: bool) -> None:
        _check(root)
        self._sink = sink
        self._root: nn.Module = root
        self._name = name
        self._steps = steps
        self._begun = 0
        self._calls_in: Counter[Part] = Counter()
        self._local = threading.local()
        self._paths = {id(inner): path for path, inner in root.named_modules() if path}
        self._keep = [inner for _, inner in root.named_modules()]
        """The modules must live as long as their ids are used."""
        self._parameters: dict[int, OpKey] | None = None
        """By id of the tensor; known once they are recorded."""
        self._own = {id(m) for m in self._keep if m._forward_hooks}
        self._handles = [
            nn_module.register_module_forward_hook(self._seen_by_all, with_kwargs=True),
            root.register_forward_pre_hook(_Hook(self._entered), with_kwargs=True),
            root.register_forward_hook(_Hook(self._left), with_kwargs=True, always_call=True),
        ]
        for inner in self._keep[1:]:
            if id(inner) in self._own:
                hook = _Hook(self._seen)
                self._handles.append(inner.register_forward_hook(hook, with_kwargs=True))
        for note in _notes(self._keep):
            sink.note(note)

    def detach(self) -> None:
        """Stop listening; the modules are as they were."""
        for handle in self._handles:
            handle.remove()
            # torch forgets this one; left behind, compiled modules warn of hooks for ever.
            nn_module._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []

    @_never_compiled
    def _entered(self, module: nn.Module, args: Tree, kwargs: Tree) -> None:
        """Before the root runs: a new step, its inputs, and once the parameters."""
        if module is not self._root or not self._sink.listening or _in_backward():
            return
        with self._sink.lock:
            part = self._sink.begin(self._begun if self._steps else None)
            call = _Call(part, self._calls_in[part])
            self._begun += 1
            self._calls_in[part] += 1
            self._stack().append(call)
            self._local.last = call
            self._record_parameters()
            names = named_arguments(module, args, kwargs)
            for _, path, value in (leaf for n, v in names for leaf in leaves_of(v, n)):
                if isinstance(value, torch.Tensor):
                    op = OpKey(path, call.number, self._name)
                    key = self._sink.add_tensor(
                        op, value, part=part, role=Role.MODEL_INPUT, name=path
                    )
                    self._remember(call, value, key)

    @_never_compiled
    def _left(self, module: nn.Module, args: Tree, kwargs: Tree, output: Tree) -> None:
        """After the root ran, or raised: then there is no output."""
        if module is not self._root or not self._stack() or _in_backward():
            return
        call = self._stack().pop()
        if not self._sink.listening or output is None:
            return
        with self._sink.lock:
            self._record(call, module, self._name or type(module).__name__, args, kwargs, output)

    @_never_compiled
    def _seen_by_all(self, module: nn.Module, args: Tree, kwargs: Tree, output: Tree) -> None:
        """After any module of the process ran."""
        if id(module) in self._paths and id(module) not in self._own:
            self._seen(module, args, kwargs, output)

    @_never_compiled
    def _seen(self, module: nn.Module, args: Tree, kwargs: Tree, output: Tree) -> None:
        path = self._paths.get(id(module))
        if path is None or not self._sink.listening:
            return
        with self._sink.lock:
            if _in_backward():
                self._sink.note(
                    f"{path} ran again during the backward pass (checkpointing): not recorded"
                )
                return
            self._record(self._current(), module, path, args, kwargs, output)

    def _current(self) -> _Call:
        """The call that a module belongs to; one that is called from outside its root, as
        engines do with the head, belongs to the last call of the root."""
        stack = self._stack()
        if stack:
            return stack[-1]
        last: _Call | None = getattr(self._local, "last", None)
        if last is None:
            last = _Call(self._sink.begin(max(self._begun - 1, 0) if self._steps else None), 0)
            self._local.last = last
        return last

    def _stack(self) -> list[_Call]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        found: list[_Call] = self._local.stack
        return found

    def _record(
        self, call: _Call, module: nn.Module, name: str, args: Tree, kwargs: Tree, output: Tree
    ) -> None:
        """One op, what it read and all tensors it gave."""
        is_root = module is self._root
        leaves = list(leaves_of(output, "out"))
        reads, assumed = self._reads(call, module, args, kwargs, leaves)
        op = Op(
            OpKey(name, graph=self._name),
            _type_of(module),
            reads,
            attributes={"inputs_assumed": True} if assumed else {},
            module="" if is_root else name,
            module_type=type(module).__name__,
        )
        key = self._sink.add_op(op, call.part)
        for edge in reads:
            call.unread.pop(edge.op, None)
        role = Role.MODEL_OUTPUT if is_root else Role.OUTPUT
        for index, path, value in leaves:
            if not isinstance(value, torch.Tensor):
                if not isinstance(value, bool | int | float | str | type(None)):
                    kind = type(value).__qualname__
                    self._sink.note(f"{path} of {name} is a {kind}: no tensor, not recorded")
                continue
            known = self._known(call, value)
            made = self._sink.add_tensor(
                key,
                value,
                part=call.part,
                role=role,
                index=index,
                name="" if path == "out" and not is_root else path,
                alias_of="" if known is None else str(known),
            )
            if made is not None and not is_root:
                self._remember(call, value, made)
                call.unread[key] = made

    def _reads(
        self,
        call: _Call,
        module: nn.Module,
        args: Tree,
        kwargs: Tree,
        leaves: list[tuple[int, str, Any]],
    ) -> tuple[tuple[Edge, ...], bool]:
        """What an op reads, and whether that is partly assumed.

        What is known is known by identity. A tensor made between modules may come from all that
        was made before it in this call: too much rather than too little, since the precision an
        op is judged by follows these edges. A module that has modules inside reads what they
        gave.
        """
        values = [v for _, _, v in leaves_of((args, kwargs), "") if isinstance(v, torch.Tensor)]
        if next(module.children(), None) is not None:
            values += [v for _, _, v in leaves if isinstance(v, torch.Tensor)]
        found: dict[Edge, None] = {}
        assumed = False
        for value in values:
            known = self._known(call, value)
            if known is None:
                assumed = True
            else:
                found[Edge(known.op, known.index, known.role)] = None
        if assumed:
            for key in call.unread.values():
                found[Edge(key.op, key.index, key.role)] = None
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            parameter = (self._parameters or {}).get(id(tensor))
            if parameter is not None:
                found[Edge(parameter, role=Role.PARAMETER)] = None
        return tuple(found), assumed

    def _remember(self, call: _Call, value: torch.Tensor, key: TensorKey | None) -> None:
        version = _version(value)
        if key is not None and version is not None:
            call.made[value] = (key, version)

    def _known(self, call: _Call, value: torch.Tensor) -> TensorKey | None:
        """The key of a tensor that is as it was when it was recorded."""
        if value not in call.made:
            return None
        key, version = call.made[value]
        found: TensorKey | None = key if _version(value) == version else None
        return found

    def _record_parameters(self) -> None:
        if self._parameters is not None:
            return
        self._parameters = {}
        named = (*self._root.named_parameters(), *self._root.named_buffers())
        for name, value in named:
            key = OpKey(name, graph=self._name)
            if self._sink.add_tensor(key, value, part=self._sink.whole, role=Role.PARAMETER):
                self._parameters[id(value)] = key


class _Hook:
    """A hook on one module. Copies and pickles of the module have one that does nothing."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *args: Tree) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_nothing,)


def _nothing(*args: Tree) -> None:
    """What a copied hook does."""


def _check(root: object) -> None:
    if not isinstance(root, nn.Module):
        kind = type(root).__qualname__
        raise InputError("an nn.Module to attach to", f"a {kind}", "record its tensors by name")
    for path, inner in root.named_modules():
        compiled = getattr(inner, "_compiled_call_impl", None) is not None
        if compiled or hasattr(inner, "_orig_mod"):
            where = f"{path or 'it'} compiled by torch.compile, which passes over hooks"
            cure = "attach to the module that was compiled, and call that one"
            raise Unsupported("a module that runs eagerly", where, cure)


def _notes(modules: list[nn.Module]) -> Iterator[str]:
    if any(isinstance(inner, torch.jit.ScriptModule) for inner in modules):
        yield "there is TorchScript in the attached module: what runs inside it is not seen"
    if isinstance(modules[0], nn.TransformerEncoderLayer):
        yield "recording switched off the fused path of nn.TransformerEncoderLayer"


def _type_of(module: nn.Module) -> str:
    """torch's own modules by their name; others so that they are not taken for an op of the same
    name, which does less: a user's `Add` may do more than add."""
    kind = type(module)
    return kind.__name__ if kind.__module__.startswith("torch.nn.") else f"module {kind.__name__}"


def _version(value: torch.Tensor) -> int | None:
    """How often a tensor was written in place; None where torch does not count that."""
    return None if value.is_inference() else value._version


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)
