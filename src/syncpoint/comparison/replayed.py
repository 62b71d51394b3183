"""Introduced error in its second form: the target's ops, fed the reference's values.

The target is executed once more. Whenever one of its ops has given its value, that is recorded
and the reference's is put in its place, so that every op works on what the reference worked on
and shows its own error alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced import Introducer
from syncpoint.comparison.measuring import Sides
from syncpoint.comparison.rows import Row
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import WHOLE, Edge, Kept, Part, Role, RunInfo, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.writer import RunWriter
from syncpoint.runtimes.protocol import Evaluates, Inputs, Replays


def add_replayed(
    sides: Sides, rows: list[Row], reference: Evaluates, target: Replays, samples: list[Inputs]
) -> list[Row]:
    """The rows with what each op of the target introduces by itself."""
    with tempfile.TemporaryDirectory(prefix="syncpoint-") as folder:
        run = _replayed(sides, rows, target, samples, Path(folder) / "replay.run")
        found = _Forced(Sides(run, sides.reference), rows, reference, None).all()
    return found


def _replayed(
    sides: Sides, rows: list[Row], target: Replays, samples: list[Inputs], path: Path
) -> Run:
    wanted = {row.target.key: row for row in rows if row.target.key.role is Role.OUTPUT}

    def value(key: TensorKey, shape: tuple[int, ...]) -> NDArray[Any] | None:
        row = wanted.get(key)
        # Other views cannot be undone; the target then keeps its own value.
        if row is None or (row.view and not row.view.startswith("reshape(")):
            return None
        tensor = sides.reference.tensor(row.reference.key)
        if tensor is None or tensor.kept is not Kept.VALUES or row.unmeasured:
            return None
        return sides.reference.values(tensor).reshape(shape)

    with RunWriter(path, RunInfo()) as writer:
        recorder = Recorder(writer)
        for number, sample in enumerate(samples):
            part = Part(sample=number) if len(samples) > 1 else WHOLE
            target.replay(sample, value, recorder.for_part(part))
    return Run.open(path)


class _Forced(Introducer):
    """The reference's ops on the reference's own values, as far as the target can hold them."""

    def fed(self, edge: Edge, part: Part) -> NDArray[Any]:
        key = TensorKey(edge.op, edge.role, edge.index, part)
        row = self.by_reference.get(key)
        tensor = self.sides.reference.tensor(key)
        if row is None or tensor is None or tensor.kept is not Kept.VALUES:
            return super().fed(edge, part)
        values = self.sides.reference.values(tensor)
        held = DTYPES[row.target.dtype]
        if held.kind is Kind.FLOAT and values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                values = values.astype(held.numpy)
        return values
