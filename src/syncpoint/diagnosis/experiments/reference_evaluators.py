"""The reference's ops without its model: what we know of them ourselves, in float64.

An op is believed only after it has given its recorded output from its recorded inputs, to what
its element type rounds: what was recorded of an op may be less than what it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.diagnosis.budget import MAX_REGION_ELEMENTS, check_time, note_too_large
from syncpoint.diagnosis.numpy_ops.op_arguments import Bound
from syncpoint.diagnosis.numpy_ops.registry import is_known, readings, results
from syncpoint.errors import SyncpointError, Unsupported
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import rms
from syncpoint.runtimes.protocol import EdgeValues, Evaluates, Region

Array = NDArray[Any]
_ROUNDINGS = 16.0
"""So many times what one rounding of each input and of the result costs may be off."""


class NumpyEvaluator:
    """Runs pieces of a recorded model from its ops, attributes and parameters alone."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._proofs: dict[tuple[OpKey, Part], int] = {}

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs; Unsupported where an op of it is not known."""
        if dtype != "f64":
            raise Unsupported("float64 for the ops of a recording", dtype)
        known: dict[Edge, Array] = {}
        for edge, value in inputs.items():
            known[edge] = _wide(value, parameter_dtype if edge.role is Role.PARAMETER else None)
        for key in region.ops:
            op = self._run.op(key)
            if op is None:
                raise Unsupported("an op of the recording", str(key))
            for at, value in enumerate(self._outputs(op, known, region.part, parameter_dtype)):
                known.setdefault(Edge(key, at), value)
        return [known.get(edge) for edge in region.outputs]

    def _outputs(
        self, op: Op, known: dict[Edge, Array], part: Part, parameter_dtype: str | None
    ) -> Sequence[Array]:
        way = self._proof(op, part)
        if not op.inputs:
            return self._recorded(op, part)
        arguments = []
        for edge in op.inputs:
            if edge not in known and edge.role is Role.PARAMETER:
                value = self._value(edge, part)
                if value is not None:
                    known[edge] = _wide(value, parameter_dtype)
            arguments.append(known.get(edge))
        for at, bound in enumerate(readings(op, arguments)):
            found = results(bound) if at == way else None
            if found is not None:
                return found
        raise Unsupported(f"{op.key} ({op.type}) to run on these values", "it does not")

    def _proof(self, op: Op, part: Part) -> int:
        """Which reading of the op gives what was recorded; Unsupported where none does."""
        at = (op.key, part)
        if at not in self._proofs:
            self._proofs[at] = self._proved(op, part)
        if self._proofs[at] < 0:
            raise Unsupported("an op that is known and does what its record says", f"{op.type}")
        return self._proofs[at]

    def _proved(self, op: Op, part: Part) -> int:
        if not op.inputs:
            return 0 if not op.random and self._recorded(op, part) else -1
        if not is_known(op):
            return -1
        arguments = [self._value(edge, part) for edge in op.inputs]
        if any(value is None for value in arguments):
            return -1
        tensors = self._tensors(op, part)
        if not tensors:
            return -1
        coarse = self._unit([*tensors, *(self._tensor(e, part) for e in op.inputs)])
        for way, bound in enumerate(readings(op, arguments)):
            if self._reproduces(bound, tensors, coarse):
                return way
        return -1

    def _reproduces(self, bound: Bound, tensors: list[Tensor], unit: float) -> bool:
        found = results(bound)
        if found is None:
            return False
        noisy = results(_shaken(bound, unit))
        for tensor in tensors:
            at = tensor.key.index
            wanted = self._read(tensor)
            if at >= len(found) or wanted is None or found[at].shape != wanted.shape:
                return False
            moved = noisy[at] if noisy is not None and at < len(noisy) else None
            if not _agree(found[at], wanted, moved, unit):
                return False
        return True

    def _unit(self, tensors: Sequence[Tensor | None]) -> float:
        kinds = [DTYPES[t.dtype] for t in tensors if t is not None]
        return max((k.unit for k in kinds if k.kind is Kind.FLOAT), default=0.0)

    def _tensors(self, op: Op, part: Part) -> list[Tensor]:
        found: list[Tensor] = []
        while (t := self._run.tensor(TensorKey(op.key, Role.OUTPUT, len(found), part))) is not None:
            found.append(t)
        return found

    def _recorded(self, op: Op, part: Part) -> list[Array]:
        """What an op without inputs gave, which it always gives."""
        values = [self._read(tensor) for tensor in self._tensors(op, part)]
        return [_wide(v) for v in values if v is not None]

    def _tensor(self, edge: Edge, part: Part) -> Tensor | None:
        found = self._run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
        return found or self._run.tensor(TensorKey(edge.op, edge.role, edge.index))

    def _value(self, edge: Edge, part: Part) -> Array | None:
        return self._read(self._tensor(edge, part))

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
            return _wide(np.asarray(self._run.values(tensor)))
        except (SyncpointError, ValueError):
            return None


class FallbackEvaluator:
    """The reference's own model, and what it cannot run on its own by our ops: runtimes have no
    float64 for some."""

    def __init__(self, session: Evaluates, run: Run) -> None:
        self._session = session
        self._ours = NumpyEvaluator(run)

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs, by the model where it can."""
        try:
            return self._session.evaluate(region, inputs, dtype, parameter_dtype)
        except SyncpointError as error:
            try:
                return self._ours.evaluate(region, inputs, dtype, parameter_dtype)
            except SyncpointError:
                raise error from None


def _is_real(value: Array) -> bool:
    # bfloat16 and its like are of no kind that NumPy knows.
    return value.dtype.kind == "f" or value.dtype.kind == "V"


def _wide(value: Array, rounded_to: str | None = None) -> Array:
    if not _is_real(value):
        return value
    if rounded_to is not None:
        value = value.astype(DTYPES[rounded_to].numpy)
    return value.astype(np.float64)


def _shaken(bound: Bound, unit: float) -> Bound:
    """The same with every real number moved by about one rounding, always in the same way."""
    random = np.random.default_rng(0)

    def shaken(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        return value * (1 + unit * random.standard_normal(value.shape))

    return bound.on(*(shaken(v) for v in bound.arrays))


def _agree(found: Array, wanted: Array, moved: Array | None, unit: float) -> bool:
    """Equal to rounding: of the result, and of everything that went into it."""
    if wanted.dtype.kind not in "f" or found.dtype.kind not in "f":
        return bool(np.array_equal(found, wanted))
    finite = np.isfinite(found) & np.isfinite(wanted)
    if not np.array_equal(np.isnan(found), np.isnan(wanted)) or not finite.any():
        return bool(np.array_equal(found, wanted, equal_nan=True))
    if np.mean(finite) < 0.5 and not np.array_equal(finite, np.isfinite(wanted)):
        return False
    f, w = found[finite], wanted[finite]
    allowed = unit * rms(w)
    if moved is not None and moved.shape == found.shape:
        shift = (moved[finite] - f)[np.isfinite(moved[finite])]
        allowed += rms(shift)
    return rms(f - w) <= _ROUNDINGS * allowed
