"""Introduced error in its local form, and the error that was to be expected.

The reference's ops between two sync points are run in float64 on the values the target itself
recorded there. Where the target's output departs from that, the target's op did it; what was
wrong with its inputs is in both and cancels. The reference's parameters are used, so a wrong
weight shows where it is used and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.events import Stage, Step
from syncpoint.comparison.introduced_error.integer_grids import ends_of, grids_behind
from syncpoint.comparison.introduced_error.loop_states import Carried, is_state
from syncpoint.comparison.introduced_error.noise import (
    Noise,
    distance,
    no_noise,
    ratio_of,
    rounding,
    same_noise,
    with_bulk_note,
)
from syncpoint.comparison.introduced_error.regions import (
    NoRegion,
    Regions,
    RegionTooLarge,
    unknown_reason,
)
from syncpoint.comparison.introduced_error.true_values import (
    dtype_name,
    measure_against,
    with_marks_of,
)
from syncpoint.comparison.masking import blanked
from syncpoint.comparison.operands import as_real, dequantized, fitted, operand_of
from syncpoint.comparison.rounded_values import rounded
from syncpoint.comparison.rows import Introduced, Row, is_computed
from syncpoint.comparison.sides import Sides
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.comparison.tensor_precision import Between
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import op_kind
from syncpoint.matching.views import View
from syncpoint.metrics import Measurement, Operand, Pair, measure
from syncpoint.metrics.limits import PRESETS, coarser, coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.free_memory import available_bytes
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.run.statistics import finite_rms
from syncpoint.runtimes.protocol import Evaluates, Region

_ALWAYS_FITS = 1 << 24
"""Elements of a region that is run whatever memory is free."""
_BYTES_PER_ELEMENT = 32
"""Memory that a region takes for each element: in float64, once more in float32, and what is
made of its result."""
_UNITS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "fp8": "f8_e4m3fn"}
_INTEGER_UNITS = {"int8": 2.0**-8, "int4": 2.0**-4, "tf32": 2.0**-11}
"""Unit roundoff of the precisions that are no element type of their own."""
_ACCUMULATING = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "dot", "mv", "einsum", "gemm"}
    | {"conv", "conv1d", "conv2d", "conv3d", "convolution", "convtranspose"}
    | {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
    | {"scaled_dot_product_attention", "sum", "mean", "cumsum", "var", "std", "norm"}
    | {"softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp"}
    | {"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "rms_norm"}
    | {"batch_norm", "native_batch_norm", "instance_norm", "linalg_vector_norm"}
    | {"avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d"}
)
"""Ops whose error in float32 is that of a long sum."""


def add_introduced(
    sides: Sides,
    rows: list[Row],
    session: Evaluates,
    log: ProgressLog | None = None,
    events: EventSink = NULL_SINK,
) -> list[Row]:
    """The rows with what each op introduced, or why that is not known."""
    return Introducer(sides, rows, session, log, events).all()


@dataclass(frozen=True)
class Exact:
    """The float64 outputs of one region on the target's values, with what made them."""

    region: Region
    inputs: Mapping[Edge, NDArray[Any]]
    outputs: dict[int, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class _Operands:
    """One output of an op of the target beside its true value."""

    target: Tensor
    reference: Tensor
    operand: Operand
    """The target's values, seen through the view."""
    truth: NDArray[Any]
    """What the reference's op gives in float64 on the target's values."""
    index: int
    local: str
    """The precision of the op itself."""
    hidden: Between
    """The precisions of ops that only the target has on the way to this one."""


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
        known = [self.log.introduced(row) for row in rows]
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
        return Exact(region, inputs, self._evaluate(region, inputs))

    def _evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, NDArray[Any]],
        dtype: str = "f64",
        parameter_dtype: str | None = None,
    ) -> dict[int, NDArray[Any]]:
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
            operand, _ = fitted(operand, View(row.view), row.reference.shape)
            return as_real(operand).array
        tensor = self.sides.reference.tensor(key)
        if tensor is None or tensor.kept is not Kept.VALUES:
            raise NoRegion(f"{edge.role} {edge.op} was not recorded")
        return as_real(operand_of(self.sides.reference, tensor)).array

    def _recorded_parameters(self, region: Region) -> dict[Edge, NDArray[Any]]:
        """The parameters as they were when the reference was recorded. The model itself may
        have been changed since, which is how faults are planted in notebooks."""
        found = {}
        for key in region.ops:
            for edge in self._op(key).inputs:
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
        expected, ratio, allowed = self._allowed(operands, found, exact, extra)
        ops = exact.region.ops
        made = Introduced.of_measurement(
            found,
            expected=expected,
            ratio=ratio,
            precision=local,
            region=tuple(map(str, ops)) if len(ops) > 1 else (),
        )
        return with_bulk_note(replace(row, introduced=made), found, allowed)

    def _operands(self, row: Row, exact: Exact) -> _Operands | Reason:
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
        operand, _ = fitted(self.sides.operand(0, target), View(row.view), row.reference.shape)
        local = self.sides.precisions[0].local(
            target.key, target.dtype, target.quantization is not None
        )
        hidden = self.sides.precisions[0].between(target.key, self.paired)
        if local != "exact":
            local = coarsest([local, hidden.results, hidden.parameters])
        kept = self.sides.kept(row)
        if kept is not None:
            counted = blanked(operand, truth, kept)
            if counted is None:
                return Reason(detail=f"positions of {operand.dtype} are masked")
            operand, truth = counted
        return _Operands(
            target=target,
            reference=reference,
            operand=operand,
            truth=truth,
            index=index,
            local=local,
            hidden=hidden,
        )

    def _allowed(
        self,
        operands: _Operands,
        found: Measurement,
        exact: Exact,
        extra: dict[str, dict[int, NDArray[Any]]],
    ) -> tuple[float | None, float | None, Noise | None]:
        """The expected error, introduced as a multiple of it, and the noise that it comes from
        where that was needed."""
        operand, truth = operands.operand, operands.truth
        index, local = operands.index, operands.local
        if local == "exact":
            good = found.equal == found.count or self._is_twin(operand, exact, index)
            return 0.0, (0.0 if good else inf), None
        if found.rmse == 0 and not found.mismatched:
            return None, 0.0, None
        target, hidden = operands.target, operands.hidden
        allowed = self._expected(operand, target, truth, exact, index, local, hidden, extra)
        if local in _INTEGER_UNITS:
            cut = self._cut_off(target, truth, self.sides.operand(1, operands.reference))
            allowed = np.hypot(allowed, cut)
        ratio = ratio_of(found, allowed)
        off = ratio > PRESETS[local].introduced[0] and not found.mismatched
        if off and self._is_twin(operand, exact, index):
            return found.rmse or 0.0, 1.0, None
        return float(allowed[0]), ratio, allowed

    def _expected(
        self,
        operand: Operand,
        target: Tensor,
        truth: NDArray[Any],
        exact: Exact,
        index: int,
        local: str,
        hidden: Between,
        extra: dict[str, dict[int, NDArray[Any]]],
    ) -> Noise:
        """Root mean square of the error that the op's precision allows: the greatest of what
        rounding the result, rounding the parameters and computing in this precision cost."""
        costs = [rounding(operand, truth)]
        if len(exact.region.ops) > 1:
            if "stepwise" not in extra:
                extra["stepwise"] = self._stepwise(exact, operand.dtype)
            costs.append(distance(extra["stepwise"].get(index), truth))
        within = _UNITS.get(hidden.results, operand.dtype)
        if coarser(hidden.results, "f32") and within != operand.dtype:
            if "within" not in extra:
                inputs = rounded(exact.inputs, within)
                found = self._stepwise(replace(exact, inputs=inputs), within)
                extra["within"] = found or self._evaluate(exact.region, inputs)
            costs.append(distance(extra["within"].get(index), truth))
        parameters = hidden.parameters
        if parameters in _UNITS and coarser(parameters, "f32"):
            if "parameters" not in extra:
                extra["parameters"] = self._evaluate(
                    exact.region, exact.inputs, "f64", _UNITS[parameters]
                )
            costs.append(distance(extra["parameters"].get(index), truth))
        if "f32" not in extra:
            try:
                extra["f32"] = self._evaluate(exact.region, exact.inputs, "f32")
            except SyncpointError:
                extra["f32"] = {}
        costs.append(
            self._gain(exact.region, local, target) * distance(extra["f32"].get(index), truth)
        )
        if local in _INTEGER_UNITS:
            costs.append(self._integers(target, truth, exact, index, extra))
        return np.asarray(np.maximum.reduce(costs))

    def _integers(
        self,
        target: Tensor,
        truth: NDArray[Any],
        exact: Exact,
        index: int,
        extra: dict[str, dict[int, NDArray[Any]]],
    ) -> Noise:
        """What rounding to integers between this op and the sync points before it costs: of
        its inputs, of its parameters and of what lies in between, which add up as noise does."""
        grids = grids_behind(self.sides.target, target.key, self.paired)
        if not grids:
            return no_noise()
        if "grids" not in extra:
            rows = {e: self.by_reference.get(self._key(e, exact)) for e in exact.inputs}
            paired = {e: row.target.key for e, row in rows.items() if row is not None}
            fed = grids.rounded_inputs(exact.inputs, paired)
            extra["grids"] = self._evaluate(exact.region, fed)
            fed = grids.rounded_parameters(self.sides.target, exact.inputs)
            extra["levels"] = self._evaluate(exact.region, fed)
        noise = [distance(extra[name].get(index), truth) for name in ("grids", "levels")]
        passed_on = same_noise(grids.passed_on(truth.size))
        return np.asarray(np.linalg.norm([*noise, passed_on], axis=0))

    def _cut_off(self, target: Tensor, truth: NDArray[Any], reference: Operand) -> float:
        """What integers that hold all that the reference has cut off here: error of ops before
        drives values beyond their ends, and that is not this op's doing."""
        grids = grids_behind(self.sides.target, target.key, self.paired).between
        own = np.asarray(dequantized(reference), np.float64)
        costs = [0.0]
        for grid in [*grids, *([target] if target.quantization is not None else [])]:
            ends = ends_of(grid, truth.shape)
            if ends is None or grid.count != truth.size or own.shape != truth.shape:
                continue
            cut, theirs = (finite_rms(value - np.clip(value, *ends)) for value in (truth, own))
            if theirs < cut / 4:
                costs.append(cut)
        return max(costs)

    def _key(self, edge: Edge, exact: Exact) -> TensorKey:
        return TensorKey(edge.op, edge.role, edge.index, exact.region.part)

    def _is_twin(self, operand: Operand, exact: Exact, index: int) -> bool:
        """Whether the target has the very bits that the reference's op gives in the target's
        own types: a constant such as 0.1 is another number in each of them, and float64
        knows only its own."""
        floats = [
            DTYPES[dtype_name(v)] for e, v in exact.inputs.items() if e.role is not Role.PARAMETER
        ]
        kinds = {d.name for d in floats if d.kind is Kind.FLOAT}
        kinds |= {operand.dtype} & {"f32", "f16", "bf16"}
        for dtype in sorted(kinds - {"f64"}):
            try:
                twin = self._evaluate(exact.region, exact.inputs, dtype).get(index)
            except SyncpointError:
                continue
            if twin is not None and twin.shape == operand.array.shape:
                found = measure([Pair(operand, Operand(twin, dtype_name(twin)))])[0]
                if found.equal == found.count:
                    return True
        return False

    def _gain(self, region: Region, local: str, target: Tensor) -> float:
        """How much worse than in float32 the ops compute in the target's precision. Ops that
        accumulate err in their accumulator, which is a float32 whatever they read and write."""
        narrow = target.dtype != "f64"
        if narrow and any(op_kind(self._op(k).type) in _ACCUMULATING for k in region.ops):
            return 1.0
        return _unit(local, target.dtype) / DTYPES["f32"].unit

    def _op(self, key: OpKey) -> Op:
        op = self.sides.reference.op(key)
        if op is None:
            raise KeyError(key)
        return op

    def _stepwise(self, exact: Exact, dtype: str) -> dict[int, NDArray[Any]]:
        """The region's outputs where every op inside rounds its result to the target's type, as
        a target that keeps the tensors in between, but does not show them, would."""
        needed = {edge for key in exact.region.ops for edge in self._op(key).inputs}
        needed |= set(exact.region.outputs)
        known: dict[Edge, NDArray[Any]] = dict(exact.inputs)
        numpy = DTYPES[dtype].numpy
        if DTYPES[dtype].kind is not Kind.FLOAT:
            return {}
        try:
            for key in exact.region.ops:
                wanted = tuple(sorted((e for e in needed if e.op == key), key=lambda e: e.index))
                fed = tuple(e for e in self._op(key).inputs if e in known)
                step = Region((key,), fed, wanted, exact.region.part)
                values = self.session.evaluate(step, {e: known[e] for e in fed}, "f64")
                for edge, value in zip(wanted, values, strict=True):
                    if value is None:
                        continue
                    with np.errstate(over="ignore", invalid="ignore"):
                        rounded = value.astype(numpy) if value.dtype.kind == "f" else value
                    known[edge] = rounded
        except SyncpointError:
            return {}
        return {e.index: known[e] for e in exact.region.outputs if e in known}


def _has_values(sides: Sides, row: Row) -> bool:
    """Whether the target's value at this row can be fed to the reference's ops."""
    if row.basis != Kept.VALUES or row.target.key.role in (Role.PARAMETER, Role.MODEL_OUTPUT):
        return False
    return not row.unmeasured or row.unmeasured.code is ReasonCode.RANDOM


def _required(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise KeyError("a paired tensor is not in its run")
    return tensor


def _unit(local: str, dtype: str) -> float:
    if local in _INTEGER_UNITS:
        return _INTEGER_UNITS[local]
    if dtype == "f64" and local == "f32":
        return DTYPES["f64"].unit
    return DTYPES[_UNITS.get(local, "f32")].unit
