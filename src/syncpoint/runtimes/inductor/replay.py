"""Capture classes that replace all buffers of a compiled model, or one of them, while it runs;
overwrite a tensor in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syncpoint.run.model import Edge, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.capture import BufferCapture
from syncpoint.runtimes.inductor.graph import GraphCall, GraphWatch, WatchedModel
from syncpoint.runtimes.protocol import Array, Replacement, Tree
from syncpoint.runtimes.torch.arrays import to_torch


class BufferReplay(BufferCapture):
    """A capture in which each buffer is recorded and then replaced."""

    def __init__(self, watched: WatchedModel, recorder: Recorder, value: Replacement) -> None:
        super().__init__(watched, recorder)
        self._value = value

    def on_buffer_recorded(self, edge: Edge, value: torch.Tensor) -> None:
        """Overwrite the live buffer before a later kernel reads it."""
        super().on_buffer_recorded(edge, value)
        key = TensorKey(edge.op, edge.role, edge.index, self.recorder.part)
        new_value = self._value(key, tuple(value.shape))
        if new_value is not None:
            overwrite(value, new_value)


class ValueReplacement(GraphWatch):
    """An execution in which one buffer is replaced."""

    def __init__(self, watched: WatchedModel, key: TensorKey | None, value: Array | None) -> None:
        super().__init__(watched)
        self._key = key
        self._new_value = value

    def execute(self, call: GraphCall) -> Tree:
        """Run one graph with the buffer replaced."""
        from torch._inductor.hooks import intermediate_hook

        def replace_buffer(name: str, value: Any) -> None:
            is_target = self._key is not None and call.program.edges.op_key(name) == self._key.op
            if is_target and self._new_value is not None:
                overwrite(value, self._new_value)

        with intermediate_hook(replace_buffer):
            return call.graph.code(call.inputs)


def overwrite(live: torch.Tensor, new_value: Array) -> None:
    """Overwrite a live tensor with a new value."""
    tensor = to_torch(np.ascontiguousarray(new_value)).to(live.dtype)
    live.copy_(tensor.reshape(live.shape))
