"""The tensors that a model has, by name, and how to restore them after a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.jit import ScriptModule

from syncpoint.runtimes.torch.arrays import same_bits


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, under every name they have."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def identity(tensor: torch.Tensor) -> object:
    """Equal for two tensors that are the same memory seen in the same way."""
    place = tensor.data_ptr() if tensor.layout is torch.strided and tensor.numel() else 0
    return (place, tensor.dtype, tensor.shape, tensor.stride()) if place else id(tensor)


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
