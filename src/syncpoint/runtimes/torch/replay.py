"""Replay a program node by node: record each output, then replace it by another value."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from syncpoint.run.model import OpKey, Part, Role, TensorKey
from syncpoint.runtimes.protocol import Replacement, Tree
from syncpoint.runtimes.torch.capture import NodeCapture


class NodeReplay(NodeCapture):
    """A capture in which each output is recorded and then replaced.

    Values inside sub-graphs are not replaced.
    """

    def __init__(self, *capture_args: Any, value: Replacement, part: Part, **options: Any) -> None:
        super().__init__(*capture_args, **options)
        self._value = value
        self._part = part

    def _replace_output(self, key: OpKey, output: Tree) -> Tree:
        leaves, spec = pytree.tree_flatten(output)
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            new_value = self._value(
                TensorKey(key, Role.OUTPUT, index, self._part), tuple(leaf.shape)
            )
            if new_value is not None:
                # Dtypes unknown to NumPy are converted through float32, which holds all of them.
                array = (
                    new_value if new_value.dtype.kind in "biufc" else new_value.astype(np.float32)
                )
                tensor = torch.from_numpy(np.array(array)).reshape(leaf.shape)
                leaves[index] = tensor.to(leaf.device, leaf.dtype)
        return pytree.tree_unflatten(leaves, spec)
