"""The elements of a sync point that are furthest off, and where they lie."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from syncpoint.page.encoding import json_number
from syncpoint.page.schema import WorstElement
from syncpoint.page.tensor_values import Index, Values, blocks, each

_WORST = 24


def worst(values: Values, most: int = _WORST) -> tuple[NDArray[np.int64], list[WorstElement]]:
    """The elements that are furthest off, mismatched ones first, ties in row-major order."""
    found = _Furthest(values, most)
    each(found.look, list(blocks(values.shape)))
    elements = [
        WorstElement(
            index=[int(i) for i in np.unravel_index(place, values.shape)],
            reference=json_number(float(r)),
            target=json_number(float(t)),
            difference=json_number(float(d)),
        )
        for place, (r, t, d) in zip(found.places.tolist(), found.numbers, strict=True)
    ]
    return found.places, elements


class _Furthest:
    """The elements that are furthest off so far, whichever block comes first."""

    def __init__(self, values: Values, most: int) -> None:
        self.offs = np.empty(0)
        self.places = np.empty(0, np.int64)
        self.numbers = np.empty((0, 3))
        self._values, self._most = values, most
        self._lock = threading.Lock()

    def look(self, index: Index) -> None:
        """Take in a block."""
        piece = self._values.piece(index)
        off = piece.off.reshape(-1)
        offs, most = self.offs, self._most
        # Equals of the last one may stand before it, so they count until places are compared.
        least = offs[-1] if len(offs) == most else np.nextafter(0.0, 1.0)
        if not off.max() >= least:
            return
        near = np.flatnonzero(off >= least)
        if len(near) > most:
            bound = np.partition(off[near], len(near) - most)[len(near) - most]
            above, equal = near[off[near] > bound], near[off[near] == bound]
            near = np.concatenate([above, equal[: most - len(above)]])
        three = (piece.reference, piece.target, piece.difference)
        numbers = np.stack([x.reshape(-1)[near] for x in three], 1)
        places = _flat(near, index, self._values.shape)
        with self._lock:
            offs = np.concatenate([self.offs, off[near]])
            places = np.concatenate([self.places, places])
            numbers = np.concatenate([self.numbers, numbers])
            best = np.lexsort((places, -offs))[:most]
            self.offs, self.places, self.numbers = offs[best], places[best], numbers[best]


def first_mismatch(values: Values) -> list[int] | None:
    """Index of the first element that is NaN, infinite or masked on one side only."""
    for index in blocks(values.shape):
        off = values.piece(index).off.reshape(-1)
        at = int(off.argmax())
        if np.isinf(off[at]):
            place = _flat(np.asarray([at]), index, values.shape)[0]
            return [int(i) for i in np.unravel_index(place, values.shape)]
    return None


def pattern(places: NDArray[np.int64], values: Values) -> str:
    """What the worst elements share: "all in index 118 of axis 2"."""
    if len(places) < 3:
        return ""
    shared = []
    for axis, indices in enumerate(np.unravel_index(places, values.shape)):
        length = values.shape[axis]
        if length > 1 and (indices == indices[0]).all():
            shared.append(f"index {indices[0]} of {values.names[axis]}")
    return "all in " + ", ".join(shared) if shared else ""


def _flat(within: NDArray[np.int64], index: Index, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Places in a block as places in the whole, row-major."""
    sizes = tuple(part.stop - part.start for part in index)
    if not sizes:
        return within
    inside = np.unravel_index(within, sizes)
    starts = [part.start for part in index]
    whole = [at + start for at, start in zip(inside, starts, strict=True)]
    return np.asarray(np.ravel_multi_index(whole, shape), np.int64)
