"""Track in-place writes: which tensors an op writes (batch norm too), id of a tensor's memory to
recognise aliases, which recorded value it holds.

A model that writes in place changes every tensor that shares the memory. An op that reads such a
tensor later reads another value than the recorded one, and a region evaluated on the recorded
value would blame the op. So writes are counted for each storage. A tensor that is read after a
write to its memory is recorded again, as the output of the op `syncpoint.reread`, whose inputs
are the old value and the written values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from syncpoint.runtimes.protocol import Tree


@dataclass(frozen=True)
class StorageRegion:
    """The elements of a storage that a tensor consists of."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @staticmethod
    def of(tensor: torch.Tensor) -> StorageRegion:
        """The region of a tensor in its storage."""
        return StorageRegion(
            tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
        )

    @property
    def end(self) -> int:
        """One past the last element."""
        if 0 in self.shape:
            return self.offset
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((n - 1) * s for n, s in pairs)

    def may_overlap(self, other: StorageRegion) -> bool:
        """Whether the two regions may have elements in common."""
        if self.dtype != other.dtype:
            return True
        return self.offset < other.end and other.offset < self.end

    def as_numbers(self) -> list[int]:
        """Rank, shape, strides and offset as one list, for the arguments of an op."""
        return [len(self.shape), *self.shape, *self.strides, self.offset]


@dataclass(frozen=True)
class Write:
    """A value that was written to a region of a storage."""

    node: Node
    region: StorageRegion


@dataclass
class _TrackedTensor:
    node: Node
    write_count: int
    """Number of writes to its storage before its value was recorded."""


class MemoryTracker:
    """The live tensors of a run and the nodes that computed their values."""

    def __init__(self) -> None:
        self._tracked: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._writes: dict[int, list[Write]] = {}
        """By storage id. A new storage may get the id of a freed one; `track` clears its writes."""

    def track(self, tensor: torch.Tensor, node: Node, fresh: bool) -> None:
        """Track a tensor with the value of a node; `fresh` if it shares no tracked memory."""
        storage = storage_id(tensor)
        if fresh:
            self._writes.pop(storage, None)
        self._tracked[tensor] = _TrackedTensor(node, len(self._writes.get(storage, ())))

    def record_write(self, tensor: torch.Tensor, node: Node) -> None:
        """Note that the value of a node was written to the memory of a tensor."""
        storage = storage_id(tensor)
        if storage:
            self._writes.setdefault(storage, []).append(Write(node, StorageRegion.of(tensor)))
        self._tracked[tensor] = _TrackedTensor(node, len(self._writes.get(storage, ())))

    def is_tracked(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is tracked."""
        return tensor in self._tracked

    def find_value(self, tensor: torch.Tensor) -> tuple[Node, list[Write]]:
        """The node whose value a tensor had last, and the writes that may overlap it since."""
        tracked: _TrackedTensor = self._tracked[tensor]
        writes = self._writes.get(storage_id(tensor), [])[tracked.write_count :]
        if not writes:
            return tracked.node, []
        region, node = StorageRegion.of(tensor), tracked.node
        overlapping_writes: list[Write] = []
        for write in writes:
            if write.region == region:
                node, overlapping_writes = write.node, []
            elif write.region.may_overlap(region):
                overlapping_writes.append(write)
        return node, overlapping_writes

    def find_alias(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A live tensor with the same memory and the same layout."""
        storage = storage_id(tensor)
        if not storage:
            return None
        region = StorageRegion.of(tensor)
        for other in list(self._tracked):
            if storage_id(other) == storage and StorageRegion.of(other) == region:
                alias: torch.Tensor = other
                return alias
        return None


def storage_id(tensor: torch.Tensor) -> int:
    """The id of the memory of a tensor; 0 where it has no memory to share."""
    try:
        return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0
    except (NotImplementedError, RuntimeError):
        return 0


@torch.library.custom_op(
    "syncpoint::reread",
    mutates_args=(),
    schema="(Tensor before, Tensor[] written, int[] places) -> Tensor",
)
def reread(before: torch.Tensor, written: list[torch.Tensor], places: list[int]) -> torch.Tensor:
    """The value of a tensor after others were written to the memory that it shares.

    `places` are rank, shape, strides and offset of the tensor and of each written one in their
    shared storage, so that the values given here may be anywhere in memory.
    """
    layouts: list[tuple[list[int], list[int], int]] = []
    position = 0
    while position < len(places):
        rank = places[position]
        shape = places[position + 1 : position + 1 + rank]
        strides = places[position + 1 + rank : position + 1 + 2 * rank]
        layouts.append((shape, strides, places[position + 1 + 2 * rank]))
        position += 2 + 2 * rank
    first_offset = min(offset for _, _, offset in layouts)
    ends = [
        offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        for shape, strides, offset in layouts
    ]
    storage = torch.zeros(max(ends) - first_offset, dtype=before.dtype, device=before.device)
    for value, (shape, strides, offset) in zip((before, *written), layouts, strict=True):
        # An expanded axis is one element in memory.
        sizes_in_memory = [
            1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)
        ]
        elements = value[tuple(slice(size) for size in sizes_in_memory)]
        storage.as_strided(sizes_in_memory, strides, offset - first_offset).copy_(elements)
    shape, strides, offset = layouts[0]
    return storage.as_strided(shape, strides, offset - first_offset).clone()


REREAD: torch._ops.OpOverload = torch.ops.syncpoint.reread.default


def is_in_place(node: Node) -> bool:
    """Whether the op of the node writes to one of its inputs."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target._schema.is_mutable:
        return True
    return bool(find_batch_statistics(target, node.args, node.kwargs))


_STATISTICS_OPS = {
    torch.ops.aten.batch_norm.default,
    torch.ops.aten.instance_norm.default,
    torch.ops.aten.native_batch_norm.default,
}


def find_batch_statistics(target: Any, args: Tree, kwargs: Tree) -> list[Any]:
    """The running statistics that an op updates although its schema does not declare it."""
    if target not in _STATISTICS_OPS:
        return []
    names = [argument.name for argument in target._schema.arguments]
    argument_values = dict(kwargs) | dict(zip(names, args, strict=False))
    if not argument_values.get("training", argument_values.get("use_input_stats")):
        return []
    statistics = [argument_values.get("running_mean"), argument_values.get("running_var")]
    return [value for value in statistics if value is not None]


def find_written_tensors(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The tensors that an op writes to."""
    if not isinstance(func, torch._ops.OpOverload):
        return []
    written_values: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        alias_info = argument.alias_info
        if alias_info is not None and alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            written_values += pytree.tree_leaves(value)
    written_values += find_batch_statistics(func, args, kwargs)
    return [value for value in written_values if isinstance(value, torch.Tensor)]
