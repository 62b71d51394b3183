"""What an op does to the final error: its value is replaced by the reference's, and the rest of
the compiled code runs on from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from syncpoint.comparison.rows import Row
from syncpoint.metrics import Operand, Pair, measure
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Role
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Array, CompiledSession, Inputs


@dataclass(frozen=True)
class Contribution:
    """How far the final error falls when one op gives the reference's value."""

    op: str
    before: float
    """Relative L2 error over all outputs."""
    after: float

    @property
    def share(self) -> float:
        """1 where the error is gone, 0 where nothing changed, negative where it grew."""
        return 1 - self.after / self.before if self.before else 0.0


def contributions(
    session: CompiledSession, inputs: Inputs, reference: Run, rows: Sequence[Row]
) -> list[Contribution]:
    """One execution for each row; the compiled code stays as it is."""
    wanted = _outputs(reference)
    before = _distance(session.with_value(inputs, None, None), wanted)
    found = []
    for row in rows:
        tensor = reference.tensor(row.reference.key)
        if tensor is None or row.target.key.role is not Role.OUTPUT:
            continue
        value = reference.values(tensor)
        after = _distance(session.with_value(inputs, row.target.key, value), wanted)
        found.append(Contribution(row.target.label, before, after))
    return found


def _outputs(reference: Run) -> list[Array | None]:
    made = {t.key.index: t for t in reference.tensors if t.key.role is Role.MODEL_OUTPUT}
    count = max(made, default=-1) + 1
    return [reference.values(made[i]) if i in made else None for i in range(count)]


def _distance(results: Sequence[Array | None], wanted: Sequence[Array | None]) -> float:
    difference, size = 0.0, 0.0
    for value, reference in zip(results, wanted, strict=False):
        if reference is None or value is None:
            continue
        array = np.ascontiguousarray(value)
        if array.shape != reference.shape:
            return inf
        numbers = measure(
            [
                Pair(
                    Operand(array, from_numpy(array.dtype).name),
                    Operand(reference, from_numpy(reference.dtype).name),
                )
            ]
        )[0]
        if numbers.mismatched or numbers.rmse is None:
            return inf
        difference += numbers.rmse**2 * numbers.compared
        size += (numbers.reference_l2 or 0.0) ** 2
    return sqrt(difference / size) if size else 0.0
