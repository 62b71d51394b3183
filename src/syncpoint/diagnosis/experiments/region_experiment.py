"""Run the reference's ops behind one row in float64 on the target's inputs, with any input,
parameter or inner result replaced; masks, siblings of a part."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.regions import NoRegion, RegionTooLarge
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis import budget
from syncpoint.diagnosis.budget import check_time
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge, Op, Part, Role, TensorKey
from syncpoint.runtimes.protocol import Evaluates, Region

if TYPE_CHECKING:
    from syncpoint.diagnosis.case import Case

Array = NDArray[Any]

_MAX_PARTS = 4
"""Parts of a split tensor to consider."""


class KeptElements:
    """A result with masked elements; figures are computed from the other elements only."""

    kept: NDArray[np.bool_] | None
    """Which elements count; None if all do."""

    def counted(self, values: Array) -> Array:
        """Return the elements that count."""
        return values if self.kept is None else values[self.kept]

    def without_masked(self, places: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the positions without the masked ones."""
        return places if self.kept is None else places & self.kept

    def zero_masked(self, values: Array) -> Array:
        """Return the values with zeros in masked positions."""
        return values if self.kept is None else np.where(self.kept, values, 0)


@dataclass(frozen=True, kw_only=True)
class RegionExperiment(KeptElements):
    """A region of reference ops between sync points, and the target's result for it."""

    row: Row
    ops: tuple[Op, ...]
    """In execution order; the last gives the compared tensor."""
    region: Region
    inputs: Mapping[Edge, Array]
    """The target's values at the inputs of the region, and the reference's parameters."""
    target: NDArray[np.float64]
    """The target's result; equal to `truth` in masked positions."""
    truth: Array
    """The result of the reference's ops in float64."""
    session: Evaluates
    siblings: Mapping[Edge, Mapping[Edge, Array]] = field(default_factory=dict)
    """For each input of the region: the target's values at other parts of the same tensor."""
    kept: NDArray[np.bool_] | None = None
    """Which elements of the result count; None if all do."""

    def _hide_masked(self, value: Array | None) -> Array | None:
        """Return a result with `truth` in masked positions, so that it does not differ there."""
        if self.kept is None or value is None or value.shape != self.kept.shape:
            return value
        return np.where(self.kept, value, self.truth)

    @property
    def error(self) -> NDArray[np.float64]:
        """The error that the target's op introduced."""
        error: NDArray[np.float64] = self.target - self.truth
        return error

    @property
    def noise(self) -> float:
        """RMS error that the op's precision allows; 0 if it is not known."""
        introduced = self.row.introduced
        return (introduced.expected or 0.0) if introduced is not None else 0.0

    @cached_property
    def values(self) -> dict[Edge, Array]:
        """Every tensor of the region: inside it in float64, at its ends as recorded."""
        return self._compute_values()

    def arguments(self, op: Op) -> list[Array | None]:
        """Return the inputs of an op of the region, real numbers in float64; None if not known."""
        # The op itself gets them unchanged: runtimes may insist on the type of a parameter.
        values = [self.values.get(edge) for edge in op.inputs]
        return [wide(value) if value is not None else None for value in values]

    def output(self, op: Op) -> Array | None:
        """Return the output of an op of the region."""
        return self.values.get(Edge(op.key, self._index(op)))

    def replaced(self, op: Op, value: Array) -> Array | None:
        """Return the region's result if this op gave `value` instead of its output."""
        if op.key == self.ops[-1].key:
            return self._hide_masked(value)
        values = self._compute_values({Edge(op.key, self._index(op)): value})
        return self._hide_masked(values.get(self.region.outputs[0]))

    def run_with(self, changed: Mapping[Edge, Array]) -> Array | None:
        """Return the region's result with other inputs or parameters."""
        check_time()
        try:
            (output, *_) = self.session.evaluate(self.region, {**self.inputs, **changed}, "f64")
        except (SyncpointError, ValueError):
            return None
        return self._hide_masked(output)

    def op_again(self, op: Op, changed: Mapping[Edge, Array]) -> Array | None:
        """Return the output of one op of the region with other inputs or parameters."""
        values = {**{e: self.values[e] for e in op.inputs if e in self.values}, **changed}
        inputs = tuple(dict.fromkeys(e for e in op.inputs if e in values))
        step = Region((op.key,), inputs, (Edge(op.key, self._index(op)),), self.region.part)
        check_time()
        try:
            (output,) = self.session.evaluate(step, values, "f64")
        except (SyncpointError, ValueError):
            return None
        return output

    def parameters(self, op: Op) -> list[Edge]:
        """Return the parameters that an op reads."""
        return [edge for edge in op.inputs if edge.role is Role.PARAMETER and edge in self.inputs]

    def _index(self, op: Op) -> int:
        return self.region.outputs[0].index if op.key == self.ops[-1].key else 0

    def _compute_values(self, fixed: Mapping[Edge, Array] | None = None) -> dict[Edge, Array]:
        values: dict[Edge, Array] = {**self.inputs, **(fixed or {})}
        needed = {edge for op in self.ops for edge in op.inputs} | set(self.region.outputs)
        done = {edge.op for edge in fixed or ()}
        for op in self.ops:
            missing = (e for e in needed if e.op == op.key and e not in values)
            outputs = tuple(sorted(missing, key=lambda edge: edge.index))
            inputs = tuple(dict.fromkeys(e for e in op.inputs if e in values))
            if not outputs or op.key in done:
                continue
            step = Region((op.key,), inputs, outputs, self.region.part)
            check_time()
            try:
                computed = self.session.evaluate(step, {e: values[e] for e in inputs}, "f64")
            except (SyncpointError, ValueError):
                continue
            values |= {e: v for e, v in zip(outputs, computed, strict=True) if v is not None}
        return values


def wide(value: Array) -> Array:
    """Convert real numbers to float64. NumPy has no kind for bfloat16 and similar types."""
    return value.astype(np.float64) if value.dtype.kind in "fV" else value


def build_experiment(
    case: Case, row: Row, output: TensorKey | None, through: AbstractSet[TensorKey] = frozenset()
) -> RegionExperiment | None:
    """Build the experiment on a row whose reference is `output`; its region goes `through` these
    sync points. None if the reference's ops cannot be run, or a tensor is too large."""
    introducer = case.introducer
    tensor = case.find_tensor("target", row)
    if introducer is None or output is None or tensor is None:
        return None
    if tensor.count > budget.MAX_ELEMENTS:
        budget.note_too_large(tensor.key, tensor.count)
        return None
    try:
        exact = introducer.evaluate_exactly(output.op, [output.index], output.part, through)
    except RegionTooLarge as error:
        budget.note_too_large(row.target.key, error.elements)
        return None
    except (NoRegion, SyncpointError, KeyError, ValueError):
        return None
    target = case.values("target", row)
    if target is None:
        return None
    truth = exact.outputs.get(output.index)
    if truth is None or truth.shape != target.shape:
        return None
    counted = case.counted_mask(row)
    if counted is not None:
        target = np.where(counted, target, truth)
    ops = tuple(op for k in exact.region.ops if (op := case.op("reference", k)) is not None)
    return RegionExperiment(
        row=row,
        ops=ops,
        region=exact.region,
        inputs=exact.inputs,
        target=target,
        truth=truth,
        session=introducer.session,
        siblings={e: _read_siblings(case, e, output.part) for e in exact.region.inputs},
        kept=counted,
    )


def _read_siblings(case: Case, edge: Edge, part: Part) -> dict[Edge, Array]:
    """Return the target's values of the other parts of the tensor that `edge` is a part of."""
    op = case.op("reference", edge.op) if edge.role is Role.OUTPUT else None
    introducer = case.introducer
    if op is None or not op.inputs or introducer is None:
        return {}
    if op_class(op.type) not in ("split", "slice"):
        return {}
    readers = case.readers.get(op.inputs[0], ())
    beside = [o.key for o in readers if o.type == op.type and o.inputs[0] == op.inputs[0]][
        :_MAX_PARTS
    ]
    row_by_reference = introducer.by_reference
    own = row_by_reference.get(TensorKey(edge.op, index=edge.index, part=part))
    siblings = {}
    for other in (Edge(key, index) for key in beside for index in range(_MAX_PARTS)):
        row = row_by_reference.get(TensorKey(other.op, index=other.index, part=part))
        if other == edge or row is None or own is None:
            continue
        if row.reference.shape == own.reference.shape:
            siblings[other] = introducer.target_value(other, part)
    return siblings
