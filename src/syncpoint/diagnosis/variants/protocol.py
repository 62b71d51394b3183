"""What a family of variants is given and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from syncpoint.run.model import Edge, Op

Array = NDArray[Any]


@dataclass(frozen=True)
class Seen:
    """One op of the reference on the target's inputs."""

    op: Op
    kind: str
    """Its class, whatever its runtime calls it: `conv`, `layer_norm` (`matching.kinds`)."""
    arguments: Sequence[Array | None]
    """What it reads, in float64 where it is floating point, in the order of `op.inputs`; None
    where that is not known."""
    output: Array
    """What it gives in float64."""
    again: Callable[[Mapping[Edge, Array]], Array | None]
    """The op itself on other inputs or parameters; None where it cannot be run on them."""
    index: int = 0
    """Which of the op's outputs it is."""
    target: Array | None = None
    """What the target gave at the end of the region, for what is solved for."""
    reach: Callable[[Array], Array | None] = lambda value: value
    """What the region gives in the end if the op gave this; None where it cannot be run on."""
    values: Mapping[Edge, Array] = field(default_factory=dict)
    """Every tensor of the region that is known."""
    ops: Sequence[Op] = ()
    """The region, in execution order."""
    siblings: Mapping[Edge, Mapping[Edge, Array]] = field(default_factory=dict)
    """Of what the region reads: other parts of the same tensor, of the same shape."""

    def argument(self, at: int) -> Array | None:
        """An argument by its place, None beyond the last."""
        return self.arguments[at] if at < len(self.arguments) else None

    def attribute(self, *names: str, default: Any = None) -> Any:
        """An attribute under the first of its names in the runtimes that is there."""
        for name in names:
            if name in self.op.attributes:
                return self.op.attributes[name]
        return default


@dataclass(frozen=True)
class Hypothesis:
    """What the op would give if it were another."""

    kind: str
    """For programs: `bias-missing`."""
    text: str
    """Completes "the op computes": `the tanh form of GELU`, `no bias`."""
    value: Array
    """In the shape of the op's output."""
    next: str = ""
    """What to do about it; "" for the usual advice."""
    subtle: bool = False
    """So near to the op itself that it may hide below the rounding of 16 bits."""
    simplicity: int = 0
    """Of several that explain the target, the greatest is believed: what is common or simple."""
    cause: str = "implementation"
    """Another class of cause, where the variant is one of those: `weights`."""


Family = Callable[[Seen], Iterable[Hypothesis]]
"""The variants of an op that a file knows; none where it is not of its kind."""
