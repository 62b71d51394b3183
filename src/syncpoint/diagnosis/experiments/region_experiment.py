"""One op of the target under the lens: its numbers, and those of the reference's ops on the very
same inputs, with any step in between replaced by another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import check_time
from syncpoint.diagnosis.experiments.unmasked_elements import KeptElements
from syncpoint.errors import SyncpointError
from syncpoint.run.model import Edge, Op, Role
from syncpoint.runtimes.protocol import Evaluates, Region

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class RegionExperiment(KeptElements):
    """A region of reference ops between sync points, and what the target made of it."""

    row: Row
    ops: tuple[Op, ...]
    """In execution order; the last gives what is compared."""
    region: Region
    inputs: Mapping[Edge, Array]
    """The target's own values where the region begins, and the reference's parameters."""
    target: NDArray[np.float64]
    """What the target's op gave; the truth in masked positions."""
    truth: Array
    """What the reference's ops give in float64."""
    session: Evaluates
    siblings: Mapping[Edge, Mapping[Edge, Array]] = field(default_factory=dict)
    """Of what the region reads: the target's other parts of the same tensor."""
    kept: NDArray[np.bool_] | None = None
    """Which elements of the result count; None where all do."""

    def _hide_masked(self, value: Array | None) -> Array | None:
        """A result with the truth in masked positions, so that it differs nowhere there."""
        if self.kept is None or value is None or value.shape != self.kept.shape:
            return value
        return np.where(self.kept, value, self.truth)

    @property
    def error(self) -> NDArray[np.float64]:
        """What the target's op added."""
        found: NDArray[np.float64] = self.target - self.truth
        return found

    @property
    def noise(self) -> float:
        """Root mean square error that the op's precision allows; 0 where it is not known."""
        made = self.row.introduced
        return (made.expected or 0.0) if made is not None else 0.0

    @cached_property
    def values(self) -> dict[Edge, Array]:
        """Every tensor inside the region, in float64, and at its ends, as it was recorded."""
        return self._values()

    def arguments(self, op: Op) -> list[Array | None]:
        """What an op of the region reads, in order, real numbers in float64; None where that is
        not known."""
        # Fed to the op they stay as they are: runtimes may insist on the type of a parameter.
        found = [self.values.get(edge) for edge in op.inputs]
        return [wide(value) if value is not None else None for value in found]

    def output(self, op: Op) -> Array | None:
        """What an op of the region gives."""
        return self.values.get(Edge(op.key, self._index(op)))

    def replaced(self, op: Op, value: Array) -> Array | None:
        """What the region gives if this op gave `value` instead."""
        if op.key == self.ops[-1].key:
            return self._hide_masked(value)
        known = self._values({Edge(op.key, self._index(op)): value})
        return self._hide_masked(known.get(self.region.outputs[0]))

    def fed(self, changed: Mapping[Edge, Array]) -> Array | None:
        """What the region gives on other inputs or parameters."""
        check_time()
        try:
            (found, *_) = self.session.evaluate(self.region, {**self.inputs, **changed}, "f64")
        except (SyncpointError, ValueError):
            return None
        return self._hide_masked(found)

    def op_again(self, op: Op, changed: Mapping[Edge, Array]) -> Array | None:
        """What one op of the region gives on other inputs or parameters."""
        known = {**{e: self.values[e] for e in op.inputs if e in self.values}, **changed}
        fed = tuple(dict.fromkeys(e for e in op.inputs if e in known))
        step = Region((op.key,), fed, (Edge(op.key, self._index(op)),), self.region.part)
        check_time()
        try:
            (found,) = self.session.evaluate(step, known, "f64")
        except (SyncpointError, ValueError):
            return None
        return found

    def parameters(self, op: Op) -> list[Edge]:
        """The parameters that an op reads."""
        return [edge for edge in op.inputs if edge.role is Role.PARAMETER and edge in self.inputs]

    def _index(self, op: Op) -> int:
        return self.region.outputs[0].index if op.key == self.ops[-1].key else 0

    def _values(self, fixed: Mapping[Edge, Array] | None = None) -> dict[Edge, Array]:
        known: dict[Edge, Array] = {**self.inputs, **(fixed or {})}
        needed = {edge for op in self.ops for edge in op.inputs} | set(self.region.outputs)
        done = {edge.op for edge in fixed or ()}
        for op in self.ops:
            wanted = tuple(
                sorted(
                    (e for e in needed if e.op == op.key and e not in known), key=lambda e: e.index
                )
            )
            fed = tuple(dict.fromkeys(e for e in op.inputs if e in known))
            if not wanted or op.key in done:
                continue
            step = Region((op.key,), fed, wanted, self.region.part)
            check_time()
            try:
                found = self.session.evaluate(step, {e: known[e] for e in fed}, "f64")
            except (SyncpointError, ValueError):
                continue
            known |= {e: v for e, v in zip(wanted, found, strict=True) if v is not None}
        return known


def wide(value: Array) -> Array:
    """Real numbers in float64; bfloat16 and its like are of no kind that NumPy knows."""
    return value.astype(np.float64) if value.dtype.kind in "fV" else value
