"""Introduced error of the states (such as caches) of a loop: compare each before a step with its
value after the previous step or the op that writes it.

An op of the reference writes the value of a state after a step. If the target has the output of
that op, its state must equal that output; if not, the output of the reference's ops on the target's
values. The value of a state before a step is that after the previous step, so an error there is
inherited. Only the value before the first step is judged by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.expected_error import (
    add_bulk_note,
    ratio_of,
    rounding_noise,
)
from syncpoint.comparison.introduced_error.regions import NoRegion, explain_unknown
from syncpoint.comparison.operands import fit_view, operand_of, undo_quantization
from syncpoint.comparison.rows import Introduced, Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.matching.views import View
from syncpoint.metrics import Measurement, Operand
from syncpoint.metrics.verdict import Reason
from syncpoint.run.model import Edge, Kept, Part, Role, TensorKey


class ErrorCalculation(Protocol):
    """What the errors of states need from the calculation of introduced error."""

    sides: Sides
    by_reference: dict[TensorKey, Row]

    def target_value(self, edge: Edge, part: Part) -> NDArray[Any]:
        """The target's value of the tensor that the reference reads as `edge`."""

    def row_of_producer(self, row: Row, producer: TensorKey) -> Row:
        """The row with the error that the ops before `producer` introduced."""


MeasureFunction = Callable[[Operand, NDArray[Any], str], Measurement]


def is_state(row: Row) -> bool:
    """Whether a row is a state of the model with values on both sides."""
    return row.target.key.role is Role.STATE and not row.unmeasured and row.basis == Kept.VALUES


class StateErrors:
    """Calculates the introduced error of states."""

    def __init__(self, calculation: ErrorCalculation, measure: MeasureFunction) -> None:
        self._calculation = calculation
        self._sides = calculation.sides
        self._measure = measure
        self._keys_by_text: dict[str, TensorKey] | None = None

    def add_error(self, row: Row) -> Row:
        """Add the introduced error to a row, or the reason why it is unknown."""
        try:
            return (
                self._check_before_step(row)
                if row.target.key.index
                else self._check_after_step(row)
            )
        except (NoRegion, SyncpointError) as error:
            return replace(row, unknown=explain_unknown(error))

    def _check_before_step(self, row: Row) -> Row:
        """Compare a state before a step with its value after the previous step."""
        key = row.target.key
        previous_part = replace(key.part, step=key.part.step - 1)
        previous = self._sides.target.tensor(TensorKey(key.op, Role.STATE, 0, previous_part))
        if key.part.step < 1 or previous is None or previous.kept is not Kept.VALUES:
            return row
        tensor = self._sides.target.tensor(key)
        if tensor is None or tensor.shape != previous.shape:
            return row
        operand = self._sides.operand(0, tensor)
        passed_on = undo_quantization(operand_of(self._sides.target, previous)).array
        return self._compare_passed_on(row, operand, passed_on, previous.dtype)

    def _check_after_step(self, row: Row) -> Row:
        """Compare a state after a step with the output of the op that writes it."""
        reference_tensor = self._sides.reference.tensor(row.reference.key)
        producer = (
            self._key_by_text().get(reference_tensor.alias_of)
            if reference_tensor is not None
            else None
        )
        if producer is None:
            return replace(
                row, unknown=Reason(detail="the reference does not record which op wrote the state")
            )
        target_tensor = self._sides.target.tensor(row.target.key)
        if target_tensor is None:
            return row
        if producer in self._calculation.by_reference or producer.role is not Role.OUTPUT:
            edge = Edge(producer.op, producer.index, producer.role)
            truth = self._calculation.target_value(edge, producer.part)
            if truth.shape == row.reference.shape:
                operand = self._sides.operand(0, target_tensor)
                operand, _ = fit_view(operand, View(row.view), row.reference.shape)
                return self._compare_passed_on(row, operand, truth, row.reference.dtype)
        return self._calculation.row_of_producer(row, producer)

    def _compare_passed_on(
        self, row: Row, operand: Operand, truth: NDArray[Any], reference_dtype: str
    ) -> Row:
        """Measure a value that should be passed on, at most rounded."""
        measurement = self._measure(operand, truth, reference_dtype)
        if measurement.compared == 0 and not measurement.mismatched:
            return replace(row, unknown=Reason(detail="nothing finite to compare"))
        expected = rounding_noise(operand, truth)
        introduced = Introduced.of_measurement(
            measurement,
            expected=float(expected[0]),
            ratio=ratio_of(measurement, expected),
            precision=row.preset,
        )
        return add_bulk_note(replace(row, introduced=introduced), measurement, expected)

    def _key_by_text(self) -> dict[str, TensorKey]:
        if self._keys_by_text is None:
            roles = (Role.OUTPUT, Role.MODEL_INPUT, Role.STATE)
            keys = (t.key for t in self._sides.reference.tensors if t.key.role in roles)
            self._keys_by_text = {str(key): key for key in keys}
        return self._keys_by_text
