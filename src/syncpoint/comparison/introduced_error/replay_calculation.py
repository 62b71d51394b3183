"""Introduced error by replay: run the target's ops on the reference's values, replaced op by op,
and compare each output; whether a type can hold them.

The target is executed once more. The output of each op is recorded and then replaced by the value
of the reference, so that every op reads the values of the reference and shows only its own error.
`add_replay_errors` is the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.local_calculation import LocalCalculation
from syncpoint.comparison.introduced_error.regions import Regions
from syncpoint.comparison.operands import dequantize, operand_of, undo_quantization
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.matching.views import View
from syncpoint.metrics import Operand
from syncpoint.metrics.verdict import Reason
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import WHOLE, Edge, Kept, OpKey, Part, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.quantize import quantize_values
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.protocol import Evaluates, Inputs, Replays
from syncpoint.supervision.scratch_folder import scratch_folder

ReplacementValue = Callable[[TensorKey, tuple[int, ...]], NDArray[Any] | None]
"""Returns the value that replaces a target tensor; None keeps the tensor."""


def add_replay_errors(
    sides: Sides, rows: list[Row], reference: Evaluates, target: Replays, samples: list[Inputs]
) -> list[Row]:
    """Add to each row the error that the target's op introduces by itself."""
    reference_values = _ReferenceValues(sides, rows)
    with replay_with_values(target, samples, reference_values.value) as (run, refused):
        return _ReplayCalculation(
            Sides(run, sides.reference, sides.masks),
            rows,
            reference,
            reference_values.replaced,
            refused,
        ).add_errors()


@contextmanager
def replay_with_values(
    target: Replays, samples: list[Inputs], value: ReplacementValue
) -> Iterator[tuple[Run, Mapping[OpKey, str]]]:
    """Execute the target with replaced values; yield the recorded run, which exists only inside the
    context, and the ops that could not be replayed, with the reason."""
    with scratch_folder() as folder:
        path = Path(folder) / "replay.run"
        refused: dict[OpKey, str] = {}
        with RunWriter(path, RunInfo()) as writer:
            recorder = Recorder(writer)
            for number, sample in enumerate(samples):
                part = Part(sample=number) if len(samples) > 1 else WHOLE
                # A runtime written for an earlier version of the protocol returns None.
                refused |= target.replay(sample, value, recorder.for_part(part)) or {}
        yield Run.open(path), refused


@dataclass
class _ReferenceValues:
    """The reference's value for each target tensor that can hold it."""

    sides: Sides
    rows: list[Row]
    replaced: set[TensorKey] = field(default_factory=set)
    """The target tensors that were replaced by values of the reference."""

    def __post_init__(self) -> None:
        self._rows = {r.target.key: r for r in self.rows if r.target.key.role is Role.OUTPUT}

    def value(self, key: TensorKey, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """The value that replaces a target tensor; None keeps the tensor."""
        row = self._rows.get(key)
        if row is None or row.unmeasured:
            return None
        target = self.sides.target.tensor(key)
        reference = self.sides.reference.tensor(row.reference.key)
        if target is None or reference is None or reference.kept is not Kept.VALUES:
            return None
        if not _can_hold(target, reference):
            return None
        operand = operand_of(self.sides.reference, reference)
        # A quantized target rounds the numbers to its own grid.
        real = (
            dequantize(operand)
            if target.quantization is not None
            else undo_quantization(operand).array
        )
        try:
            replacement = View(row.view).undo(real, shape)
        except ValueError:
            return None
        if replacement is not None:
            self.replaced.add(key)
        return replacement


def _can_hold(target: Tensor, reference: Tensor) -> bool:
    """Whether the target's type can hold the numbers of the reference."""
    if target.quantization is not None:
        return not target.quantization.table
    kinds = [DTYPES[t.dtype].kind for t in (target, reference)]
    if reference.quantization is not None:
        kinds[1] = Kind.FLOAT
    return kinds[0] is kinds[1] or (kinds[0] is Kind.FLOAT and kinds[1] is not Kind.COMPLEX)


class _ReplayCalculation(LocalCalculation):
    """The reference's ops on the reference's values, rounded to the target's types."""

    def __init__(
        self,
        sides: Sides,
        rows: list[Row],
        session: Evaluates,
        replaced: set[TensorKey],
        refused: Mapping[OpKey, str],
    ) -> None:
        super().__init__(sides, rows, session, None)
        self._refused = refused
        # If the target kept its own value, the region starts further upstream.
        self.by_reference = {
            key: row
            for key, row in self.by_reference.items()
            if row.target.key.role is not Role.OUTPUT or row.target.key in replaced
        }
        self.regions = Regions(sides.reference, set(self.by_reference))
        self.paired = {row.target.key for row in self.by_reference.values()}

    def target_value(self, edge: Edge, part: Part) -> NDArray[Any]:
        """The reference's value as the target received it."""
        key = TensorKey(edge.op, edge.role, edge.index, part)
        row = self.by_reference.get(key)
        tensor = self.sides.reference.tensor(key)
        if row is None or tensor is None or tensor.kept is not Kept.VALUES:
            return super().target_value(edge, part)
        values = undo_quantization(operand_of(self.sides.reference, tensor)).array
        target_tensor = self.sides.target.tensor(row.target.key)
        if target_tensor is not None and target_tensor.quantization is not None:
            return self._round_to_grid(values, target_tensor, row)
        target_dtype = DTYPES[row.target.dtype]
        if target_dtype.kind is Kind.FLOAT and values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                values = values.astype(target_dtype.numpy)
        return values

    def _round_to_grid(self, values: NDArray[Any], target_tensor: Tensor, row: Row) -> NDArray[Any]:
        assert target_tensor.quantization is not None
        undone = View(row.view).undo(values, target_tensor.shape)
        if undone is None:
            return values
        stored = quantize_values(
            undone,
            target_tensor.quantization,
            DTYPES[target_tensor.dtype].numpy,
            row.target.label,
        )
        real = dequantize(Operand(stored, target_tensor.dtype, target_tensor.quantization))
        return View(row.view).apply(real).reshape(values.shape)

    def _rows_of_op(self, op: OpKey, part: Part, rows: list[Row]) -> list[Row]:
        """The rows of one reference op; rows whose target op was not replayed get a reason."""
        recorded = [row for row in rows if self.sides.target.tensor(row.target.key) is not None]
        measured = super()._rows_of_op(op, part, recorded) if recorded else []
        by_target = {row.target.key: row for row in measured}
        return [by_target.get(row.target.key) or self._explain_not_replayed(row) for row in rows]

    def _explain_not_replayed(self, row: Row) -> Row:
        key = row.target.key.op
        reason = self._refused.get(key) or ("it is inside a sub-graph" if key.path else "")
        detail = f"the target's op was not replayed: {reason}".rstrip(": ")
        return replace(row, unknown=Reason(detail=detail))
