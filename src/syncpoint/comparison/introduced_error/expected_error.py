"""The error that the precision of an op allows, and introduced error as a multiple of it.

Errors are root mean squares of all elements and of the bulk, side by side: a few massive
activations hide the rest. What rounding costs an element of 10,000 is more than everything that
can go wrong with the elements of size 1 around it. `metrics/limits.py` judges total error by the
bulk for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.grids_between_sync_points import ends_of, grids_behind
from syncpoint.comparison.introduced_error.true_values import Exact, OutputOperands, dtype_name
from syncpoint.comparison.operands import dequantize, quantization_steps
from syncpoint.comparison.rounded_values import round_inputs
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.comparison.tensor_precision import PrecisionBetween
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import op_kind
from syncpoint.metrics import Measurement, Operand, Pair, measure
from syncpoint.metrics.limits import PRESETS, is_coarser
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.statistics import finite_rms
from syncpoint.runtimes.protocol import Evaluates, Region

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

Noise = NDArray[np.float64]
"""Root mean square of all elements, then of those that are no outliers of the true values. The two
are the same where there are no outliers."""

BESIDE_OUTLIERS = "introduced ÷ expected is of the elements beside the outliers"
"""The note of a row whose bulk is worse than the whole."""


def no_noise() -> Noise:
    """Nothing is off."""
    return np.zeros(2)


def same_noise(rms: float) -> Noise:
    """Noise that outliers and bulk have alike."""
    return np.array([rms, rms])


def noise_of(found: Measurement) -> Noise:
    """The error of a measurement that was made with `bulk`."""
    rms = found.rmse or 0.0
    return np.array([rms, rms if found.bulk_rmse is None else found.bulk_rmse])


def distance(values: NDArray[Any] | None, truth: NDArray[Any]) -> Noise:
    """How far values are from the truth; none where they are of another shape."""
    if values is None or values.shape != truth.shape or not truth.size:
        return no_noise()
    mine, theirs = (Operand(array, from_numpy(array.dtype).name) for array in (values, truth))
    return noise_of(measure([Pair(mine, theirs)], bulk=True)[0])


def rounding(operand: Operand, truth: NDArray[Any]) -> Noise:
    """What rounding the exact result to the target's type costs."""
    if operand.quantization is not None and truth.dtype.kind == "f":
        return same_noise(_quantizing(operand, truth))
    dtype = DTYPES[operand.dtype]
    if dtype.kind not in (Kind.FLOAT, Kind.COMPLEX) or truth.dtype.kind not in "fc":
        return no_noise()
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = truth.astype(dtype.numpy)
    return distance(rounded, truth)


def _quantizing(operand: Operand, truth: NDArray[Any]) -> float:
    """Half a step spread evenly: the mean square of rounding to a grid is step²/12."""
    if operand.quantization is None or operand.quantization.table or not truth.size:
        return 0.0
    return float(np.sqrt(np.mean(np.square(quantization_steps(operand))) / 12))


def ratio_of(found: Measurement, expected: Noise) -> float:
    """Introduced over expected error, of all elements or of the bulk, whichever is worse."""
    if found.mismatched:
        return inf
    return max(_ratio(*pair) for pair in zip(noise_of(found), expected, strict=True))


def with_bulk_note(row: Row, found: Measurement, expected: Noise | None) -> Row:
    """The row, with a note where it is guilty by its bulk alone."""
    made = row.introduced
    if made is None or expected is None or found.mismatched or found.bulk_rmse is None:
        return row
    whole, bulk = (_ratio(*pair) for pair in zip(noise_of(found), expected, strict=True))
    if bulk <= max(whole, PRESETS[made.preset].introduced[0]):
        return row
    return replace(row, notes=(*row.notes, BESIDE_OUTLIERS))


def _ratio(introduced: float, expected: float) -> float:
    if not introduced:
        return 0.0
    return float(introduced / expected) if expected > 0 else inf


class EvaluatesReference(Protocol):
    """What the expected error needs of the calculation that asks for it."""

    sides: Sides
    session: Evaluates
    by_reference: dict[TensorKey, Row]
    paired: set[TensorKey]

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, NDArray[Any]],
        dtype: str = "f64",
        parameter_dtype: str | None = None,
    ) -> dict[int, NDArray[Any]]:
        """The outputs of a region on these inputs, by index."""

    def op(self, key: OpKey) -> Op:
        """The reference op of this key."""


class ExpectedErrors:
    """The errors that the precision of each op of the target allows."""

    def __init__(self, introducer: EvaluatesReference) -> None:
        self._introducer = introducer

    def allow(
        self,
        operands: OutputOperands,
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
            cut = self._cut_off(
                target, truth, self._introducer.sides.operand(1, operands.reference)
            )
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
        hidden: PrecisionBetween,
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
        if is_coarser(hidden.results, "f32") and within != operand.dtype:
            if "within" not in extra:
                inputs = round_inputs(exact.inputs, within)
                found = self._stepwise(replace(exact, inputs=inputs), within)
                extra["within"] = found or self._introducer.evaluate(exact.region, inputs)
            costs.append(distance(extra["within"].get(index), truth))
        parameters = hidden.parameters
        if parameters in _UNITS and is_coarser(parameters, "f32"):
            if "parameters" not in extra:
                extra["parameters"] = self._introducer.evaluate(
                    exact.region, exact.inputs, "f64", _UNITS[parameters]
                )
            costs.append(distance(extra["parameters"].get(index), truth))
        if "f32" not in extra:
            try:
                extra["f32"] = self._introducer.evaluate(exact.region, exact.inputs, "f32")
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
        grids = grids_behind(self._introducer.sides.target, target.key, self._introducer.paired)
        if not grids:
            return no_noise()
        if "grids" not in extra:
            rows = {e: self._introducer.by_reference.get(self._key(e, exact)) for e in exact.inputs}
            paired = {e: row.target.key for e, row in rows.items() if row is not None}
            fed = grids.rounded_inputs(exact.inputs, paired)
            extra["grids"] = self._introducer.evaluate(exact.region, fed)
            fed = grids.rounded_parameters(self._introducer.sides.target, exact.inputs)
            extra["levels"] = self._introducer.evaluate(exact.region, fed)
        noise = [distance(extra[name].get(index), truth) for name in ("grids", "levels")]
        passed_on = same_noise(grids.passed_on(truth.size))
        return np.asarray(np.linalg.norm([*noise, passed_on], axis=0))

    def _cut_off(self, target: Tensor, truth: NDArray[Any], reference: Operand) -> float:
        """What integers that hold all that the reference has cut off here: error of ops before
        drives values beyond their ends, and that is not this op's doing."""
        grids = grids_behind(
            self._introducer.sides.target, target.key, self._introducer.paired
        ).between
        own = np.asarray(dequantize(reference), np.float64)
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
                twin = self._introducer.evaluate(exact.region, exact.inputs, dtype).get(index)
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
        if narrow and any(
            op_kind(self._introducer.op(k).type) in _ACCUMULATING for k in region.ops
        ):
            return 1.0
        return _unit(local, target.dtype) / DTYPES["f32"].unit

    def _stepwise(self, exact: Exact, dtype: str) -> dict[int, NDArray[Any]]:
        """The region's outputs where every op inside rounds its result to the target's type, as
        a target that keeps the tensors in between, but does not show them, would."""
        needed = {edge for key in exact.region.ops for edge in self._introducer.op(key).inputs}
        needed |= set(exact.region.outputs)
        known: dict[Edge, NDArray[Any]] = dict(exact.inputs)
        numpy = DTYPES[dtype].numpy
        if DTYPES[dtype].kind is not Kind.FLOAT:
            return {}
        try:
            for key in exact.region.ops:
                wanted = tuple(sorted((e for e in needed if e.op == key), key=lambda e: e.index))
                fed = tuple(e for e in self._introducer.op(key).inputs if e in known)
                step = Region((key,), fed, wanted, exact.region.part)
                values = self._introducer.session.evaluate(step, {e: known[e] for e in fed}, "f64")
                for edge, value in zip(wanted, values, strict=True):
                    if value is None:
                        continue
                    with np.errstate(over="ignore", invalid="ignore"):
                        rounded = value.astype(numpy) if value.dtype.kind == "f" else value
                    known[edge] = rounded
        except SyncpointError:
            return {}
        return {e.index: known[e] for e in exact.region.outputs if e in known}


def _unit(local: str, dtype: str) -> float:
    if local in _INTEGER_UNITS:
        return _INTEGER_UNITS[local]
    if dtype == "f64" and local == "f32":
        return DTYPES["f64"].unit
    return DTYPES[_UNITS.get(local, "f32")].unit
