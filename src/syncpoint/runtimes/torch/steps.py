"""What a model keeps from call to call: its buffers, and all else that its code writes to.

A loop of steps runs on copies of the model, so that the one given stays as it was whatever
happens: one copy makes the steps plainly, and where the model is recorded while it runs another
is recorded. The copies share the parameters, which take most of the room.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from syncpoint.errors import CaptureError
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.session import RunTotals
from syncpoint.runtimes.torch.in_place_writes import storage_of, written
from syncpoint.runtimes.torch.load_model import Subject
from syncpoint.runtimes.torch.model_tensors import identity, named_tensors, own_tensors

_DEEP = 4
"""How far into objects that are no modules it is looked for values that a call has changed."""
_MACHINERY = frozenset(vars(nn.Module()))
"""What every module has: hooks, modes, and where it keeps its tensors."""


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


@dataclass
class LoopTotals(RunTotals):
    """The totals of a run, and the loop whose steps its samples may be."""

    loop: Loop | None = None
    """None where the samples are not steps."""

    def run_next_step(
        self, subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
    ) -> None:
        """Make the next step of the loop; the first call starts the loop."""
        if self.loop is None:
            self.loop = Loop(subject, args, kwargs)
        torch.manual_seed(seed)
        self.loop.step(args, kwargs)


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
