"""Evaluate regions of the reference in float64 with NumPy, from recorded ops, where its model
cannot be run; test that a form reproduces its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.diagnosis.budget import MAX_REGION_ELEMENTS, check_time, note_too_large
from syncpoint.diagnosis.numpy_ops.recorded_op import Bound
from syncpoint.diagnosis.numpy_ops.registry import is_known, readings, results
from syncpoint.errors import SyncpointError, Unsupported
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import rms
from syncpoint.runtimes.protocol import EdgeValues, Evaluates, Region

Array = NDArray[Any]
_MAX_ERROR_ROUNDINGS = 16.0
"""Allowed error, in multiples of one rounding of each input and of the result."""


class NumpyEvaluator:
    """Evaluates regions of a recorded model from its ops, attributes and parameters alone."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._forms: dict[tuple[OpKey, Part], int] = {}

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """Return the region's outputs; raise Unsupported if NumPy has no form of one of its ops."""
        if dtype != "f64":
            raise Unsupported(f"ops of a recording are evaluated in float64 only, not in {dtype}")
        value_by_edge: dict[Edge, Array] = {}
        for edge, value in inputs.items():
            value_by_edge[edge] = _widen(
                value, parameter_dtype if edge.role is Role.PARAMETER else None
            )
        for key in region.ops:
            op = self._run.op(key)
            if op is None:
                raise Unsupported(f"the recording has no op {key}")
            outputs = self._compute_outputs(op, value_by_edge, region.part, parameter_dtype)
            for index, value in enumerate(outputs):
                value_by_edge.setdefault(Edge(key, index), value)
        return [value_by_edge.get(edge) for edge in region.outputs]

    def _compute_outputs(
        self, op: Op, value_by_edge: dict[Edge, Array], part: Part, parameter_dtype: str | None
    ) -> Sequence[Array]:
        form = self._find_form(op, part)
        if not op.inputs:
            return self._read_outputs(op, part)
        arguments = []
        for edge in op.inputs:
            if edge not in value_by_edge and edge.role is Role.PARAMETER:
                value = self._read_edge(edge, part)
                if value is not None:
                    value_by_edge[edge] = _widen(value, parameter_dtype)
            arguments.append(value_by_edge.get(edge))
        for index, bound in enumerate(readings(op, arguments)):
            outputs = results(bound) if index == form else None
            if outputs is not None:
                return outputs
        raise Unsupported(f"{op.key} ({op.type}) cannot be evaluated on these values")

    def _find_form(self, op: Op, part: Part) -> int:
        """Return which form of the op reproduces its record; raise Unsupported if none does."""
        key = (op.key, part)
        if key not in self._forms:
            self._forms[key] = self._search_form(op, part)
        if self._forms[key] < 0:
            raise Unsupported(f"no NumPy form of {op.type} reproduces its recorded output")
        return self._forms[key]

    def _search_form(self, op: Op, part: Part) -> int:
        if not op.inputs:
            return 0 if not op.random and self._read_outputs(op, part) else -1
        if not is_known(op):
            return -1
        arguments = [self._read_edge(edge, part) for edge in op.inputs]
        if any(value is None for value in arguments):
            return -1
        tensors = self._list_outputs(op, part)
        if not tensors:
            return -1
        unit = self._coarsest_unit([*tensors, *(self._find_tensor(e, part) for e in op.inputs)])
        for form, bound in enumerate(readings(op, arguments)):
            if self._reproduces(bound, tensors, unit):
                return form
        return -1

    def _reproduces(self, bound: Bound, tensors: list[Tensor], unit: float) -> bool:
        outputs = results(bound)
        if outputs is None:
            return False
        perturbed = results(_perturb(bound, unit)) or ()
        for tensor in tensors:
            index = tensor.key.index
            recorded = self._read(tensor)
            if index >= len(outputs) or recorded is None:
                return False
            if outputs[index].shape != recorded.shape:
                return False
            nearby = perturbed[index] if index < len(perturbed) else None
            if not _agrees(outputs[index], recorded, nearby, unit):
                return False
        return True

    def _coarsest_unit(self, tensors: Sequence[Tensor | None]) -> float:
        kinds = [DTYPES[t.dtype] for t in tensors if t is not None]
        return max((k.unit for k in kinds if k.kind is Kind.FLOAT), default=0.0)

    def _list_outputs(self, op: Op, part: Part) -> list[Tensor]:
        outputs: list[Tensor] = []
        while True:
            tensor = self._run.tensor(TensorKey(op.key, Role.OUTPUT, len(outputs), part))
            if tensor is None:
                return outputs
            outputs.append(tensor)

    def _read_outputs(self, op: Op, part: Part) -> list[Array]:
        """Return the recorded outputs of an op without inputs: they are constant."""
        values = [self._read(tensor) for tensor in self._list_outputs(op, part)]
        return [_widen(v) for v in values if v is not None]

    def _find_tensor(self, edge: Edge, part: Part) -> Tensor | None:
        tensor = self._run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
        return tensor or self._run.tensor(TensorKey(edge.op, edge.role, edge.index))

    def _read_edge(self, edge: Edge, part: Part) -> Array | None:
        return self._read(self._find_tensor(edge, part))

    def _read(self, tensor: Tensor | None) -> Array | None:
        if tensor is None or tensor.kept is not Kept.VALUES:
            return None
        check_time()
        if tensor.count > MAX_REGION_ELEMENTS:
            note_too_large(tensor.key, tensor.count)
            return None
        try:
            if tensor.quantization is not None:
                return dequantize(operand_of(self._run, tensor))
            return _widen(np.asarray(self._run.values(tensor)))
        except (SyncpointError, ValueError):
            return None


class FallbackEvaluator:
    """Evaluates with the reference's model, and with NumPy where its runtime has no float64."""

    def __init__(self, session: Evaluates, run: Run) -> None:
        self._session = session
        self._numpy = NumpyEvaluator(run)

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """Return the region's outputs, from the model if it can compute them."""
        try:
            return self._session.evaluate(region, inputs, dtype, parameter_dtype)
        except SyncpointError as error:
            try:
                return self._numpy.evaluate(region, inputs, dtype, parameter_dtype)
            except SyncpointError:
                raise error from None


def _is_real(value: Array) -> bool:
    # NumPy has no kind for bfloat16 and similar types.
    return value.dtype.kind == "f" or value.dtype.kind == "V"


def _widen(value: Array, rounded_to: str | None = None) -> Array:
    if not _is_real(value):
        return value
    if rounded_to is not None:
        value = value.astype(DTYPES[rounded_to].numpy)
    return value.astype(np.float64)


def _perturb(bound: Bound, unit: float) -> Bound:
    """Return the op with every real number changed by about one rounding, reproducibly."""
    random = np.random.default_rng(0)

    def perturb(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        return value * (1 + unit * random.standard_normal(value.shape))

    return bound.on(*(perturb(v) for v in bound.arrays))


def _agrees(output: Array, recorded: Array, perturbed: Array | None, unit: float) -> bool:
    """Whether two results are equal up to the rounding of the result and of its inputs."""
    if recorded.dtype.kind not in "f" or output.dtype.kind not in "f":
        return bool(np.array_equal(output, recorded))
    finite = np.isfinite(output) & np.isfinite(recorded)
    if not np.array_equal(np.isnan(output), np.isnan(recorded)) or not finite.any():
        return bool(np.array_equal(output, recorded, equal_nan=True))
    if np.mean(finite) < 0.5 and not np.array_equal(finite, np.isfinite(recorded)):
        return False
    f, w = output[finite], recorded[finite]
    allowed = unit * rms(w)
    if perturbed is not None and perturbed.shape == output.shape:
        shift = (perturbed[finite] - f)[np.isfinite(perturbed[finite])]
        allowed += rms(shift)
    return rms(f - w) <= _MAX_ERROR_ROUNDINGS * allowed
