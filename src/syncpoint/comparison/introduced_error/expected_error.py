"""Error that an op's precision allows (rounding, quantization, clipping as RMS; zero if bit-equal
step by step), and introduced error as a multiple of it.

Errors are root mean squares of all elements and of the bulk, since a few massive activations hide
the rest: the rounding error of an element of 10,000 is larger than any error in elements of size 1.
`metrics/limits.py` judges total error by the bulk for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.grids_between_sync_points import (
    find_grids_behind,
    grid_range,
)
from syncpoint.comparison.introduced_error.true_values import (
    ExactOutputs,
    OutputOperands,
    dtype_name,
)
from syncpoint.comparison.operands import dequantize, quantization_steps
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

_ROUNDING_DTYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "fp8": "f8_e4m3fn"}
"""The element type to which each float precision rounds."""
_UNIT_ROUNDOFFS = {"int8": 2.0**-8, "int4": 2.0**-4, "tf32": 2.0**-11}
"""Unit roundoff of the precisions without an element type."""
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
"""Ops that sum many terms: their error is that of the accumulator."""
Noise = NDArray[np.float64]
"""Two root mean squares: of all elements, and of those that are not outliers of the true values.
The two are equal if there are no outliers."""
BESIDE_OUTLIERS = "introduced ÷ expected is of the elements beside the outliers"
"""Note on a row whose bulk has a larger ratio than all its elements."""


def zero_noise() -> Noise:
    """No error."""
    return np.zeros(2)


def uniform_noise(rms: float) -> Noise:
    """The same root mean square for all elements and for the bulk."""
    return np.array([rms, rms])


def noise_of(measurement: Measurement) -> Noise:
    """The error of a measurement that was taken with `bulk`."""
    rms = measurement.rmse or 0.0
    return np.array([rms, rms if measurement.bulk_rmse is None else measurement.bulk_rmse])


def noise_between(values: NDArray[Any] | None, truth: NDArray[Any]) -> Noise:
    """The error of values against the truth; zero if their shapes differ."""
    if values is None or values.shape != truth.shape or not truth.size:
        return zero_noise()
    values_operand, truth_operand = (
        Operand(array, from_numpy(array.dtype).name) for array in (values, truth)
    )
    return noise_of(measure([Pair(values_operand, truth_operand)], bulk=True)[0])


def rounding_noise(operand: Operand, truth: NDArray[Any]) -> Noise:
    """The error of rounding the exact values to the target's type."""
    if operand.quantization is not None and truth.dtype.kind == "f":
        return uniform_noise(_quantization_rms(operand, truth))
    dtype = DTYPES[operand.dtype]
    if dtype.kind not in (Kind.FLOAT, Kind.COMPLEX) or truth.dtype.kind not in "fc":
        return zero_noise()
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = truth.astype(dtype.numpy)
    return noise_between(rounded, truth)


def _quantization_rms(operand: Operand, truth: NDArray[Any]) -> float:
    """Root mean square of rounding to a grid: the mean square is step²/12."""
    if operand.quantization is None or operand.quantization.table or not truth.size:
        return 0.0
    return float(np.sqrt(np.mean(np.square(quantization_steps(operand))) / 12))


def ratio_of(measurement: Measurement, expected: Noise) -> float:
    """Introduced over expected error: the larger ratio of all elements and of the bulk."""
    if measurement.mismatched:
        return inf
    return max(_ratio(*pair) for pair in zip(noise_of(measurement), expected, strict=True))


def add_bulk_note(row: Row, measurement: Measurement, expected: Noise | None) -> Row:
    """Add a note to the row if only its bulk exceeds the expected error."""
    introduced = row.introduced
    if introduced is None or expected is None:
        return row
    if measurement.mismatched or measurement.bulk_rmse is None:
        return row
    all_ratio, bulk_ratio = (
        _ratio(*pair) for pair in zip(noise_of(measurement), expected, strict=True)
    )
    if bulk_ratio <= max(all_ratio, PRESETS[introduced.preset].introduced[0]):
        return row
    return replace(row, notes=(*row.notes, BESIDE_OUTLIERS))


def _ratio(introduced: float, expected: float) -> float:
    if not introduced:
        return 0.0
    return float(introduced / expected) if expected > 0 else inf


class EvaluatesReference(Protocol):
    """What the expected error needs from the calculation of introduced error."""

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
        """Evaluate a region on these inputs; return its outputs by index."""

    def op(self, key: OpKey) -> Op:
        """The reference op of this key."""


class ExpectedErrors:
    """Calculates the error that the precision of a target op allows."""

    def __init__(self, calculation: EvaluatesReference) -> None:
        self._calculation = calculation

    def compare_with_expected(
        self,
        operands: OutputOperands,
        measurement: Measurement,
        exact: ExactOutputs,
        extra: dict[str, dict[int, NDArray[Any]]],
    ) -> tuple[float | None, float | None, Noise | None]:
        """Return the expected error, introduced error as a multiple of it, and the expected noise;
        None for what was not needed. `extra` caches evaluations of the region."""
        operand, truth = operands.operand, operands.truth
        index, precision = operands.index, operands.precision
        if precision == "exact":
            is_equal = measurement.equal == measurement.count
            is_equal = is_equal or self._is_bit_equal(operand, exact, index)
            return 0.0, (0.0 if is_equal else inf), None
        if measurement.rmse == 0 and not measurement.mismatched:
            return None, 0.0, None
        target, hidden = operands.target, operands.hidden
        expected = self._expected_noise(
            operand, target, truth, exact, index, precision, hidden, extra
        )
        if precision in _UNIT_ROUNDOFFS:
            reference = self._calculation.sides.operand(1, operands.reference)
            clipping = self._clipping_rms(target, truth, reference)
            expected = np.hypot(expected, clipping)
        ratio = ratio_of(measurement, expected)
        is_above_limit = ratio > PRESETS[precision].introduced[0] and not measurement.mismatched
        if is_above_limit and self._is_bit_equal(operand, exact, index):
            return measurement.rmse or 0.0, 1.0, None
        return float(expected[0]), ratio, expected

    def _expected_noise(
        self,
        operand: Operand,
        target: Tensor,
        truth: NDArray[Any],
        exact: ExactOutputs,
        index: int,
        precision: str,
        hidden: PrecisionBetween,
        extra: dict[str, dict[int, NDArray[Any]]],
    ) -> Noise:
        """The error that the precision of the op allows: the largest error of rounding the result,
        of rounding the parameters and of computing in this precision."""
        errors = [rounding_noise(operand, truth)]
        if len(exact.region.ops) > 1:
            if "stepwise" not in extra:
                extra["stepwise"] = self._evaluate_stepwise(exact, operand.dtype)
            errors.append(noise_between(extra["stepwise"].get(index), truth))
        hidden_dtype = _ROUNDING_DTYPES.get(hidden.results, operand.dtype)
        if is_coarser(hidden.results, "f32") and hidden_dtype != operand.dtype:
            if "within" not in extra:
                inputs = round_inputs(exact.inputs, hidden_dtype)
                outputs = self._evaluate_stepwise(replace(exact, inputs=inputs), hidden_dtype)
                extra["within"] = outputs or self._calculation.evaluate(exact.region, inputs)
            errors.append(noise_between(extra["within"].get(index), truth))
        parameters = hidden.parameters
        if parameters in _ROUNDING_DTYPES and is_coarser(parameters, "f32"):
            if "parameters" not in extra:
                extra["parameters"] = self._calculation.evaluate(
                    exact.region, exact.inputs, "f64", _ROUNDING_DTYPES[parameters]
                )
            errors.append(noise_between(extra["parameters"].get(index), truth))
        if "f32" not in extra:
            try:
                extra["f32"] = self._calculation.evaluate(exact.region, exact.inputs, "f32")
            except SyncpointError:
                extra["f32"] = {}
        errors.append(
            self._precision_factor(exact.region, precision, target)
            * noise_between(extra["f32"].get(index), truth)
        )
        if precision in _UNIT_ROUNDOFFS:
            errors.append(self._integer_noise(target, truth, exact, index, extra))
        return np.asarray(np.maximum.reduce(errors))

    def _integer_noise(
        self,
        target: Tensor,
        truth: NDArray[Any],
        exact: ExactOutputs,
        index: int,
        extra: dict[str, dict[int, NDArray[Any]]],
    ) -> Noise:
        """The error of rounding to integers between this op and the sync points before it: of its
        inputs, its parameters and the tensors in between, added as independent noise."""
        grids = find_grids_behind(
            self._calculation.sides.target, target.key, self._calculation.paired
        )
        if not grids:
            return zero_noise()
        if "grids" not in extra:
            rows = {
                e: self._calculation.by_reference.get(self._key(e, exact)) for e in exact.inputs
            }
            paired = {e: row.target.key for e, row in rows.items() if row is not None}
            rounded_values = grids.round_inputs(exact.inputs, paired)
            extra["grids"] = self._calculation.evaluate(exact.region, rounded_values)
            rounded_values = grids.round_parameters(self._calculation.sides.target, exact.inputs)
            extra["levels"] = self._calculation.evaluate(exact.region, rounded_values)
        noise = [noise_between(extra[name].get(index), truth) for name in ("grids", "levels")]
        passed_on = uniform_noise(grids.passed_on_rms(truth.size))
        return np.asarray(np.linalg.norm([*noise, passed_on], axis=0))

    def _clipping_rms(self, target: Tensor, truth: NDArray[Any], reference: Operand) -> float:
        """Root mean square of the values that integers clip here although they can hold the values
        of the reference: an error upstream moved values out of range, which is not this op's
        error."""
        grids = find_grids_behind(
            self._calculation.sides.target, target.key, self._calculation.paired
        ).between
        reference_values = np.asarray(dequantize(reference), np.float64)
        errors = [0.0]
        for grid in [*grids, *([target] if target.quantization is not None else [])]:
            value_range = grid_range(grid, truth.shape)
            if value_range is None or grid.count != truth.size:
                continue
            if reference_values.shape != truth.shape:
                continue
            clipped, reference_clipped = (
                finite_rms(value - np.clip(value, *value_range))
                for value in (truth, reference_values)
            )
            if reference_clipped < clipped / 4:
                errors.append(clipped)
        return max(errors)

    def _key(self, edge: Edge, exact: ExactOutputs) -> TensorKey:
        return TensorKey(edge.op, edge.role, edge.index, exact.region.part)

    def _is_bit_equal(self, operand: Operand, exact: ExactOutputs, index: int) -> bool:
        """Whether the target is bit-equal to the reference's ops in one of the target's own types.
        A constant such as 0.1 is a different number in each type, also in float64."""
        dtypes = [
            DTYPES[dtype_name(v)] for e, v in exact.inputs.items() if e.role is not Role.PARAMETER
        ]
        names = {d.name for d in dtypes if d.kind is Kind.FLOAT}
        names |= {operand.dtype} & {"f32", "f16", "bf16"}
        for dtype in sorted(names - {"f64"}):
            try:
                output = self._calculation.evaluate(exact.region, exact.inputs, dtype).get(index)
            except SyncpointError:
                continue
            if output is not None and output.shape == operand.array.shape:
                measurement = measure([Pair(operand, Operand(output, dtype_name(output)))])[0]
                if measurement.equal == measurement.count:
                    return True
        return False

    def _precision_factor(self, region: Region, precision: str, target: Tensor) -> float:
        """The error in the target's precision relative to float32. Ops that accumulate have the
        error of their accumulator, which is a float32 for all types of inputs and outputs."""
        kinds = (op_kind(self._calculation.op(key).type) for key in region.ops)
        if target.dtype != "f64" and any(kind in _ACCUMULATING for kind in kinds):
            return 1.0
        return _unit_roundoff(precision, target.dtype) / DTYPES["f32"].unit

    def _evaluate_stepwise(self, exact: ExactOutputs, dtype: str) -> dict[int, NDArray[Any]]:
        """The outputs of a region in which every op rounds its outputs to the target's type, like a
        target that stores the tensors in between; empty if it cannot be evaluated."""
        needed = {edge for key in exact.region.ops for edge in self._calculation.op(key).inputs}
        needed |= set(exact.region.outputs)
        values: dict[Edge, NDArray[Any]] = dict(exact.inputs)
        numpy_dtype = DTYPES[dtype].numpy
        if DTYPES[dtype].kind is not Kind.FLOAT:
            return {}
        try:
            for key in exact.region.ops:
                output_edges = tuple(
                    sorted((edge for edge in needed if edge.op == key), key=lambda edge: edge.index)
                )
                input_edges = tuple(
                    edge for edge in self._calculation.op(key).inputs if edge in values
                )
                step = Region((key,), input_edges, output_edges, exact.region.part)
                outputs = self._calculation.session.evaluate(
                    step, {edge: values[edge] for edge in input_edges}, "f64"
                )
                for edge, value in zip(output_edges, outputs, strict=True):
                    if value is None:
                        continue
                    with np.errstate(over="ignore", invalid="ignore"):
                        is_float = value.dtype.kind == "f"
                        values[edge] = value.astype(numpy_dtype) if is_float else value
        except SyncpointError:
            return {}
        return {edge.index: values[edge] for edge in exact.region.outputs if edge in values}


def _unit_roundoff(precision: str, dtype: str) -> float:
    if precision in _UNIT_ROUNDOFFS:
        return _UNIT_ROUNDOFFS[precision]
    if dtype == "f64" and precision == "f32":
        return DTYPES["f64"].unit
    return DTYPES[_ROUNDING_DTYPES.get(precision, "f32")].unit


def round_inputs(inputs: Mapping[Edge, NDArray[Any]], dtype: str) -> dict[Edge, NDArray[Any]]:
    """The inputs after a cast to a type and back; parameters stay as they are."""
    numpy_dtype = DTYPES[dtype].numpy
    with np.errstate(over="ignore", invalid="ignore"):
        return {
            edge: value.astype(numpy_dtype).astype(value.dtype)
            if value.dtype.kind == "f" and edge.role is not Role.PARAMETER
            else value
            for edge, value in inputs.items()
        }
