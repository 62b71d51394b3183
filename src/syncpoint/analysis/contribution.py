"""How much an op contributes to the final error: run the compiled code with the reference's value
in place of the op's; distance of all outputs.

The value of the op is replaced by that of the reference, and the rest of the compiled code runs on
it.
"""

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
    """How far the final error falls when one op has the value of the reference."""

    op: str
    before: float
    """Relative L2 error over all outputs."""
    after: float

    @property
    def share(self) -> float:
        """1 where the error is gone, 0 where nothing changed, negative where it grew."""
        return 1 - self.after / self.before if self.before else 0.0


def measure_contributions(
    session: CompiledSession, inputs: Inputs, reference: Run, rows: Sequence[Row]
) -> list[Contribution]:
    """Measure the contribution of each row, with one execution each of the same compiled code."""
    reference_outputs = _outputs(reference)
    before = _distance(session.with_value(inputs, None, None), reference_outputs)
    contributions = []
    for row in rows:
        tensor = reference.tensor(row.reference.key)
        if tensor is None or row.target.key.role is not Role.OUTPUT:
            continue
        value = reference.values(tensor)
        after = _distance(session.with_value(inputs, row.target.key, value), reference_outputs)
        contributions.append(Contribution(row.target.label, before, after))
    return contributions


def _outputs(reference: Run) -> list[Array | None]:
    tensors = {t.key.index: t for t in reference.tensors if t.key.role is Role.MODEL_OUTPUT}
    count = max(tensors, default=-1) + 1
    return [reference.values(tensors[i]) if i in tensors else None for i in range(count)]


def _distance(outputs: Sequence[Array | None], reference_outputs: Sequence[Array | None]) -> float:
    """Relative L2 error over all outputs; infinite where one cannot be compared."""
    difference, size = 0.0, 0.0
    for value, reference in zip(outputs, reference_outputs, strict=False):
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
