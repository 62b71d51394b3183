"""The plan for TorchAir dumps: its entries, and tensors that are derived from others."""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.ascend.matching.plan import ComparisonPlan, PlanEntry
from syncpoint.run.model import OpKey, Tensor, TensorKey


@dataclass(frozen=True, kw_only=True)
class GraphEntry(PlanEntry):
    """One line of the report."""

    graph: str = ""
    call: int = 0
    """Which execution of the op in its part."""
    time: int = 0
    """When the device wrote it."""
    extra: bool = False
    """Whether the report of msProbe has no such line."""
    file: str = ""
    """For a line without a tensor: the file of the op, or its name."""

    @property
    def key(self) -> OpKey:
        """The device op; it exists also if the dump has none of its tensors."""
        return OpKey(self.op, self.call, self.graph)


@dataclass(frozen=True)
class DerivedTensor:
    """A tensor that is computed from another one before it is compared."""

    tensor: Tensor
    source: Tensor
    from_target: bool = False
    """Whether its source is a tensor of the target; otherwise of the reference."""
    is_min_max: bool = False
    """Whether it holds the least and the greatest value of its source."""
    is_cast: bool = False
    """Whether its values are truncated to integers, as by a cast to its dtype."""


@dataclass(frozen=True)
class GraphPlan:
    """The plan, and the tensors to derive for it."""

    plan: ComparisonPlan
    entries: tuple[GraphEntry, ...]
    derived: tuple[DerivedTensor, ...] = ()
    """Tensors to add to the reference."""
    min_max_only: frozenset[TensorKey] = frozenset()
    """Tensors of the target to compare by their least and greatest value."""
