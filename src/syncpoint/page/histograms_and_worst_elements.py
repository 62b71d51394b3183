"""Histograms of both sides of a sync point, its worst elements with flat indices in the whole
tensor, and the pattern that these share.

The worst elements are those with the largest differences; what they have in common is described.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from syncpoint.metrics import value_histograms
from syncpoint.page.encoding import json_number
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import Distribution, WorstElement
from syncpoint.page.tensor_values import (
    Index,
    PairedValues,
    read_values,
    run_parallel,
    split_blocks,
)

_MAX_ELEMENTS = 24
_BIN_COUNT = 64


def build_distribution(opened: OpenComparison, row: int) -> Distribution:
    """Return histograms of both sides over common edges, and the worst elements."""
    values = read_values(opened, row)
    histograms = value_histograms(values.counted_pair, _BIN_COUNT)
    masked = values.masked_count
    places, elements = find_worst_elements(values)
    return Distribution(
        edges=list(histograms.edges),
        reference=list(histograms.reference_counts),
        target=list(histograms.target_counts),
        reference_outside=histograms.reference_masked + histograms.reference_non_finite + masked,
        target_outside=histograms.target_masked + histograms.target_non_finite + masked,
        worst=elements,
        pattern=describe_pattern(places, values),
    )


def find_worst_elements(
    values: PairedValues, max_elements: int = _MAX_ELEMENTS
) -> tuple[NDArray[np.int64], list[WorstElement]]:
    """Return the elements with the largest differences, mismatched ones first, ties in row-major
    order; and their places in the flat tensor."""
    search = _WorstSearch(values, max_elements)
    run_parallel(search.add_block, list(split_blocks(values.shape)))
    elements = [
        WorstElement(
            index=[int(i) for i in np.unravel_index(place, values.shape)],
            reference=json_number(float(r)),
            target=json_number(float(t)),
            difference=json_number(float(d)),
        )
        for place, (r, t, d) in zip(search.places.tolist(), search.numbers, strict=True)
    ]
    return search.places, elements


class _WorstSearch:
    """The worst elements so far, in whatever order the blocks come."""

    def __init__(self, values: PairedValues, max_elements: int) -> None:
        self.distances = np.empty(0)
        self.places = np.empty(0, np.int64)
        self.numbers = np.empty((0, 3))
        self._values, self._max_elements = values, max_elements
        self._lock = threading.Lock()

    def add_block(self, index: Index) -> None:
        """Search one block of the tensors."""
        piece = self._values.read_piece(index)
        distances = piece.distance.reshape(-1)
        best, size = self.distances, self._max_elements
        # Equal elements may stand before the last one: they count until places are compared.
        threshold = best[-1] if len(best) == size else np.nextafter(0.0, 1.0)
        if not distances.max() >= threshold:
            return
        candidates = np.flatnonzero(distances >= threshold)
        if len(candidates) > size:
            candidate_distances = distances[candidates]
            cut = np.partition(candidate_distances, len(candidates) - size)[len(candidates) - size]
            above = candidates[candidate_distances > cut]
            equal = candidates[candidate_distances == cut]
            candidates = np.concatenate([above, equal[: size - len(above)]])
        columns = (piece.reference, piece.target, piece.difference)
        numbers = np.stack([column.reshape(-1)[candidates] for column in columns], 1)
        places = _flat_places(candidates, index, self._values.shape)
        with self._lock:
            best = np.concatenate([self.distances, distances[candidates]])
            places = np.concatenate([self.places, places])
            numbers = np.concatenate([self.numbers, numbers])
            order = np.lexsort((places, -best))[:size]
            self.distances, self.places, self.numbers = best[order], places[order], numbers[order]


def find_first_mismatch(values: PairedValues) -> list[int] | None:
    """Return the index of the first element that is NaN, infinite or masked on one side only."""
    for index in split_blocks(values.shape):
        distances = values.read_piece(index).distance.reshape(-1)
        worst = int(distances.argmax())
        if np.isinf(distances[worst]):
            place = _flat_places(np.asarray([worst]), index, values.shape)[0]
            return [int(i) for i in np.unravel_index(place, values.shape)]
    return None


def describe_pattern(places: NDArray[np.int64], values: PairedValues) -> str:
    """Return what the worst elements share, such as "all in index 118 of axis 2"; "" if nothing."""
    if len(places) < 3:
        return ""
    shared = []
    for axis, indices in enumerate(np.unravel_index(places, values.shape)):
        length = values.shape[axis]
        if length > 1 and (indices == indices[0]).all():
            shared.append(f"index {indices[0]} of {values.axis_names[axis]}")
    return "all in " + ", ".join(shared) if shared else ""


def _flat_places(
    block_places: NDArray[np.int64], index: Index, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Convert places in a block to places in the whole tensor, row-major."""
    sizes = tuple(part.stop - part.start for part in index)
    if not sizes:
        return block_places
    block_indices = np.unravel_index(block_places, sizes)
    starts = [part.start for part in index]
    indices = [axis + start for axis, start in zip(block_indices, starts, strict=True)]
    return np.asarray(np.ravel_multi_index(indices, shape), np.int64)
