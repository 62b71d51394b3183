"""Introduced error, local form: run the reference's ops in float64 on the target's inputs, compare
with its output; copies and quantized pairs at the edge.

The reference's ops between two sync points are evaluated in float64 on the values that the target
recorded. A difference to the target's output is the error of the target's op; errors in its inputs
are in both and cancel. The parameters of the reference are used, so a wrong weight shows only where
it is used. `add_local_errors` is the entry; the record is `Introduced` in `comparison/rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.events import Stage, Step
from syncpoint.comparison.introduced_error.cancellation import Cancellation
from syncpoint.comparison.introduced_error.expected_error import ExpectedErrors, add_bulk_note
from syncpoint.comparison.introduced_error.loop_states import StateErrors, is_state
from syncpoint.comparison.introduced_error.regions import (
    NoRegion,
    Regions,
    RegionTooLarge,
    explain_unknown,
    find_compared_inputs,
)
from syncpoint.comparison.introduced_error.true_values import (
    ExactOutputs,
    OutputOperands,
    copy_non_finite_marks,
    measure_against,
)
from syncpoint.comparison.judge_rows import judge_row
from syncpoint.comparison.measuring.index_outputs import sort_along, unordered_axis
from syncpoint.comparison.measuring.masking import blank_masked
from syncpoint.comparison.operands import fit_view, operand_of, undo_quantization
from syncpoint.comparison.rows import Introduced, Row, is_computed
from syncpoint.comparison.sides import Sides
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.matching.views import View
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.free_memory import available_bytes
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.runtimes.protocol import Evaluates, Region

_ALWAYS_FITS = 1 << 24
"""Number of elements up to which a region is evaluated without checking free memory."""
_BYTES_PER_ELEMENT = 32
"""Memory of a region for each element: in float64, in float32, and for its outputs."""


def add_local_errors(
    sides: Sides,
    rows: list[Row],
    session: Evaluates,
    log: ProgressLog | None = None,
    events: EventSink = NULL_SINK,
) -> list[Row]:
    """Add to each row the error that its op introduced, or the reason why it is unknown."""
    return LocalCalculation(sides, rows, session, log, events).add_errors()


class LocalCalculation:
    """Calculates the introduced error of all rows, one reference op at a time."""

    def __init__(
        self,
        sides: Sides,
        rows: list[Row],
        session: Evaluates,
        log: ProgressLog | None,
        events: EventSink = NULL_SINK,
        max_elements: int | None = None,
    ) -> None:
        """A region of more than `max_elements` is not evaluated; with None, free memory decides."""
        self.sides = sides
        self.max_elements = max_elements
        self.rows = rows
        self.session = session
        self.log = log
        self.events = events
        self.by_reference = {row.reference.key: row for row in rows if _has_values(sides, row)}
        self.regions = Regions(sides.reference, set(self.by_reference))
        self.paired = {row.target.key for row in self.by_reference.values()}
        self.expected = ExpectedErrors(self)
        self.cancellation = Cancellation(sides, session, self.op)

    def add_errors(self) -> list[Row]:
        """Add to each row the error that its op introduced, or the reason why it is unknown."""
        rows = list(self.rows)
        groups: dict[tuple[OpKey, Part], list[int]] = {}
        # An op is evaluated after those it reads: the terms of a result go on to its readers.
        in_order = sorted(range(len(rows)), key=lambda index: rows[index].reference.order)
        for index in in_order:
            row = rows[index]
            if is_computed(row) and not row.unmeasured and row.basis == Kept.VALUES:
                groups.setdefault((row.reference.key.op, row.reference.key.part), []).append(index)
        for number, ((op, part), members) in enumerate(groups.items()):
            self.events.send(Step(stage=Stage.INTRODUCED, done=number, total=len(groups)))
            measured = self._rows_of_op(op, part, [rows[m] for m in members])
            for index, row in zip(members, measured, strict=True):
                rows[index] = row
        state_errors = StateErrors(self, measure_against)
        return [state_errors.add_error(row) if is_state(row) else row for row in rows]

    def row_of_producer(self, row: Row, producer: TensorKey) -> Row:
        """The row with the error that the ops before `producer` introduced."""
        stand_in = replace(row, reference=replace(row.reference, key=producer))
        (measured,) = self._evaluate_group(producer.op, producer.part, [stand_in])
        return replace(measured, reference=row.reference)

    def _rows_of_op(self, op: OpKey, part: Part, rows: list[Row]) -> list[Row]:
        """The rows of one reference op with their errors, from the log of an earlier attempt if it
        has them."""
        if self.log is None:
            return list(self._evaluate_group(op, part, rows))
        logged = [self.log.introduced_row(row) for row in rows]
        if None not in logged:
            return [row for row in logged if row is not None]
        measured = list(self._evaluate_group(op, part, rows))
        self.log.add_introduced(measured)
        return measured

    def _evaluate_group(self, op: OpKey, part: Part, rows: list[Row]) -> Iterable[Row]:
        """Measure all rows of one reference op with one evaluation."""
        try:
            exact = self.evaluate_exactly(op, [row.reference.key.index for row in rows], part)
        except (NoRegion, SyncpointError) as error:
            return [replace(row, unknown=explain_unknown(error)) for row in rows]
        # Each further evaluation serves all outputs; none is needed if there is no error.
        extra: dict[str, dict[int, NDArray[Any]]] = {}
        return [self._measure_row(row, exact, extra) for row in rows]

    def evaluate_exactly(
        self,
        op: OpKey,
        indices: list[int],
        part: Part,
        through: AbstractSet[TensorKey] = frozenset(),
    ) -> ExactOutputs:
        """Evaluate the reference's ops in float64 on the target's values; NoRegion if that is not
        possible. `through` are tensors of the reference that are computed even if paired."""
        region = self._find_region(op, indices, part, through)
        elements = self.regions.count_elements(region)
        limit = self.max_elements
        if limit is None and elements > _ALWAYS_FITS:
            limit = available_bytes() // _BYTES_PER_ELEMENT
        if limit is not None and elements > limit:
            raise RegionTooLarge(elements, limit)
        inputs = {edge: self.target_value(edge, part) for edge in region.inputs}
        inputs |= self._recorded_parameters(region)
        return ExactOutputs(region, inputs, self.evaluate(region, inputs))

    def _find_region(
        self, op: OpKey, indices: list[int], part: Part, through: AbstractSet[TensorKey]
    ) -> Region:
        """The region behind an op. It does not end at rounded copies that the target's op does not
        read: a target may quantize a tensor for one reader and pass it on unrounded to another,
        while the reference has a view or a dropout between the two."""
        outputs = (TensorKey(op, Role.OUTPUT, index, part) for index in indices)
        target_ops = {
            self.by_reference[key].target.key.op for key in outputs if key in self.by_reference
        }
        compared = set(self.by_reference) - through
        regions = Regions(self.sides.reference, compared) if through else self.regions
        region = regions.find_behind(op, indices, part)
        unread = self._find_unread_copies(region, target_ops) if target_ops else set()
        if unread:
            region = Regions(self.sides.reference, compared - unread).find_behind(op, indices, part)
        return region

    def _find_unread_copies(self, region: Region, target_ops: set[OpKey]) -> set[TensorKey]:
        """The tensors before a region that are paired with quantized values which none of these
        target ops reads, while one of them reads the tensor that they are copies of."""
        ends = [
            TensorKey(edge.op, edge.role, edge.index, region.part)
            for edge in region.inputs
            if edge.role is Role.OUTPUT
        ]
        if not any(map(self._is_quantized, ends)):
            return set()
        read = find_compared_inputs(self.sides.target, target_ops, region.part, self.paired)
        unread: set[TensorKey] = set()
        for key in ends:
            copies = [key]
            while self._is_quantized(copies[-1]) and not self._is_read(copies[-1], read):
                source = self._source_of_copy(copies[-1])
                if source is None:
                    break
                copies.append(source)
            if self._is_read(copies[-1], read):
                unread.update(copies[:-1])
        return unread

    def _is_quantized(self, key: TensorKey) -> bool:
        """Whether a reference tensor is paired with quantized values."""
        row = self.by_reference.get(key)
        target = None if row is None else self.sides.target.tensor(row.target.key)
        return target is not None and target.quantization is not None

    def _is_read(self, key: TensorKey, read: AbstractSet[TensorKey]) -> bool:
        row = self.by_reference.get(key)
        return row is not None and row.target.key in read

    def _source_of_copy(self, key: TensorKey) -> TensorKey | None:
        """The paired tensor that a reference tensor is a copy or view of; None if it is none."""
        while True:
            op = self.sides.reference.op(key.op)
            if op is None or op_class(op.type) not in TRANSPARENT:
                return None
            sources = [edge for edge in op.inputs if edge.role is not Role.PARAMETER]
            if len(sources) != 1:
                return None
            key = TensorKey(sources[0].op, sources[0].role, sources[0].index, key.part)
            if key in self.by_reference:
                return key

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, NDArray[Any]],
        dtype: str = "f64",
        parameter_dtype: str | None = None,
    ) -> dict[int, NDArray[Any]]:
        """Evaluate a region on these inputs; return its outputs by index."""
        values = self.session.evaluate(region, inputs, dtype, parameter_dtype)
        return {
            edge.index: value
            for edge, value in zip(region.outputs, values, strict=True)
            if value is not None
        }

    def target_value(self, edge: Edge, part: Part) -> NDArray[Any]:
        """The target's value of the tensor that the reference reads as `edge`."""
        key = TensorKey(edge.op, edge.role, edge.index, part)
        row = self.by_reference.get(key)
        if row is not None:
            target = _required(self.sides.target.tensor(row.target.key))
            operand = operand_of(self.sides.target, target)
            operand, _ = fit_view(operand, View(row.view), row.reference.shape)
            return undo_quantization(operand).array
        tensor = self.sides.reference.tensor(key)
        if tensor is None or tensor.kept is not Kept.VALUES:
            raise NoRegion(f"{edge.role} {edge.op} was not recorded")
        return undo_quantization(operand_of(self.sides.reference, tensor)).array

    def _recorded_parameters(self, region: Region) -> dict[Edge, NDArray[Any]]:
        """The parameters as recorded with the reference. The model may have been changed since, for
        example in a notebook."""
        parameters = {}
        for key in region.ops:
            for edge in self.op(key).inputs:
                if edge.role is not Role.PARAMETER or edge in parameters:
                    continue
                tensor = self.sides.reference.tensor(TensorKey(edge.op, edge.role, edge.index))
                if tensor is not None and tensor.kept is Kept.VALUES:
                    parameters[edge] = self.sides.reference.values(tensor)
        return parameters

    def _measure_row(
        self, row: Row, exact: ExactOutputs, extra: dict[str, dict[int, NDArray[Any]]]
    ) -> Row:
        operands = self._prepare_operands(row, exact)
        if isinstance(operands, Reason):
            return replace(row, unknown=operands)
        operand, truth, precision = operands.operand, operands.truth, operands.precision
        measurement = measure_against(operand, truth, operands.reference.dtype)
        if measurement.mismatched:
            truth = copy_non_finite_marks(truth, operand, self.sides.operand(1, operands.reference))
            operands = replace(operands, truth=truth)
            measurement = measure_against(operand, truth, operands.reference.dtype)
        if precision != "exact" and measurement.compared == 0 and not measurement.mismatched:
            return replace(row, unknown=Reason(detail="nothing finite to compare"))
        expected, ratio, expected_noise = self.expected.compare_with_expected(
            operands, measurement, exact, extra
        )
        ops = exact.region.ops
        introduced = Introduced.of_measurement(
            measurement,
            expected=expected,
            ratio=ratio,
            precision=precision,
            region=tuple(map(str, ops)) if len(ops) > 1 else (),
        )
        row = replace(row, introduced=introduced)
        if judge_row(row).verdict is Verdict.INHERITED:
            terms_error = self.cancellation.error_relative_to_terms(row, exact)
            row = replace(row, introduced=replace(introduced, terms_error=terms_error))
        return add_bulk_note(row, measurement, expected_noise)

    def _prepare_operands(self, row: Row, exact: ExactOutputs) -> OutputOperands | Reason:
        """The output of the target's op and its true value, or the reason why they cannot be
        compared."""
        index = row.reference.key.index
        if index not in exact.outputs:
            return Reason(detail="the reference's op gives no tensor here")
        truth = exact.outputs[index]
        if truth.shape != row.reference.shape:
            detail = f"the reference's op gives shape {truth.shape} on the target's values"
            return Reason(detail=detail)
        target = _required(self.sides.target.tensor(row.target.key))
        reference = _required(self.sides.reference.tensor(row.reference.key))
        operand, _ = fit_view(self.sides.operand(0, target), View(row.view), row.reference.shape)
        precision = self.sides.precisions[0].local(
            target.key, target.dtype, target.quantization is not None
        )
        hidden = self.sides.precisions[0].between(target.key, self.paired)
        if precision != "exact":
            precision = coarsest([precision, hidden.results, hidden.parameters])
        counted_elements = self.sides.counted_elements(row)
        if counted_elements is not None:
            masked = blank_masked(operand, truth, counted_elements)
            if masked is None:
                return Reason(detail=f"positions of {operand.dtype} are masked")
            operand, truth = masked
        axis = unordered_axis(self.sides.reference, row.reference.key)
        if axis is not None and operand.array.ndim == truth.ndim:
            operand, truth = sort_along(operand, axis), np.sort(truth, axis=axis)
        return OutputOperands(
            target=target,
            reference=reference,
            operand=operand,
            truth=truth,
            index=index,
            precision=precision,
            hidden=hidden,
        )

    def op(self, key: OpKey) -> Op:
        """The reference op of this key."""
        op = self.sides.reference.op(key)
        if op is None:
            raise KeyError(key)
        return op


def _has_values(sides: Sides, row: Row) -> bool:
    """Whether the target's value at this row can be an input of the reference's ops."""
    if row.basis != Kept.VALUES or row.target.key.role in (Role.PARAMETER, Role.MODEL_OUTPUT):
        return False
    return not row.unmeasured or row.unmeasured.code is ReasonCode.RANDOM


def _required(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise KeyError("a paired tensor is not in its run")
    return tensor
