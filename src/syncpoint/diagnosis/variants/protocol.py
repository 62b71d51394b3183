"""What a family of variants is given and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.experiments.unmasked_elements import KeptElements
from syncpoint.diagnosis.numpy_ops.op_arguments import Bound
from syncpoint.diagnosis.numpy_ops.registry import proven, results
from syncpoint.run.model import Edge, Op

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Seen(KeptElements):
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
    target: Array | None = None
    """What the target gave in its place; None where the target does not show it. What is solved
    for (a factor, a bound) is solved from this."""
    index: int = 0
    """Which of the op's outputs it is."""
    end: Array | None = None
    """What the target gave at the end of the region, for what is solved for through it."""
    reach: Callable[[Array], Array | None] = lambda value: value
    """What the region gives in the end if the op gave this; None where it cannot be run on."""
    values: Mapping[Edge, Array] = field(default_factory=dict)
    """Every tensor of the region that is known."""
    ops: Sequence[Op] = ()
    """The region, in execution order."""
    siblings: Mapping[Edge, Mapping[Edge, Array]] = field(default_factory=dict)
    """Of what the region reads: other parts of the same tensor, of the same shape."""
    kinds: frozenset[str] | None = None
    """The variants that are asked for; None for all. What is not need not be computed."""
    dear: bool = False
    """Running the op once more takes long: only variants that can do without are asked for."""
    kept: NDArray[np.bool_] | None = None
    """Which elements of `target` count; None where all do. The others are as in `output`."""

    def wants(self, kind: str) -> bool:
        """Whether a variant that has to run the op is asked for."""
        return not self.dear and (self.kinds is None or kind in self.kinds)

    @cached_property
    def bound(self) -> Bound | None:
        """The op as a function of ours, to run with other settings; None where we have none that
        gives its output."""
        return proven(self.op, self.arguments, self.output)

    def changed(self, **settings: Any) -> Array | None:
        """What the op gives with other settings, by our own function; None where it cannot."""
        return self.ran(self.bound, **settings)

    def ran(self, bound: Bound | None, **settings: Any) -> Array | None:
        """The first result of a function in the shape of the output; None where it has none."""
        found = results(bound, **settings) if bound is not None else None
        return found[0] if found and found[0].shape == self.output.shape else None

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
    """What the op does, as the end of a sentence that begins with its name: `ignores its bias`."""
    value: Array
    """In the shape of the op's output."""
    _: KW_ONLY
    next: str = ""
    """What to do about it; "" for the usual advice."""
    subtle: bool = False
    """So near to the op itself that it may hide below the rounding of 16 bits."""
    simplicity: int = 0
    """Of several that explain the target, the greatest is believed: what is common or simple."""
    solved: int = 0
    """Numbers that were chosen to fit the target; each wants elements that bear it out."""
    cause: str = "implementation"
    """Another class of cause, where the variant is one of those: `weights`."""


Family = Callable[[Seen], Iterable[Hypothesis]]
"""The variants of an op that a file knows; none where it is not of its kind."""


def variant_with_settings(
    seen: Seen, kind: str, text: str, simplicity: int, /, **settings: Any
) -> Iterator[Hypothesis]:
    """The op with other settings, where this kind of variant is wanted and can be computed."""
    value = seen.changed(**settings) if seen.wants(kind) else None
    if value is not None:
        yield Hypothesis(kind, text, value, simplicity=simplicity)
