"""What each step of a loop leaves to the next: states, held to account like ops.

What a state holds after a step was written by an op of the reference. Where the target has that
op's result too, its state must hold the target's own; where not, what the reference's ops make
of the target's values. What a state holds before a step is what the step before left, so that
an error there is inherited; only what the first step begins with is judged by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.expected_error import ratio_of, rounding, with_bulk_note
from syncpoint.comparison.introduced_error.regions import NoRegion, unknown_reason
from syncpoint.comparison.operands import fit_view, operand_of, undo_quantization
from syncpoint.comparison.rows import Introduced, Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.matching.views import View
from syncpoint.metrics import Measurement, Operand
from syncpoint.metrics.verdict import Reason
from syncpoint.run.model import Edge, Kept, Part, Role, TensorKey


class Introduces(Protocol):
    """What introduced error offers of itself."""

    sides: Sides
    by_reference: dict[TensorKey, Row]

    def fed(self, edge: Edge, part: Part) -> NDArray[Any]:
        """What the target had at the place where the reference reads `edge`."""

    def made_by(self, row: Row, maker: TensorKey) -> Row:
        """A row whose reference is what an op gave, with what the ops before it introduced."""


Against = Callable[[Operand, NDArray[Any], str], Measurement]


def is_state(row: Row) -> bool:
    """Whether a row is of what a model keeps from step to step, with values on both sides."""
    return row.target.key.role is Role.STATE and not row.unmeasured and row.basis == Kept.VALUES


class Carried:
    """Goes through the rows of states."""

    def __init__(self, introducer: Introduces, against: Against) -> None:
        self._introducer = introducer
        self._sides = introducer.sides
        self._against = against
        self._keys: dict[str, TensorKey] | None = None

    def row(self, row: Row) -> Row:
        """The row with what was introduced, or why that is not known."""
        try:
            return self._begun(row) if row.target.key.index else self._left(row)
        except (NoRegion, SyncpointError) as error:
            return replace(row, unknown=unknown_reason(error))

    def _begun(self, row: Row) -> Row:
        """What a step begins with."""
        key = row.target.key
        before = replace(key.part, step=key.part.step - 1)
        left = self._sides.target.tensor(TensorKey(key.op, Role.STATE, 0, before))
        if key.part.step < 1 or left is None or left.kept is not Kept.VALUES:
            return row
        mine = self._sides.target.tensor(key)
        if mine is None or mine.shape != left.shape:
            return row
        operand = self._sides.operand(0, mine)
        passed_on = undo_quantization(operand_of(self._sides.target, left)).array
        return self._passed(row, operand, passed_on, left.dtype)

    def _left(self, row: Row) -> Row:
        """What a step leaves."""
        tensor = self._sides.reference.tensor(row.reference.key)
        maker = self._by_text().get(tensor.alias_of) if tensor is not None else None
        if maker is None:
            return replace(
                row, unknown=Reason(detail="the reference does not tell which op wrote it")
            )
        mine = self._sides.target.tensor(row.target.key)
        if mine is None:
            return row
        if maker in self._introducer.by_reference or maker.role is not Role.OUTPUT:
            edge = Edge(maker.op, maker.index, maker.role)
            truth = self._introducer.fed(edge, maker.part)
            if truth.shape == row.reference.shape:
                operand = self._sides.operand(0, mine)
                operand, _ = fit_view(operand, View(row.view), row.reference.shape)
                return self._passed(row, operand, truth, row.reference.dtype)
        return self._introducer.made_by(row, maker)

    def _passed(self, row: Row, operand: Operand, truth: NDArray[Any], reference_dtype: str) -> Row:
        """A value that was to be passed on, and at most rounded on the way."""
        found = self._against(operand, truth, reference_dtype)
        if found.compared == 0 and not found.mismatched:
            return replace(row, unknown=Reason(detail="nothing finite to compare"))
        allowed = rounding(operand, truth)
        made = Introduced.of_measurement(
            found,
            expected=float(allowed[0]),
            ratio=ratio_of(found, allowed),
            precision=row.preset,
        )
        return with_bulk_note(replace(row, introduced=made), found, allowed)

    def _by_text(self) -> dict[str, TensorKey]:
        if self._keys is None:
            makers = (Role.OUTPUT, Role.MODEL_INPUT, Role.STATE)
            found = (t.key for t in self._sides.reference.tensors if t.key.role in makers)
            self._keys = {str(key): key for key in found}
        return self._keys
