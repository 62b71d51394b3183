"""A program node by node, on values that may be others than its predecessors gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from syncpoint.run.model import OpKey, Part, Role, TensorKey
from syncpoint.runtimes.protocol import Array, Tree
from syncpoint.runtimes.torch.capture import NodeCapture

Value = Callable[[TensorKey, tuple[int, ...]], Array | None]


class NodeReplay(NodeCapture):
    """An execution whose values are recorded and then replaced.

    What is inside a sub-graph keeps its own values.
    """

    def __init__(self, *given: Any, value: Value, part: Part, **options: Any) -> None:
        super().__init__(*given, **options)
        self._value = value
        self._part = part

    def _replace_output(self, key: OpKey, result: Tree) -> Tree:
        leaves, form = pytree.tree_flatten(result)
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            wanted = self._value(TensorKey(key, Role.OUTPUT, index, self._part), tuple(leaf.shape))
            if wanted is not None:
                # Types that NumPy has no name for pass through float32, which holds them all.
                plain = wanted if wanted.dtype.kind in "biufc" else wanted.astype(np.float32)
                made = torch.from_numpy(np.array(plain)).reshape(leaf.shape)
                leaves[index] = made.to(leaf.device, leaf.dtype)
        return pytree.tree_unflatten(leaves, form)
