"""Positions that do not count, because the map says so: padding above all.

They are taken out before anything is measured, so that no metric knows of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import undo_quantization
from syncpoint.comparison.rows import End, Row
from syncpoint.errors import InputError
from syncpoint.matching.masks import Mask
from syncpoint.matching.protocol import JUDGED_ROLES
from syncpoint.metrics import Operand, Pair
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import WHOLE, Kept, Part, Role, Tensor
from syncpoint.run.reader import Run

_HAS_INFINITY = frozenset({"f64", "f32", "f16", "bf16"})
"""Types in which the kernel knows a mark for masked positions."""


class Masks:
    """What the masks of a map mean for the rows of one comparison."""

    def __init__(self, masks: Sequence[Mask], target: Run, reference: Run) -> None:
        self._masks = masks
        self._told: dict[tuple[str, Part], NDArray[Any]] = {}
        names = {name for run in (target, reference) for name in _run_names(run)}
        # All at once: what is wrong with a map is known before anything is measured.
        self._masked = [{n for n in names if mask.pattern.fullmatch(n)} for mask in masks]
        for mask in masks:
            if mask.tensor:
                self._read(mask.tensor, (reference, target))

    def counted_elements(self, row: Row) -> NDArray[np.bool_] | None:
        """Which elements of a row count; None where all do. ValueError where a mask does not
        fit."""
        found: NDArray[np.bool_] | None = None
        for mask in self._masks_of(row):
            one = mask.counted_elements(
                row.reference.shape, self._values(mask, row.reference.key.part)
            )
            found = one if found is None else found & one
        return found

    def _masks_of(self, row: Row) -> list[Mask]:
        """The masks that speak of a row."""
        if row.target.key.role not in JUDGED_ROLES:
            return []
        names = _end_names(row.target) | _end_names(row.reference)
        pairs = zip(self._masks, self._masked, strict=True)
        return [mask for mask, masked in pairs if masked & names]

    def summary(self, rows: Iterable[Row]) -> list[str]:
        """One line on all that was left out of measured rows."""
        masked = [row for row in rows if row.numbers is not None and self._masks_of(row)]
        if not masked:
            return []
        total = sum(prod(row.reference.shape) for row in masked)
        out = total - sum((row.numbers or {})["count"] for row in masked)
        return [f"the map masks {out:,} of {total:,} positions at {len(masked)} sync points"]

    def _values(self, mask: Mask, part: Part) -> NDArray[Any] | None:
        if not mask.tensor:
            return None
        values = self._told.get((mask.tensor, part), self._told.get((mask.tensor, WHOLE)))
        if values is None:
            raise ValueError(f"{mask.tensor} was not recorded for {part}")
        return values

    def _read(self, name: str, runs: tuple[Run, Run]) -> None:
        for run in runs:
            found = [t for t in run.tensors if _has_name(t, name) and t.kept is Kept.VALUES]
            for tensor in found:
                values = run.values(tensor)
                if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
                    raise InputError(
                        f"a mask of 0 and 1 in the tensor {name!r}",
                        f"other values of {tensor.dtype}",
                    )
                self._told[name, tensor.key.part] = values
            if found:
                return
        raise InputError(
            f"the mask {name!r} among the inputs and ops of the reference",
            "no such tensor with its values",
            "syncpoint inspect lists the names of a run",
        )


def _has_name(tensor: Tensor, name: str) -> bool:
    if tensor.key.role is Role.MODEL_INPUT:
        return name in (tensor.name, tensor.key.op.op)
    return tensor.key.role is Role.OUTPUT and not tensor.key.index and name == str(tensor.key.op)


def _run_names(run: Run) -> Iterator[str]:
    """The names under which a map may speak of the ops and tensors of a run."""
    for op in run.ops:
        yield from (op.key.op, str(op.key), op.module)
    for tensor in run.tensors:
        yield from (tensor.key.op.op, str(tensor.key.op), tensor.name)


def _end_names(end: End) -> set[str]:
    return {end.key.op.op, str(end.key.op), end.module, end.name} - {""}


def remove_masked(masks: Masks | None, row: Row, pair: Pair | None) -> tuple[Row, Pair | None]:
    """The pair without the positions that do not count; not measured where none is left."""
    try:
        kept = masks.counted_elements(row) if masks is not None else None
    except ValueError as error:
        return _mark_unmeasured(row, f"the mask does not fit: {error}"), None
    if kept is None or row.unmeasured:
        return row, pair
    if pair is None:
        return _mark_unmeasured(row, f"a mask needs values, found {row.basis}"), None
    if not kept.any():
        return _mark_unmeasured(row, "every position"), None
    return row, select_counted(pair, kept)


def select_counted(pair: Pair, kept: NDArray[np.bool_]) -> Pair:
    """The pair of the elements that count alone, in one row."""
    return replace(
        pair,
        target=_select_elements(pair.target, kept),
        reference=_select_elements(pair.reference, kept),
    )


def _mark_unmeasured(row: Row, detail: str) -> Row:
    return replace(row, numbers=None, unmeasured=Reason(ReasonCode.MASKED, detail))


def _select_elements(operand: Operand, kept: NDArray[np.bool_]) -> Operand:
    """The elements that count, one after the other. One scale serves all of them wherever they
    are; several belong to places, so that the numbers they stand for are taken."""
    if operand.quantization is not None and operand.quantization.axis is not None:
        operand = undo_quantization(operand)
    return replace(operand, data=operand.array[kept])


def restore_indices(row: Row, kept: NDArray[np.bool_]) -> Row:
    """A row that was measured without what is masked: indices are those of the whole again."""
    numbers = dict(row.numbers or {})
    at = numbers.get("max_abs_index")
    if at is not None:
        numbers["max_abs_index"] = int(np.flatnonzero(kept)[at])
    out = kept.size - int(np.count_nonzero(kept))
    note = f"{out:,} of {kept.size:,} positions masked by the map"
    return replace(row, numbers=numbers, notes=(*row.notes, note))


def blank_masked(
    operand: Operand, truth: NDArray[Any], kept: NDArray[np.bool_]
) -> tuple[Operand, NDArray[Any]] | None:
    """Both with the mark of a masked position where one is, which the kernel passes over; None
    where their types have none."""
    if kept.shape != truth.shape or operand.array.shape != truth.shape:
        return None
    if DTYPES[operand.dtype].kind is not Kind.FLOAT and operand.quantization is None:
        same = np.where(kept, operand.array, truth.astype(operand.array.dtype))
        return replace(operand, data=same), truth
    if operand.quantization is not None or operand.dtype not in _HAS_INFINITY:
        return None
    mark = np.asarray(-inf)
    data = np.where(kept, operand.array, mark.astype(operand.array.dtype))
    return replace(operand, data=data), np.where(kept, truth, mark)
