"""Embeddings: rows beside the right ones, the row of padding, the scale by the width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen


def embeddings(seen: Seen) -> Iterable[Hypothesis]:
    """The variants of a look-up of rows."""
    if seen.kind != "embedding" or seen.output.dtype.kind != "f":
        return
    known = [a for a in seen.arguments if a is not None]
    tables = [a for a in known if a.dtype.kind == "f" and a.ndim == 2]
    indices = [a for a in known if a.dtype.kind in "iu"]
    if len(tables) != 1 or len(indices) != 1:
        return
    table, ids = np.asarray(tables[0], np.float64), indices[0].astype(np.int64)
    rows = len(table)
    if ids.shape + table.shape[1:] != seen.output.shape or not ids.size:
        return
    if not np.array_equal(table[ids % rows], seen.output):
        return
    for by in (1, -1, 2, -2):
        for name, moved in (
            ("", np.clip(ids + by, 0, rows - 1)),
            (", wrapped around", (ids + by) % rows),
        ):
            text = f"looks up row i{by:+d} instead of row i{name}"
            simple = (3 if abs(by) == 1 else 2) - bool(name)
            yield Hypothesis("index-offset", text, table[moved], simplicity=simple)
    yield from _padded(seen, ids)
    width = float(np.sqrt(table.shape[1]))
    text = f"multiplies its rows by {width:.4g}, the square root of the width"
    yield Hypothesis("width-scale-added", text, seen.output * width, simplicity=2)
    text = f"divides its rows by {width:.4g}, the square root of the width"
    yield Hypothesis("width-scale-inverted", text, seen.output / width, simplicity=1)


def _padded(seen: Seen, ids: Array) -> Iterator[Hypothesis]:
    """One row that is all zeros in the target."""
    said = seen.attribute("padding_idx", default=-1)
    for row in dict.fromkeys((said, 0, 1)):
        if isinstance(row, int) and row >= 0 and (ids == row).any():
            value = np.where((ids == row)[..., None], 0.0, seen.output)
            text = f"returns zeros for row {row}, as if it were padding"
            yield Hypothesis("padding-row", text, value, simplicity=2)
