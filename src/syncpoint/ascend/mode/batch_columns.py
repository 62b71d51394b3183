"""Event sink that computes other tools' columns for each measured pair while its values are in
memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from syncpoint.comparison.events import BatchMeasured
from syncpoint.comparison.rows import Row
from syncpoint.metrics import FileRegion, Operand, Pair
from syncpoint.run.events import Event
from syncpoint.run.model import TensorKey
from syncpoint.run.reader import Run

PairColumns = TypeVar("PairColumns")
ComputeColumns = Callable[[Row, NDArray[Any], NDArray[Any]], PairColumns]
"""Computes the columns of a pair from its row, the target's values and the reference's."""

_MAX_PAIRS_PER_TASK = 16
"""Pairs per task of a thread: for small tensors the handover takes longer than the work."""


class BatchColumns(Generic[PairColumns]):
    """An event sink that computes the columns of every measured pair, by target tensor."""

    def __init__(
        self, target: Run, reference: Run, compute: ComputeColumns[PairColumns], threads: int
    ) -> None:
        self._runs = (target, reference)
        self._compute = compute
        self._threads = threads
        self.columns_by_tensor: dict[TensorKey, PairColumns] = {}

    def send(self, event: Event) -> None:
        """Compute the columns of a batch while its values are in memory."""
        if isinstance(event, BatchMeasured):
            self._add(event.pairs)

    def _add(self, pairs: Sequence[tuple[Row, Pair]]) -> None:
        """Compute the columns of a batch, several pairs per task."""
        length = max(1, min(_MAX_PAIRS_PER_TASK, len(pairs) // (4 * (os.cpu_count() or 1))))
        tasks = [pairs[start : start + length] for start in range(0, len(pairs), length)]
        with ThreadPoolExecutor(self._threads or None) as pool:
            for columns in pool.map(self._compute_pairs, tasks):
                self.columns_by_tensor.update(columns)

    def _compute_pairs(
        self, pairs: Sequence[tuple[Row, Pair]]
    ) -> list[tuple[TensorKey, PairColumns]]:
        return [(row.target.key, self._compute_pair(row, pair)) for row, pair in pairs]

    def _compute_pair(self, row: Row, pair: Pair) -> PairColumns:
        target = _array(self._runs[0], row.target.key, pair.target)
        reference = _array(self._runs[1], row.reference.key, pair.reference)
        return self._compute(row, target, reference)


def _array(run: Run, key: TensorKey, operand: Operand) -> NDArray[Any]:
    """The values of one side; a large tensor that was measured in its file is memory-mapped."""
    if not isinstance(operand.data, FileRegion):
        return operand.array
    tensor = run.tensor(key)
    assert tensor is not None
    return run.values(tensor)
