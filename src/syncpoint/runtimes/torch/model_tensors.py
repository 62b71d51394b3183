"""The tensors of a model by name, and how to restore them after a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.jit import ScriptModule

from syncpoint.runtimes.torch.arrays import has_same_bits


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
    try:
        yield
    finally:
        for attributes, before in attribute_copies:
            for name in [n for n in attributes if n not in before]:
                del attributes[name]
            attributes.update({n: v for n, v in before.items() if attributes.get(n) is not v})
        for tensor, value in tensor_copies:
            if not has_same_bits(tensor, value):
                tensor.copy_(value)


def _attribute_dicts(module: nn.Module) -> list[dict[str, Any]]:
    """The dicts of a module in which code may replace values."""
    # TorchScript has no such dicts; its buffers can be written to but not replaced.
    return [] if isinstance(module, ScriptModule) else [vars(module), module._buffers]
