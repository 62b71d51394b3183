"""Introduced error in its local form, and the error that was to be expected.

The reference's ops between two sync points are run in float64 on the values the target itself
recorded there. Where the target's output departs from that, the target's op did it; what was
wrong with its inputs is in both and cancels. The reference's parameters are used, so a wrong
weight shows where it is used and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from syncpoint.comparison.events import Stage, Step
from syncpoint.comparison.introduced_error.expected_error import ExpectedErrors, with_bulk_note
from syncpoint.comparison.introduced_error.loop_states import Carried, is_state
from syncpoint.comparison.introduced_error.regions import (
    NoRegion,
    Regions,
    RegionTooLarge,
    unknown_reason,
)
from syncpoint.comparison.introduced_error.true_values import (
    Exact,
    OutputOperands,
    measure_against,
    with_marks_of,
)
from syncpoint.comparison.masking import blank_masked
from syncpoint.comparison.operands import fit_view, operand_of, undo_quantization
from syncpoint.comparison.rows import Introduced, Row, is_computed
from syncpoint.comparison.sides import Sides
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.errors import SyncpointError
from syncpoint.matching.views import View
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.free_memory import available_bytes
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.runtimes.protocol import Evaluates, Region

_ALWAYS_FITS = 1 << 24
"""Elements of a region that is run whatever memory is free."""
_BYTES_PER_ELEMENT = 32
"""Memory that a region takes for each element: in float64, once more in float32, and what is
made of its result."""


def add_introduced(
    sides: Sides,
    rows: list[Row],
    session: Evaluates,
    log: ProgressLog | None = None,
    events: EventSink = NULL_SINK,
) -> list[Row]:
    """The rows with what each op introduced, or why that is not known."""
    return Introducer(sides, rows, session, log, events).all()


class Introducer:
    """Goes through the rows, one reference op at a time."""

    def __init__(
        self,
        sides: Sides,
        rows: list[Row],
        session: Evaluates,
        log: ProgressLog | None,
        events: EventSink = NULL_SINK,
        max_elements: int | None = None,
    ) -> None:
        """A region of more than `max_elements` is not run; with None, of more than fits memory."""
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

    def all(self) -> list[Row]:
        """The rows with what each op introduced, or why that is not known."""
        out = list(self.rows)
        groups: dict[tuple[OpKey, Part], list[int]] = {}
        for at, row in enumerate(out):
            if is_computed(row) and not row.unmeasured and row.basis == Kept.VALUES:
                groups.setdefault((row.reference.key.op, row.reference.key.part), []).append(at)
        for number, ((op, part), members) in enumerate(groups.items()):
            self.events.send(Step(stage=Stage.INTRODUCED, done=number, total=len(groups)))
            found = self._settled(op, part, [out[m] for m in members])
            for at, row in zip(members, found, strict=True):
                out[at] = row
        carried = Carried(self, measure_against)
        return [carried.row(row) if is_state(row) else row for row in out]

    def made_by(self, row: Row, maker: TensorKey) -> Row:
        """A row whose reference is what an op gave, with what the ops before it introduced."""
        stand_in = replace(row, reference=replace(row.reference, key=maker))
        (found,) = self._group(maker.op, maker.part, [stand_in])
        return replace(found, reference=row.reference)

    def _settled(self, op: OpKey, part: Part, rows: list[Row]) -> list[Row]:
        """The rows of one reference op, from the log of an earlier attempt if it has them."""
        if self.log is None:
            return list(self._group(op, part, rows))
        known = [self.log.introduced_row(row) for row in rows]
        if None not in known:
            return [row for row in known if row is not None]
        found = list(self._group(op, part, rows))
        self.log.add_introduced(found)
        return found

    def _group(self, op: OpKey, part: Part, rows: list[Row]) -> Iterable[Row]:
        """All rows of one reference op: one evaluation serves them."""
        try:
            exact = self.exact(op, [row.reference.key.index for row in rows], part)
        except (NoRegion, SyncpointError) as error:
            return [replace(row, unknown=unknown_reason(error)) for row in rows]
        # One more evaluation each serves all outputs, and none is needed where nothing is off.
        extra: dict[str, dict[int, NDArray[Any]]] = {}
        return [self._row(row, exact, extra) for row in rows]

    def exact(
        self,
        op: OpKey,
        indices: list[int],
        part: Part,
        through: AbstractSet[TensorKey] = frozenset(),
    ) -> Exact:
        """What the reference's ops give on the target's values; NoRegion where they cannot.
        `through` are tensors of the reference that are computed, whatever they are paired with."""
        regions = self.regions
        if through:
            regions = Regions(self.sides.reference, set(self.by_reference) - through)
        region = regions.behind(op, indices, part)
        elements = regions.elements(region)
        limit = self.max_elements
        if limit is None and elements > _ALWAYS_FITS:
            limit = available_bytes() // _BYTES_PER_ELEMENT
        if limit is not None and elements > limit:
            raise RegionTooLarge(elements, limit)
        inputs = {edge: self.fed(edge, part) for edge in region.inputs}
        inputs |= self._recorded_parameters(region)
        return Exact(region, inputs, self.evaluate(region, inputs))

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, NDArray[Any]],
        dtype: str = "f64",
        parameter_dtype: str | None = None,
    ) -> dict[int, NDArray[Any]]:
        """The outputs of a region on these inputs, by index."""
        values = self.session.evaluate(region, inputs, dtype, parameter_dtype)
        return {
            edge.index: value
            for edge, value in zip(region.outputs, values, strict=True)
            if value is not None
        }

    def fed(self, edge: Edge, part: Part) -> NDArray[Any]:
        """What the target had at the place where the reference reads `edge`."""
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
        """The parameters as they were when the reference was recorded. The model itself may
        have been changed since, which is how faults are planted in notebooks."""
        found = {}
        for key in region.ops:
            for edge in self.op(key).inputs:
                if edge.role is not Role.PARAMETER or edge in found:
                    continue
                tensor = self.sides.reference.tensor(TensorKey(edge.op, edge.role, edge.index))
                if tensor is not None and tensor.kept is Kept.VALUES:
                    found[edge] = self.sides.reference.values(tensor)
        return found

    def _row(self, row: Row, exact: Exact, extra: dict[str, dict[int, NDArray[Any]]]) -> Row:
        operands = self._operands(row, exact)
        if isinstance(operands, Reason):
            return replace(row, unknown=operands)
        operand, truth, local = operands.operand, operands.truth, operands.local
        found = measure_against(operand, truth, operands.reference.dtype)
        if found.mismatched:
            truth = with_marks_of(truth, operand, self.sides.operand(1, operands.reference))
            operands = replace(operands, truth=truth)
            found = measure_against(operand, truth, operands.reference.dtype)
        if local != "exact" and found.compared == 0 and not found.mismatched:
            return replace(row, unknown=Reason(detail="nothing finite to compare"))
        expected, ratio, allowed = self.expected.allow(operands, found, exact, extra)
        ops = exact.region.ops
        made = Introduced.of_measurement(
            found,
            expected=expected,
            ratio=ratio,
            precision=local,
            region=tuple(map(str, ops)) if len(ops) > 1 else (),
        )
        return with_bulk_note(replace(row, introduced=made), found, allowed)

    def _operands(self, row: Row, exact: Exact) -> OutputOperands | Reason:
        """What the target's op gave and what it should have given, or why they cannot be held
        against each other."""
        index = row.reference.key.index
        if index not in exact.outputs:
            return Reason(detail="the reference's op gives no tensor here")
        truth = exact.outputs[index]
        if truth.shape != row.reference.shape:
            shape = f"the reference's op gives shape {truth.shape} on the target's values"
            return Reason(detail=shape)
        target = _required(self.sides.target.tensor(row.target.key))
        reference = _required(self.sides.reference.tensor(row.reference.key))
        operand, _ = fit_view(self.sides.operand(0, target), View(row.view), row.reference.shape)
        local = self.sides.precisions[0].local(
            target.key, target.dtype, target.quantization is not None
        )
        hidden = self.sides.precisions[0].between(target.key, self.paired)
        if local != "exact":
            local = coarsest([local, hidden.results, hidden.parameters])
        kept = self.sides.counted_elements(row)
        if kept is not None:
            counted = blank_masked(operand, truth, kept)
            if counted is None:
                return Reason(detail=f"positions of {operand.dtype} are masked")
            operand, truth = counted
        return OutputOperands(
            target=target,
            reference=reference,
            operand=operand,
            truth=truth,
            index=index,
            local=local,
            hidden=hidden,
        )

    def op(self, key: OpKey) -> Op:
        """The reference op of this key."""
        op = self.sides.reference.op(key)
        if op is None:
            raise KeyError(key)
        return op


def _has_values(sides: Sides, row: Row) -> bool:
    """Whether the target's value at this row can be fed to the reference's ops."""
    if row.basis != Kept.VALUES or row.target.key.role in (Role.PARAMETER, Role.MODEL_OUTPUT):
        return False
    return not row.unmeasured or row.unmeasured.code is ReasonCode.RANDOM


def _required(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise KeyError("a paired tensor is not in its run")
    return tensor
