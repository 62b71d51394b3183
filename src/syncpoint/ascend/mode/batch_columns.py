"""Columns of other tools, found while the values of a batch are at hand for our own numbers."""

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

Found = TypeVar("Found")
Find = Callable[[Row, NDArray[Any], NDArray[Any]], Found]
"""What one pair comes to: its row, the target's values and the reference's."""

_TOGETHER = 16
"""Pairs that a thread takes at a time where there are many: of small tensors the handing over costs
more than the work."""


class BatchColumns(Generic[Found]):
    """An event sink: what a function finds of every pair that is measured, by target tensor."""

    def __init__(self, target: Run, reference: Run, find: Find[Found], threads: int) -> None:
        self._runs = (target, reference)
        self._find = find
        self._threads = threads
        self.found: dict[TensorKey, Found] = {}

    def send(self, event: Event) -> None:
        """Compute the columns of a batch while its values are in memory."""
        if isinstance(event, BatchMeasured):
            self._add(event.pairs)

    def _add(self, pairs: Sequence[tuple[Row, Pair]]) -> None:
        """The columns of a batch, several pairs at a time."""
        together = max(1, min(_TOGETHER, len(pairs) // (4 * (os.cpu_count() or 1))))
        pieces = [pairs[at : at + together] for at in range(0, len(pairs), together)]
        with ThreadPoolExecutor(self._threads or None) as pool:
            for found in pool.map(self._several, pieces):
                self.found.update(found)

    def _several(self, pairs: Sequence[tuple[Row, Pair]]) -> list[tuple[TensorKey, Found]]:
        return [self._one(pair) for pair in pairs]

    def _one(self, pair: tuple[Row, Pair]) -> tuple[TensorKey, Found]:
        row, both = pair
        mine = _array(self._runs[0], row.target.key, both.target)
        theirs = _array(self._runs[1], row.reference.key, both.reference)
        return row.target.key, self._find(row, mine, theirs)


def _array(run: Run, key: TensorKey, operand: Operand) -> NDArray[Any]:
    """The values of one side; a large tensor that was measured in its file is mapped."""
    if not isinstance(operand.data, FileRegion):
        return operand.array
    tensor = run.tensor(key)
    assert tensor is not None
    return run.values(tensor)
