"""Variants of embedding lookups: adjacent rows, the padding row as zeros, a scale by the width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest


def vary_embedding(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary an embedding lookup."""
    if tested_op.kind != "embedding" or tested_op.output.dtype.kind != "f":
        return
    arrays = [a for a in tested_op.arguments if a is not None]
    tables = [a for a in arrays if a.dtype.kind == "f" and a.ndim == 2]
    indices = [a for a in arrays if a.dtype.kind in "iu"]
    if len(tables) != 1 or len(indices) != 1:
        return
    table, ids = np.asarray(tables[0], np.float64), indices[0].astype(np.int64)
    rows = len(table)
    if ids.shape + table.shape[1:] != tested_op.output.shape or not ids.size:
        return
    if not np.array_equal(table[ids % rows], tested_op.output):
        return
    for step in (1, -1, 2, -2):
        for suffix, shifted_ids in (
            ("", np.clip(ids + step, 0, rows - 1)),
            (", wrapped around", (ids + step) % rows),
        ):
            text = f"looks up row i{step:+d} instead of row i{suffix}"
            simplicity = (3 if abs(step) == 1 else 2) - bool(suffix)
            yield Hypothesis("index-offset", text, table[shifted_ids], simplicity=simplicity)
    yield from _vary_padding_row(tested_op, ids)
    width = float(np.sqrt(table.shape[1]))
    text = f"multiplies its rows by {width:.4g}, the square root of the width"
    yield Hypothesis("width-scale-added", text, tested_op.output * width, simplicity=2)
    text = f"divides its rows by {width:.4g}, the square root of the width"
    yield Hypothesis("width-scale-inverted", text, tested_op.output / width, simplicity=1)


def _vary_padding_row(tested_op: OpUnderTest, ids: Array) -> Iterator[Hypothesis]:
    """Replace one row by zeros."""
    padding_row = tested_op.attribute("padding_idx", default=-1)
    for row in dict.fromkeys((padding_row, 0, 1)):
        if isinstance(row, int) and row >= 0 and (ids == row).any():
            value = np.where((ids == row)[..., None], 0.0, tested_op.output)
            text = f"returns zeros for row {row}, as if it were padding"
            yield Hypothesis("padding-row", text, value, simplicity=2)
