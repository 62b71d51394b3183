"""Which recorded tensor the memory of a running model holds.

A model that writes in place changes every tensor that shares the memory. What was recorded of
those before is then not what an op reads of them afterwards, and a region evaluated on it would
blame the op. So writes are counted for each storage, and a tensor that is read after a write to
its memory is recorded anew, as what the op `syncpoint.reread` makes of its old value and of what
was written.
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
class Place:
    """The elements of a storage that a tensor consists of."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Place:
        """Where a tensor lies in its storage."""
        return Place(
            tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
        )

    @property
    def end(self) -> int:
        """One past the last element."""
        if 0 in self.shape:
            return self.offset
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((n - 1) * s for n, s in pairs)

    def may_meet(self, other: Place) -> bool:
        """Whether the two may have elements in common."""
        if self.dtype != other.dtype:
            return True
        return self.offset < other.end and other.offset < self.end

    def numbers(self) -> list[int]:
        """As one list, for the arguments of an op."""
        return [len(self.shape), *self.shape, *self.strides, self.offset]


@dataclass(frozen=True)
class Write:
    """A value that was written to a place."""

    node: Node
    place: Place


@dataclass
class _Held:
    node: Node
    writes: int
    """How many writes to its storage there had been when its value was recorded."""


class Memory:
    """The live tensors of a run and the nodes that gave them their values."""

    def __init__(self) -> None:
        self._held: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._writes: dict[int, list[Write]] = {}
        """By storage. That of one that is gone may stand for a new one; `hold` clears it."""

    def hold(self, tensor: torch.Tensor, node: Node, fresh: bool) -> None:
        """A tensor has the value of a node; `fresh` where it shares no memory known before."""
        storage = storage_of(tensor)
        if fresh:
            self._writes.pop(storage, None)
        self._held[tensor] = _Held(node, len(self._writes.get(storage, ())))

    def wrote(self, tensor: torch.Tensor, node: Node) -> None:
        """The value of a node was written to the memory of a tensor."""
        storage = storage_of(tensor)
        if storage:
            self._writes.setdefault(storage, []).append(Write(node, Place.of(tensor)))
        self._held[tensor] = _Held(node, len(self._writes.get(storage, ())))

    def known(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor has been seen."""
        return tensor in self._held

    def read(self, tensor: torch.Tensor) -> tuple[Node, list[Write]]:
        """The node whose value a tensor had last, and what was written over it since."""
        held: _Held = self._held[tensor]
        writes = self._writes.get(storage_of(tensor), [])[held.writes :]
        if not writes:
            return held.node, []
        place, node = Place.of(tensor), held.node
        since: list[Write] = []
        for write in writes:
            if write.place == place:
                node, since = write.node, []
            elif write.place.may_meet(place):
                since.append(write)
        return node, since

    def twin(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A live tensor that is the same memory seen in the same way."""
        storage = storage_of(tensor)
        if not storage:
            return None
        place = Place.of(tensor)
        for other in list(self._held):
            if storage_of(other) == storage and Place.of(other) == place:
                found: torch.Tensor = other
                return found
        return None


def storage_of(tensor: torch.Tensor) -> int:
    """What identifies the memory of a tensor; 0 where it has none that could be shared."""
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
    """What a tensor holds after others were written to memory that it shares with them.

    `places` are shape, strides and offset of the tensor and of each written one in the storage
    they shared, so that the values may lie anywhere now.
    """
    found: list[tuple[list[int], list[int], int]] = []
    at = 0
    while at < len(places):
        rank = places[at]
        shape = places[at + 1 : at + 1 + rank]
        strides = places[at + 1 + rank : at + 1 + 2 * rank]
        found.append((shape, strides, places[at + 1 + 2 * rank]))
        at += 2 + 2 * rank
    low = min(offset for _, _, offset in found)
    ends = [
        offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        for shape, strides, offset in found
    ]
    room = torch.zeros(max(ends) - low, dtype=before.dtype, device=before.device)
    for value, (shape, strides, offset) in zip((before, *written), found, strict=True):
        # An expanded axis is one element in memory.
        once = [1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)]
        inside = value[tuple(slice(size) for size in once)]
        room.as_strided(once, strides, offset - low).copy_(inside)
    shape, strides, offset = found[0]
    return room.as_strided(shape, strides, offset - low).clone()


REREAD: torch._ops.OpOverload = torch.ops.syncpoint.reread.default


def mutates(node: Node) -> bool:
    """Whether the node changes one of its inputs."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target._schema.is_mutable:
        return True
    return bool(batch_statistics(target, node.args, node.kwargs))


_LEARNING = {
    torch.ops.aten.batch_norm.default,
    torch.ops.aten.instance_norm.default,
    torch.ops.aten.native_batch_norm.default,
}


def batch_statistics(target: Any, args: Tree, kwargs: Tree) -> list[Any]:
    """The running statistics that an op updates although its schema does not say so."""
    if target not in _LEARNING:
        return []
    names = [argument.name for argument in target._schema.arguments]
    given = dict(kwargs) | dict(zip(names, args, strict=False))
    if not given.get("training", given.get("use_input_stats")):
        return []
    found = [given.get("running_mean"), given.get("running_var")]
    return [value for value in found if value is not None]


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an op writes to."""
    if not isinstance(func, torch._ops.OpOverload):
        return []
    found: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += pytree.tree_leaves(value)
    found += batch_statistics(func, args, kwargs)
    return [value for value in found if isinstance(value, torch.Tensor)]
