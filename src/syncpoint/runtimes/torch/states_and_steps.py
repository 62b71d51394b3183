"""Parameters, buffers, attributes of a model: names, identity, restored after a run; steps that
pass states on (`StepLoop`: a plain and a traced model copy)."""

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
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import clone_tensor, has_same_bits
from syncpoint.runtimes.torch.in_place_writes import find_written_tensors, storage_id
from syncpoint.runtimes.torch.load_model import LoadedModel
from syncpoint.runtimes.torch.script_attributes import SavedAttributes

_MAX_DEPTH = 4
"""How deep to search objects that are not modules for values that a call changed."""

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
"""Attributes that every module has: hooks, modes, and the dicts of its tensors."""


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, under every name they have."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def tensor_identity(tensor: torch.Tensor) -> object:
    """A value that is equal for two tensors with the same memory and the same layout."""
    place = tensor.data_ptr() if tensor.layout is torch.strided and tensor.numel() else 0
    return (place, tensor.dtype, tensor.shape, tensor.stride()) if place else id(tensor)


def find_own_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of the model by their first name, with unregistered buffers."""
    tensors: dict[str, torch.Tensor] = {}
    identities: set[object] = set()
    unregistered = (
        (f"{path}.{name}" if path else name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
    )
    for name, tensor in (*named_tensors(model), *unregistered):
        if isinstance(tensor, torch.Tensor) and tensor_identity(tensor) not in identities:
            identities.add(tensor_identity(tensor))
            tensors[name] = tensor
    return tensors


@contextlib.contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore the buffers and attributes of a model after a run."""
    attribute_copies = [
        (holder, dict(holder)) for module in model.modules() for holder in _attribute_dicts(module)
    ]
    tensor_copies = [
        (tensor, tensor.detach().clone())
        for tensor in find_own_tensors(model).values()
        if not isinstance(tensor, nn.Parameter)
    ]
    script_attributes = SavedAttributes(model)
    try:
        yield
    finally:
        script_attributes.restore()
        for attributes, before in attribute_copies:
            for name in [n for n in attributes if n not in before]:
                del attributes[name]
            attributes.update({n: v for n, v in before.items() if attributes.get(n) is not v})
        for tensor, value in tensor_copies:
            if not has_same_bits(tensor, value):
                tensor.copy_(value)


def _attribute_dicts(module: nn.Module) -> list[dict[str, Any]]:
    """The dicts of a module in which code may replace values."""
    # TorchScript has no such dicts; its buffers can be written to but not replaced, and its other
    # attributes are in SavedAttributes.
    return [] if isinstance(module, ScriptModule) else [vars(module), module._buffers]


class StepLoop:
    """The steps of one run, computed by the plain model; the capture computes the same steps."""

    def __init__(
        self, loaded_model: LoadedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """`args` and `kwargs` are the inputs of the first step."""
        self._loaded_model = loaded_model
        self._shares_parameters = not _writes_to_parameters(
            _copy_model(loaded_model.plain, loaded_model), args, kwargs
        )
        self._plain = _copy_model(loaded_model.plain, loaded_model, self._shares_parameters)
        self._traced: nn.Module | None = None
        self._result: Tree = None
        self._error: Exception | None = None
        self.states: dict[str, torch.Tensor] = {}
        """The states after the last step of an exported program, by name."""
        self.written_names: set[str] = set()
        """Tensors of the model that the plain steps so far have written to."""
        self.hidden: tuple[str, ...] = ()
        """Attributes that the last plain step changed and that are not buffers of fixed shape:
        numbers, lists, growing caches. torch.export treats them as constants."""

    @property
    def traced(self) -> nn.Module:
        """The copy that is recorded while it runs; it continues from the last step."""
        if self._traced is None:
            self._traced = _copy_model(
                self._loaded_model.module, self._loaded_model, self._shares_parameters
            )
        return self._traced

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the plain model once; `result` raises its error, if any."""
        tensors_before = {
            name: (tensor, _write_version(tensor)) for name, tensor in self._own_tensors().items()
        }
        attributes_before = _snapshot_attributes(self._plain)
        self._result, self._error = None, None
        try:
            outputs = self._plain(
                *pytree.tree_map(clone_tensor, args), **pytree.tree_map(clone_tensor, kwargs)
            )
            # The next step may write to the outputs of this one.
            self._result = pytree.tree_map(clone_tensor, outputs)
        except Exception as error:
            self._error = error
        registered = {name for name, _ in named_tensors(self._plain)}
        attributes_after = _snapshot_attributes(self._plain)
        hidden = {
            n
            for n in attributes_before | attributes_after
            if attributes_before.get(n) != attributes_after.get(n)
        }
        for name, tensor in self._own_tensors().items():
            tensor_before, version = tensors_before.get(name, (None, None))
            if tensor_before is tensor and version == _write_version(tensor):
                continue
            self.written_names.add(name)
            if (
                name not in registered
                or tensor_before is None
                or not _has_same_form(tensor_before, tensor)
            ):
                hidden.add(name)
        self.hidden = tuple(sorted(hidden))

    def result(self) -> Tree:
        """The outputs of the plain model in this step; raises the error that it raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def plain_states(self) -> Mapping[str, torch.Tensor]:
        """The tensors that the plain steps wrote to."""
        return {n: t for n, t in self._own_tensors().items() if n in self.written_names}

    def traced_states(self) -> Mapping[str, torch.Tensor]:
        """The same tensors of the traced copy."""
        return {n: t for n, t in find_own_tensors(self.traced).items() if n in self.written_names}

    def _own_tensors(self) -> dict[str, torch.Tensor]:
        return find_own_tensors(self._plain)


class _ParameterGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises when an op writes to a parameter of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parameter_storages = {storage_id(parameter) for parameter in model.parameters()} - {0}
        self.write_attempted = False
        """Whether an op tried to write to a parameter."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Tree:
        if any(
            storage_id(t) in self._parameter_storages
            for t in find_written_tensors(func, args, kwargs or {})
        ):
            self.write_attempted = True
            raise RuntimeError("a write to a parameter")
        return func(*args, **(kwargs or {}))


def _writes_to_parameters(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes to parameters: copies then cannot share them with the model."""
    guard = _ParameterGuard(model)
    # The step raises any other error again.
    with contextlib.suppress(Exception), guard:
        model(*pytree.tree_map(clone_tensor, args), **pytree.tree_map(clone_tensor, kwargs))
    return guard.write_attempted


def _copy_model(model: nn.Module, loaded_model: LoadedModel, shares: bool = True) -> nn.Module:
    shared = {id(parameter): parameter for parameter in model.parameters()} if shares else {}
    try:
        return copy.deepcopy(model, shared)
    except Exception as error:
        raise CaptureError(
            f"running the steps needs a copy of {loaded_model.title}, because they change it, but"
            f" copying it raised {one_line(error)}",
            cure="give it as an exported program",
        ) from error


def _has_same_form(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype


def _write_version(tensor: torch.Tensor) -> object:
    """A version that differs after every write."""
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode: writes are not counted
        return tensor.detach().clone().reshape(-1).tolist()


def _snapshot_attributes(model: nn.Module) -> dict[str, Any]:
    """The attributes of all modules that are not tensors, in a comparable form."""
    return {
        f"{path}.{name}" if path else name: _snapshot_value(value, _MAX_DEPTH)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _MODULE_ATTRIBUTES and not isinstance(value, (torch.Tensor, nn.Module))
    }


def _snapshot_value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, torch.Tensor):
        return (tensor_identity(value), _write_version(value))
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, nn.Module) or callable(value) or not depth:
        return type(value).__qualname__
    if isinstance(value, Mapping):
        return [(repr(key), _snapshot_value(element, depth - 1)) for key, element in value.items()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_snapshot_value(element, depth - 1) for element in value]
    return [(n, _snapshot_value(v, depth - 1)) for n, v in getattr(value, "__dict__", {}).items()]
