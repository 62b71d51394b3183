"""The classes that families of variants share: the op to vary (`OpUnderTest`, its arguments and
attributes), and a variant with its output (`Hypothesis`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.experiments.region_experiment import KeptElements
from syncpoint.diagnosis.numpy_ops.recorded_op import Bound
from syncpoint.diagnosis.numpy_ops.registry import proven, results
from syncpoint.run.model import Edge, Op

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class OpUnderTest(KeptElements):
    """One op of the reference, run on the inputs of the target."""

    op: Op
    kind: str
    """Class of the op, the same in all runtimes: `conv`, `layer_norm` (`matching.op_kinds`)."""
    arguments: Sequence[Array | None]
    """Values of `op.inputs`, in the same order; floats are widened to float64. None if a value is
    not known."""
    output: Array
    """Output of the op, computed in float64."""
    rerun: Callable[[Mapping[Edge, Array]], Array | None]
    """Runs the op on other inputs or parameters; returns None if it cannot."""
    target: Array | None = None
    """Output of the target's op; None if the target does not record it. Numbers that a variant
    leaves open (a factor, a bound) are solved from this."""
    index: int = 0
    """Index of `output` among the outputs of the op."""
    region_target: Array | None = None
    """Output of the target at the end of the region, to solve for numbers through the region."""
    run_to_region_end: Callable[[Array], Array | None] = lambda value: value
    """Runs the rest of the region with this output of the op; returns None if it cannot."""
    values: Mapping[Edge, Array] = field(default_factory=dict)
    """All known tensors of the region."""
    ops: Sequence[Op] = ()
    """Ops of the region, in execution order."""
    siblings: Mapping[Edge, Mapping[Edge, Array]] = field(default_factory=dict)
    """For each input of the region: other parts of the same tensor with the same shape."""
    kinds: frozenset[str] | None = None
    """Kinds of variants that are requested; None for all. Others need not be computed."""
    is_expensive: bool = False
    """Running the op again takes too long: only variants that do not run it are requested."""
    kept: NDArray[np.bool_] | None = None
    """Elements of `target` that count; None if all do. The others are the same as in `output`."""

    def is_requested(self, kind: str) -> bool:
        """Whether a variant that runs the op again is requested."""
        return not self.is_expensive and (self.kinds is None or kind in self.kinds)

    @cached_property
    def bound(self) -> Bound | None:
        """The NumPy implementation of the op, to run with other settings; None if none reproduces
        the output."""
        return proven(self.op, self.arguments, self.output)

    def run_with_settings(self, **settings: Any) -> Array | None:
        """Run the NumPy implementation with other settings; None if it cannot be run."""
        return self.run_bound(self.bound, **settings)

    def run_bound(self, bound: Bound | None, **settings: Any) -> Array | None:
        """Run a NumPy implementation; None unless its first output has the shape of `output`."""
        outputs = results(bound, **settings) if bound is not None else None
        return outputs[0] if outputs and outputs[0].shape == self.output.shape else None

    def argument(self, index: int) -> Array | None:
        """Return an argument by its index; None beyond the last."""
        return self.arguments[index] if index < len(self.arguments) else None

    def attribute(self, *names: str, default: Any = None) -> Any:
        """Return the attribute that has one of these names (runtimes name it differently)."""
        for name in names:
            if name in self.op.attributes:
                return self.op.attributes[name]
        return default


@dataclass(frozen=True)
class Hypothesis:
    """A variant of the op and its output."""

    kind: str
    """Stable identifier for programs: `bias-missing`."""
    text: str
    """What the op does, as the end of a sentence that begins with its name: `ignores its bias`."""
    value: Array
    """Output of the variant, in the shape of the op's output."""
    _: KW_ONLY
    next: str = ""
    """Advice for the user; "" for the default advice."""
    setting: tuple[str, str] | None = None
    """What to set to which value, where the variant is a wrong value of one argument."""
    subtle: bool = False
    """The difference to the op may be smaller than the rounding error of a 16-bit dtype."""
    simplicity: int = 0
    """Rank among variants that explain the target: the greatest (common or simple) wins."""
    solved: int = 0
    """Count of numbers that were fitted to the target; each needs elements as evidence."""
    cause: str = "implementation"
    """Cause that is reported for this variant: `implementation`, `weights`, `precision`."""


Family = Callable[[OpUnderTest], Iterable[Hypothesis]]
"""Generates the variants of one file for an op; none if the op is of another kind."""


def variant_with_settings(
    tested_op: OpUnderTest,
    kind: str,
    text: str,
    simplicity: int,
    right: tuple[str, str] | None = None,
    /,
    **settings: Any,
) -> Iterator[Hypothesis]:
    """Vary the settings of the op if this kind is requested and the op can be run with them.

    `right` is what to set to which value instead (`Hypothesis.setting`)."""
    value = tested_op.run_with_settings(**settings) if tested_op.is_requested(kind) else None
    if value is not None:
        yield Hypothesis(kind, text, value, simplicity=simplicity, setting=right)
