"""What a model keeps from call to call: its buffers, and all else that its code writes to.

A loop of steps runs on copies of the model, so that the one given stays as it was whatever
happens: one copy makes the steps plainly, and where the model is recorded while it runs another
is recorded. The copies share the parameters, which take most of the room.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.jit import ScriptModule
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from syncpoint.errors import CaptureError
from syncpoint.runtimes.import_path import one_line
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import same_bits
from syncpoint.runtimes.torch.in_place_writes import storage_of
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.node_metadata import written
from syncpoint.runtimes.torch.program import identity, named_tensors

_DEEP = 4
"""How far into objects that are no modules it is looked for values that a call has changed."""
_MACHINERY = frozenset(vars(nn.Module()))
"""What every module has: hooks, modes, and where it keeps its tensors."""


def own_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors that the model has, by their first name; buffers that are not registered too."""
    found: dict[str, torch.Tensor] = {}
    seen: set[object] = set()
    plain = (
        (f"{path}.{name}" if path else name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
    )
    for name, tensor in (*named_tensors(model), *plain):
        if isinstance(tensor, torch.Tensor) and identity(tensor) not in seen:
            seen.add(identity(tensor))
            found[name] = tensor
    return found


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Undo what a run does to the buffers and attributes of a model."""
    kept = [(holder, dict(holder)) for module in model.modules() for holder in _holders(module)]
    values = [
        (tensor, tensor.detach().clone())
        for tensor in own_tensors(model).values()
        if not isinstance(tensor, nn.Parameter)
    ]
    try:
        yield
    finally:
        for holder, before in kept:
            for name in [n for n in holder if n not in before]:
                del holder[name]
            holder.update({n: v for n, v in before.items() if holder.get(n) is not v})
        for tensor, value in values:
            if not same_bits(tensor, value):
                tensor.copy_(value)


def _holders(module: nn.Module) -> list[dict[str, Any]]:
    """Where a module keeps what code may put something else in the place of."""
    # Those of a script are no dicts; its buffers can be written to but not exchanged.
    return [] if isinstance(module, ScriptModule) else [vars(module), module._buffers]


class Loop:
    """The steps of one run, made by the plain model; what is captured makes the same ones."""

    def __init__(self, subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The inputs are those of the first step."""
        self._subject = subject
        self._shares = not _writes_to_parameters(_copied(subject.plain, subject), args, kwargs)
        self._plain = _copied(subject.plain, subject, self._shares)
        self._traced: nn.Module | None = None
        self._result: Tree = None
        self._error: Exception | None = None
        self.states: dict[str, torch.Tensor] = {}
        """What the steps of an exported program have left so far, by name."""
        self.written: set[str] = set()
        """Tensors of the model that the plain steps so far have written to."""
        self.hidden: tuple[str, ...] = ()
        """What the last plain step changed that is no buffer of one form: numbers and lists of
        the code, caches that grow. An export takes them for constants."""

    @property
    def traced(self) -> nn.Module:
        """The copy that is recorded while it runs; it goes on where the last step left it."""
        if self._traced is None:
            self._traced = _copied(self._subject.module, self._subject, self._shares)
        return self._traced

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the plain model once; what it raises is kept for who asks for the result."""
        before = {name: (tensor, _version(tensor)) for name, tensor in self._own().items()}
        told = _told(self._plain)
        self._result, self._error = None, None
        try:
            found = self._plain(*pytree.tree_map(_own, args), **pytree.tree_map(_own, kwargs))
            # The next step may write to what this one gave.
            self._result = pytree.tree_map(_own, found)
        except Exception as error:
            self._error = error
        registered = {name for name, _ in named_tensors(self._plain)}
        after = _told(self._plain)
        hidden = {n for n in told | after if told.get(n) != after.get(n)}
        for name, tensor in self._own().items():
            known, version = before.get(name, (None, None))
            if known is tensor and version == _version(tensor):
                continue
            self.written.add(name)
            if name not in registered or known is None or not _alike(known, tensor):
                hidden.add(name)
        self.hidden = tuple(sorted(hidden))

    def result(self) -> Tree:
        """What the plain model gave in this step, or the error it raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def left(self) -> Mapping[str, torch.Tensor]:
        """What the plain steps have left in the tensors they wrote to."""
        return {n: t for n, t in self._own().items() if n in self.written}

    def left_traced(self) -> Mapping[str, torch.Tensor]:
        """The same of the copy that is recorded."""
        return {n: t for n, t in own_tensors(self.traced).items() if n in self.written}

    def _own(self) -> dict[str, torch.Tensor]:
        return own_tensors(self._plain)


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets nothing be written to the parameters of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._guarded = {storage_of(parameter) for parameter in model.parameters()} - {0}
        self.wanted = False
        """Whether anything was to be."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Tree:
        if any(storage_of(t) in self._guarded for t in written(func, args, kwargs or {})):
            self.wanted = True
            raise RuntimeError("a write to a parameter")
        return func(*args, **(kwargs or {}))


def _writes_to_parameters(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call would change parameters, which copies then cannot share with the model."""
    guard = _Guard(model)
    # What else is raised here the step raises again.
    with contextlib.suppress(Exception), guard:
        model(*pytree.tree_map(_own, args), **pytree.tree_map(_own, kwargs))
    return guard.wanted


def _copied(model: nn.Module, subject: Subject, shares: bool = True) -> nn.Module:
    shared = {id(parameter): parameter for parameter in model.parameters()} if shares else {}
    try:
        return copy.deepcopy(model, shared)
    except Exception as error:
        raise CaptureError(
            f"{subject.title} to be copied, since steps write to the model",
            f"it raised {one_line(error)}",
            "give it as an exported program",
        ) from error


def _own(value: Tree) -> Tree:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _version(tensor: torch.Tensor) -> object:
    """Another one after every write."""
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode: nothing is counted
        return tensor.detach().clone().reshape(-1).tolist()


def _told(model: nn.Module) -> dict[str, Any]:
    """The attributes of all modules that are no tensors of theirs, in a form to be compared."""
    return {
        f"{path}.{name}" if path else name: _described(value, _DEEP)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _MACHINERY and not isinstance(value, (torch.Tensor, nn.Module))
    }


def _described(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, torch.Tensor):
        return (identity(value), _version(value))
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, nn.Module) or callable(value) or not depth:
        return type(value).__qualname__
    if isinstance(value, Mapping):
        return [(repr(key), _described(item, depth - 1)) for key, item in value.items()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_described(item, depth - 1) for item in value]
    return [(n, _described(v, depth - 1)) for n, v in getattr(value, "__dict__", {}).items()]
