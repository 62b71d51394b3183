"""Executions of a compiled model in which buffers get other values than its kernels computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syncpoint.run.model import Edge, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.capture import Buffers
from syncpoint.runtimes.inductor.graph_calls import GraphCall, Watch, Watched
from syncpoint.runtimes.protocol import Array, Replacement, Tree
from syncpoint.runtimes.torch.arrays import to_torch


class Replay(Buffers):
    """Buffers that get other values as soon as they are recorded."""

    def __init__(self, watched: Watched, recorder: Recorder, value: Replacement) -> None:
        super().__init__(watched, recorder)
        self._value = value

    def recorded(self, edge: Edge, value: torch.Tensor) -> None:
        """Put a value into the live buffer, before any later kernel reads it."""
        super().recorded(edge, value)
        key = TensorKey(edge.op, edge.role, edge.index, self.recorder.part)
        wanted = self._value(key, tuple(value.shape))
        if wanted is not None:
            put(value, wanted)


class Replacing(Watch):
    """An execution in which one buffer holds another value."""

    def __init__(self, watched: Watched, key: TensorKey | None, value: Array | None) -> None:
        super().__init__(watched)
        self._key = key
        self._value = value

    def execute(self, call: GraphCall) -> Tree:
        """Run one graph."""
        from torch._inductor.hooks import intermediate_hook

        def seen(name: str, value: Any) -> None:
            here = self._key is not None and call.program.edges.key(name) == self._key.op
            if here and self._value is not None:
                put(value, self._value)

        with intermediate_hook(seen):
            return call.graph.code(call.inputs)


def put(live: torch.Tensor, wanted: Array) -> None:
    """Overwrite a live tensor."""
    made = to_torch(np.ascontiguousarray(wanted)).to(live.dtype)
    live.copy_(made.reshape(live.shape))
