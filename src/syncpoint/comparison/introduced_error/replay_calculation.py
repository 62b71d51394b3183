"""Introduced error in its second form: the target's ops, fed the reference's values.

The target is executed once more. Whenever one of its ops has given its value, that is recorded
and the reference's is put in its place, so that every op works on what the reference worked on
and shows its own error alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.local_calculation import Introducer
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

Value = Callable[[TensorKey, tuple[int, ...]], NDArray[Any] | None]
"""What is put in the place of a tensor of the target; None leaves it."""


def add_replayed(
    sides: Sides, rows: list[Row], reference: Evaluates, target: Replays, samples: list[Inputs]
) -> list[Row]:
    """The rows with what each op of the target introduces by itself."""
    feeder = _Feeder(sides, rows)
    with replayed(target, samples, feeder.value) as (run, refused):
        return _Forced(
            Sides(run, sides.reference, sides.masks), rows, reference, feeder.put, refused
        ).all()


@contextmanager
def replayed(
    target: Replays, samples: list[Inputs], value: Value
) -> Iterator[tuple[Run, Mapping[OpKey, str]]]:
    """The target executed once more with other values in some places: what it gave, for as long
    as it is looked at, and the ops with which that could not be done."""
    with scratch_folder() as folder:
        path = Path(folder) / "replay.run"
        refused: dict[OpKey, str] = {}
        with RunWriter(path, RunInfo()) as writer:
            recorder = Recorder(writer)
            for number, sample in enumerate(samples):
                part = Part(sample=number) if len(samples) > 1 else WHOLE
                # A runtime written for an earlier form of the protocol gives nothing.
                refused |= target.replay(sample, value, recorder.for_part(part)) or {}
        yield Run.open(path), refused


@dataclass
class _Feeder:
    """Finds the reference's value for each place of the target that can take it."""

    sides: Sides
    rows: list[Row]
    put: set[TensorKey] = field(default_factory=set)
    """The target's tensors that were given the reference's values."""

    def __post_init__(self) -> None:
        self._wanted = {r.target.key: r for r in self.rows if r.target.key.role is Role.OUTPUT}

    def value(self, key: TensorKey, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """What the target is to have here; None leaves it its own."""
        row = self._wanted.get(key)
        if row is None or row.unmeasured:
            return None
        mine = self.sides.target.tensor(key)
        theirs = self.sides.reference.tensor(row.reference.key)
        if mine is None or theirs is None or theirs.kept is not Kept.VALUES:
            return None
        if not _can_hold(mine, theirs):
            return None
        operand = operand_of(self.sides.reference, theirs)
        # Integers on a grid must come as numbers to be put on that grid.
        real = (
            dequantize(operand)
            if mine.quantization is not None
            else undo_quantization(operand).array
        )
        try:
            found = View(row.view).undo(real, shape)
        except ValueError:
            return None
        if found is not None:
            self.put.add(key)
        return found


def _can_hold(mine: Tensor, theirs: Tensor) -> bool:
    """Whether the target's type has a place for the reference's numbers."""
    if mine.quantization is not None:
        return not mine.quantization.table
    kinds = [DTYPES[t.dtype].kind for t in (mine, theirs)]
    if theirs.quantization is not None:
        kinds[1] = Kind.FLOAT
    return kinds[0] is kinds[1] or (kinds[0] is Kind.FLOAT and kinds[1] is not Kind.COMPLEX)


class _Forced(Introducer):
    """The reference's ops on the reference's own values, as far as the target can hold them."""

    def __init__(
        self,
        sides: Sides,
        rows: list[Row],
        session: Evaluates,
        put: set[TensorKey],
        refused: Mapping[OpKey, str],
    ) -> None:
        super().__init__(sides, rows, session, None)
        self._refused = refused
        # Where the target kept its own value the reference's ops go on from further back.
        self.by_reference = {
            key: row
            for key, row in self.by_reference.items()
            if row.target.key.role is not Role.OUTPUT or row.target.key in put
        }
        self.regions = Regions(sides.reference, set(self.by_reference))
        self.paired = {row.target.key for row in self.by_reference.values()}

    def fed(self, edge: Edge, part: Part) -> NDArray[Any]:
        """The reference's value as the target was given it."""
        key = TensorKey(edge.op, edge.role, edge.index, part)
        row = self.by_reference.get(key)
        tensor = self.sides.reference.tensor(key)
        if row is None or tensor is None or tensor.kept is not Kept.VALUES:
            return super().fed(edge, part)
        values = undo_quantization(operand_of(self.sides.reference, tensor)).array
        mine = self.sides.target.tensor(row.target.key)
        if mine is not None and mine.quantization is not None:
            return self._on_grid(values, mine, row)
        held = DTYPES[row.target.dtype]
        if held.kind is Kind.FLOAT and values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                values = values.astype(held.numpy)
        return values

    def _on_grid(self, values: NDArray[Any], mine: Tensor, row: Row) -> NDArray[Any]:
        assert mine.quantization is not None
        turned = View(row.view).undo(values, mine.shape)
        if turned is None:
            return values
        stored = quantize_values(turned, mine.quantization, DTYPES[mine.dtype].numpy)
        real = dequantize(Operand(stored, mine.dtype, mine.quantization))
        return View(row.view).apply(real).reshape(values.shape)

    def _settled(self, op: OpKey, part: Part, rows: list[Row]) -> list[Row]:
        """The rows of one reference op; those whose target op did not run by itself say so."""
        left = [row for row in rows if self.sides.target.tensor(row.target.key) is not None]
        found = super()._settled(op, part, left) if left else []
        by_target = {row.target.key: row for row in found}
        return [by_target.get(row.target.key) or self._not_replayed(row) for row in rows]

    def _not_replayed(self, row: Row) -> Row:
        key = row.target.key.op
        why = self._refused.get(key) or ("it is inside a sub-graph" if key.path else "")
        detail = f"the target's op was not run by itself: {why}".rstrip(": ")
        return replace(row, unknown=Reason(detail=detail))
