"""What the plan for dumps of TorchAir is made of: lines, and tensors that lie in no file."""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.ascend.matching.plan import Entry, Plan
from syncpoint.run.model import OpKey, Tensor, TensorKey


@dataclass(frozen=True, kw_only=True)
class GraphEntry(Entry):
    """One line of the report."""

    graph: str = ""
    call: int = 0
    """Which of several executions of the op in its part."""
    time: int = 0
    """When the device wrote it."""
    extra: bool = False
    """A line that the tool of these dumps does not have."""
    place: str = ""
    """The file of an op, or its name, for a line without a tensor."""

    @property
    def key(self) -> OpKey:
        """The device op, also where none of its tensors is known."""
        return OpKey(self.op, self.call, self.graph)


@dataclass(frozen=True)
class Derived:
    """A tensor that is compared and lies in no file as it is."""

    tensor: Tensor
    source: Tensor
    own: bool = False
    """Its source is one of the target's tensors; else one of the reference's."""
    shrunk: bool = False
    """It is the least and the greatest value of its source."""
    cast: bool = False
    """Its values are cut to integers, as a cast to its type does."""


@dataclass(frozen=True)
class GraphPlan:
    """The plan, and what must be made for it."""

    plan: Plan
    entries: tuple[GraphEntry, ...]
    derived: tuple[Derived, ...] = ()
    """Tensors to add to the reference."""
    shrunk: frozenset[TensorKey] = frozenset()
    """Tensors of the target to compare by their least and greatest value."""
