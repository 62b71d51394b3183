"""The terms that a sum, mean or difference adds up: their magnitudes, and the total error of the
result relative to them.

The mean of numbers of both signs can be 10,000 times smaller than the numbers. Their rounding
errors are then large beside the mean, although each number, and the mean, is as exact as its
precision allows. So the error of such a result is also compared with the sum of the magnitudes of
its terms. METRICS.md has the rule; `comparison/judge_rows.py` judges by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.true_values import ExactOutputs
from syncpoint.comparison.operands import dequantize, fit_view, operand_of
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import op_class
from syncpoint.matching.views import View
from syncpoint.run.model import Edge, Kept, Op, OpKey, Role, TensorKey
from syncpoint.runtimes.protocol import Evaluates, Region

Values = dict[Edge, NDArray[Any]]

_REDUCTIONS = frozenset({"mean", "sum", "cumsum", "avg_pool", "global_pool"})
"""Ops that add up terms of one input; the weights of the terms are not negative."""
_DIFFERENCES = frozenset({"add", "sub"})
"""Ops that add up their inputs, some of them negated."""
_REARRANGEMENTS = frozenset(
    {"reshape", "transpose", "expand", "identity", "slice", "split", "concat"}
)
"""Ops whose results are elements of their inputs."""
_MEAN_OUTPUTS = {"var_mean": 1, "std_mean": 1, "layer_norm": 1, "group_norm": 1}
"""Ops that return a mean beside other results, with the index of the mean."""
_MIN_CANCELLATION = 4.0
"""How much larger than the result its terms must be; with less, nothing cancels."""
_PEAK_OVER_RMS = 6.0
"""The largest error that counts as an ordinary one, as a multiple of the root mean square; that of
the limit of max_abs."""


class Cancellation:
    """Measures total errors relative to the terms that went into each result."""

    def __init__(self, sides: Sides, session: Evaluates, op: Callable[[OpKey], Op]) -> None:
        self._sides = sides
        self._session = session
        self._op = op
        self._terms: dict[TensorKey, NDArray[Any]] = {}
        """The terms of results that cancel, by reference tensor, for ops that only rearrange or
        scale them."""

    def error_relative_to_terms(self, row: Row, exact: ExactOutputs) -> float | None:
        """The total error of a row relative to its terms: the root mean square over all elements,
        or a sixth of the largest element if that is more. None if nothing cancels, or where the
        reference's inputs are not recorded."""
        numbers = row.numbers or {}
        if not numbers.get("rmse") or numbers.get("mismatched") or numbers.get("masked"):
            return None
        if self._sides.counted_elements(row) is not None or not self._may_cancel(exact.region):
            return None
        try:
            terms = self._sum_magnitudes(exact).get(row.reference.key.index)
        except SyncpointError:
            return None
        target, reference = self._values_of_row(row)
        if terms is None or terms.shape != reference.shape or target.shape != reference.shape:
            return None
        if _rms(terms) < _MIN_CANCELLATION * _rms(reference):
            return None
        self._terms[row.reference.key] = terms
        errors = np.abs(target - reference)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(errors == 0, 0.0, errors / terms)
        return float(max(_rms(relative), relative.max() / _PEAK_OVER_RMS))

    def _values_of_row(self, row: Row) -> tuple[NDArray[Any], NDArray[Any]]:
        """The values of both sides in float64, the target's in the form of the reference."""
        target = self._sides.target.tensor(row.target.key)
        reference = self._sides.reference.tensor(row.reference.key)
        assert target is not None and reference is not None
        operand, _ = fit_view(self._sides.operand(0, target), View(row.view), row.reference.shape)
        return dequantize(operand), dequantize(self._sides.operand(1, reference))

    def _may_cancel(self, region: Region) -> bool:
        """Whether a region adds up terms, or reads a result whose terms cancel."""
        return self._adds_terms(region) or bool(self._terms_read(region))

    def _adds_terms(self, region: Region) -> bool:
        adding = _REDUCTIONS | _DIFFERENCES | _MEAN_OUTPUTS.keys()
        return any(op_class(self._op(key).type) in adding for key in region.ops)

    def _terms_read(self, region: Region) -> Values:
        """The terms of results that cancel, of those that a region reads."""
        keys = {e: TensorKey(e.op, e.role, e.index, region.part) for e in region.inputs}
        return {edge: self._terms[key] for edge, key in keys.items() if key in self._terms}

    def _sum_magnitudes(self, exact: ExactOutputs) -> dict[int, NDArray[Any]]:
        """For each output of a region, the sums of the magnitudes of its terms. They are computed
        from the reference's values: a wrong input of the target must not excuse its own error."""
        region = exact.region
        values = self._read_inputs(exact)
        terms = {edge: np.abs(value) for edge, value in values.items()}
        if not self._adds_terms(region):
            # A sum has only its own terms: those of its inputs may be far larger than the inputs,
            # and would excuse an error in the other inputs.
            terms |= self._terms_read(region)
        needed = {edge for key in region.ops for edge in self._op(key).inputs}
        needed |= set(region.outputs)
        for key in region.ops:
            outputs = tuple(sorted((e for e in needed if e.op == key), key=lambda e: e.index))
            inputs = tuple(edge for edge in self._op(key).inputs if edge in values)
            step = _Step(self._session, Region((key,), inputs, outputs, region.part))
            values |= step.evaluate(values)
            terms |= step.add_magnitudes(op_class(self._op(key).type), values, terms)
        return {edge.index: terms[edge] for edge in region.outputs if edge in terms}

    def _read_inputs(self, exact: ExactOutputs) -> Values:
        """The recorded values of the reference that a region reads, without those not recorded."""
        values: Values = {}
        for edge in exact.inputs:
            part = {} if edge.role is Role.PARAMETER else {"part": exact.region.part}
            tensor = self._sides.reference.tensor(TensorKey(edge.op, edge.role, edge.index, **part))
            if tensor is not None and tensor.kept is Kept.VALUES:
                stored = operand_of(self._sides.reference, tensor)
                is_real = stored.quantization is not None or stored.array.dtype.kind == "f"
                values[edge] = dequantize(stored) if is_real else stored.array
        return values


class _Step:
    """One op of a region, evaluated on chosen values."""

    def __init__(self, session: Evaluates, region: Region) -> None:
        self._session = session
        self._region = region

    def evaluate(self, values: Mapping[Edge, NDArray[Any]]) -> Values:
        """The outputs of the op on these values, in float64."""
        inputs = {edge: values[edge] for edge in self._region.inputs}
        outputs = self._session.evaluate(self._region, inputs, "f64")
        pairs = zip(self._region.outputs, outputs, strict=True)
        return {edge: value for edge, value in pairs if value is not None}

    def add_magnitudes(
        self,
        kind: str,
        values: Mapping[Edge, NDArray[Any]],
        terms: Mapping[Edge, NDArray[Any]],
    ) -> Values:
        """The sums of the magnitudes of the terms of each output."""
        own = {edge: np.abs(values[edge]) for edge in self._region.outputs if edge in values}
        if kind in _DIFFERENCES:
            return self._add_inputs(terms)
        if kind == "div":
            divisor = self._region.inputs[-1:] if len(self._region.inputs) > 1 else ()
            return self._magnitudes_of({**terms, **{edge: values[edge] for edge in divisor}})
        if kind in ("mul", "neg") or kind in _REDUCTIONS or kind in _REARRANGEMENTS:
            return self._magnitudes_of(terms)
        if kind in _MEAN_OUTPUTS:
            means = self._magnitudes_of(terms)
            index = _MEAN_OUTPUTS[kind]
            return own | {edge: value for edge, value in means.items() if edge.index == index}
        return own

    def _magnitudes_of(self, terms: Mapping[Edge, NDArray[Any]]) -> Values:
        return {edge: np.abs(value) for edge, value in self.evaluate(terms).items()}

    def _add_inputs(self, terms: Mapping[Edge, NDArray[Any]]) -> Values:
        """The magnitudes of what each input contributes, added up, and of a number in the op."""
        zeros = {edge: np.zeros_like(terms[edge]) for edge in self._region.inputs}
        without_inputs = self.evaluate(zeros)
        sums = {edge: np.abs(value) for edge, value in without_inputs.items()}
        for read in self._region.inputs:
            for edge, value in self.evaluate({**zeros, read: terms[read]}).items():
                sums[edge] = sums[edge] + np.abs(value - without_inputs[edge])
        return sums


def _rms(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
