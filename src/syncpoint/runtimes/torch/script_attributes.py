"""Tensors that TorchScript keeps as plain attributes from call to call: which a model writes, and
their values before and after a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.jit import ScriptModule

from syncpoint.runtimes.torch.arrays import has_same_bits


def written_attributes(model: nn.Module) -> Iterator[tuple[str, ScriptModule, str]]:
    """The path, the module and the name of each attribute that a method of the model writes.

    TorchScript lists neither its attributes nor their values; the code of its methods names them.
    """
    modules = [(path, m) for path, m in model.named_modules() if isinstance(m, ScriptModule)]
    names = {
        node.s("name")
        for _, module in modules
        for method in module._c._method_names()
        for node in module._c._get_method(method).graph.findAllNodes("prim::SetAttr")
    }
    for path, module in modules:
        for name in sorted(names):
            if module._c.hasattr(name):
                yield f"{path}.{name}" if path else name, module, name


def find_attribute_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors in attributes that the model writes, by path."""
    tensors = {}
    for path, module, name in written_attributes(model):
        value = module._c.getattr(name)
        if isinstance(value, torch.Tensor):
            tensors[path] = value
    return tensors


class SavedAttributes:
    """The attributes that a model writes, to be restored after a run."""

    def __init__(self, model: nn.Module) -> None:
        self._saved: list[tuple[ScriptModule, str, Any]] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        for _, module, name in written_attributes(model):
            value = module._c.getattr(name)
            if isinstance(value, torch.Tensor):
                self._tensors.append((value, value.detach().clone()))
            elif isinstance(value, list | dict):
                value = copy.deepcopy(value)
            self._saved.append((module, name, value))

    def restore(self) -> None:
        """Give the attributes the values that they had."""
        for tensor, before in self._tensors:
            if not has_same_bits(tensor, before):
                tensor.detach().copy_(before)
        for module, name, value in self._saved:
            module._c.setattr(name, value)
