"""Apply the masks of a map file to a row: which masks match by name, remove or blank masked
positions, restore indices; masks are parsed in matching/masks.py.

They are removed before the measurement, so that no metric includes them.
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
"""Element types in which the kernel treats minus infinity as a masked position."""


class Masks:
    """The masks of a map, applied to the rows of one comparison."""

    def __init__(self, masks: Sequence[Mask], target: Run, reference: Run) -> None:
        self._masks = masks
        self._mask_values: dict[tuple[str, Part], NDArray[Any]] = {}
        names = {name for run in (target, reference) for name in _run_names(run)}
        # Read all masks first, so that a wrong map fails before anything is measured.
        self._masked = [{n for n in names if mask.pattern.fullmatch(n)} for mask in masks]
        for mask in masks:
            if mask.tensor:
                self._read(mask.tensor, (reference, target))

    def counted_elements(self, row: Row) -> NDArray[np.bool_] | None:
        """Which elements of a row count; None where all do.

        Raises ValueError where a mask does not fit the shape.
        """
        counted: NDArray[np.bool_] | None = None
        for mask in self._masks_of(row):
            counted_by_mask = mask.counted_elements(
                row.reference.shape, self._values(mask, row.reference.key.part)
            )
            counted = counted_by_mask if counted is None else counted & counted_by_mask
        return counted

    def _masks_of(self, row: Row) -> list[Mask]:
        """The masks that apply to a row."""
        if row.target.key.role not in JUDGED_ROLES:
            return []
        names = _end_names(row.target) | _end_names(row.reference)
        pairs = zip(self._masks, self._masked, strict=True)
        return [mask for mask, masked in pairs if masked & names]

    def summary(self, rows: Iterable[Row]) -> list[str]:
        """One line with the number of masked positions; empty if there are none."""
        masked = [row for row in rows if row.numbers is not None and self._masks_of(row)]
        if not masked:
            return []
        total = sum(prod(row.reference.shape) for row in masked)
        masked_count = total - sum((row.numbers or {})["count"] for row in masked)
        return [
            f"the map masks {masked_count:,} of {total:,} positions at {len(masked)} sync points"
        ]

    def _values(self, mask: Mask, part: Part) -> NDArray[Any] | None:
        if not mask.tensor:
            return None
        values = self._mask_values.get(
            (mask.tensor, part), self._mask_values.get((mask.tensor, WHOLE))
        )
        if values is None:
            raise ValueError(f"{mask.tensor} was not recorded for {part}")
        return values

    def _read(self, name: str, runs: tuple[Run, Run]) -> None:
        for run in runs:
            mask_tensors = [t for t in run.tensors if _has_name(t, name) and t.kept is Kept.VALUES]
            for tensor in mask_tensors:
                values = run.values(tensor)
                if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
                    raise InputError(
                        f"the mask {name!r} (dtype {tensor.dtype}) has values other than 0 and 1",
                        cure="choose another tensor as mask in the map file (--map)",
                    )
                self._mask_values[name, tensor.key.part] = values
            if mask_tensors:
                return
        raise InputError(
            f"there is no tensor for the mask {name!r}: neither run has a model input or op output"
            " of this name with recorded values",
            cure="list the names of a run with: syncpoint inspect RUN",
        )


def _has_name(tensor: Tensor, name: str) -> bool:
    if tensor.key.role is Role.MODEL_INPUT:
        return name in (tensor.name, tensor.key.op.op)
    return tensor.key.role is Role.OUTPUT and not tensor.key.index and name == str(tensor.key.op)


def _run_names(run: Run) -> Iterator[str]:
    """All names of the ops and tensors of a run that a map may use."""
    for op in run.ops:
        yield from (op.key.op, str(op.key), op.module)
    for tensor in run.tensors:
        yield from (tensor.key.op.op, str(tensor.key.op), tensor.name)


def _end_names(end: End) -> set[str]:
    return {end.key.op.op, str(end.key.op), end.module, end.name} - {""}


def remove_masked(masks: Masks | None, row: Row, pair: Pair | None) -> tuple[Row, Pair | None]:
    """The pair without masked positions; if all are masked, the row has the reason."""
    try:
        counted = masks.counted_elements(row) if masks is not None else None
    except ValueError as error:
        return _mark_unmeasured(row, f"the mask does not fit: {error}"), None
    if counted is None or row.unmeasured:
        return row, pair
    if pair is None:
        return _mark_unmeasured(row, f"a mask needs values; only {row.basis} kept"), None
    if not counted.any():
        return _mark_unmeasured(row, "every position is masked"), None
    return row, select_counted(pair, counted)


def select_counted(pair: Pair, counted: NDArray[np.bool_]) -> Pair:
    """The pair with only the elements that count, as one-dimensional arrays."""
    return replace(
        pair,
        target=_select_elements(pair.target, counted),
        reference=_select_elements(pair.reference, counted),
    )


def _mark_unmeasured(row: Row, detail: str) -> Row:
    return replace(row, numbers=None, unmeasured=Reason(ReasonCode.MASKED, detail))


def _select_elements(operand: Operand, counted: NDArray[np.bool_]) -> Operand:
    """The elements that count, in one dimension.

    Scales along an axis depend on the position, so they are undone first. A single scale stays.
    """
    if operand.quantization is not None and operand.quantization.axis is not None:
        operand = undo_quantization(operand)
    return replace(operand, data=operand.array[counted])


def restore_indices(row: Row, counted: NDArray[np.bool_]) -> Row:
    """The row with indices of the whole tensor, and a note with the number of masked positions."""
    numbers = dict(row.numbers or {})
    flat_index = numbers.get("max_abs_index")
    if flat_index is not None:
        numbers["max_abs_index"] = int(np.flatnonzero(counted)[flat_index])
    masked_count = counted.size - int(np.count_nonzero(counted))
    note = f"{masked_count:,} of {counted.size:,} positions masked by the map"
    return replace(row, numbers=numbers, notes=(*row.notes, note))


def blank_masked(
    operand: Operand, truth: NDArray[Any], counted: NDArray[np.bool_]
) -> tuple[Operand, NDArray[Any]] | None:
    """Both arrays with minus infinity at masked positions, which the kernel skips, or with equal
    numbers there if these are integers.

    None where their types have no infinity, and for integers with several scales.
    """
    if counted.shape != truth.shape or operand.array.shape != truth.shape:
        return None
    if DTYPES[operand.dtype].kind is not Kind.FLOAT and operand.quantization is None:
        blanked = np.where(counted, operand.array, truth.astype(operand.array.dtype))
        return replace(operand, data=blanked), truth
    quantization = operand.quantization
    if quantization is not None and quantization.axis is None and not quantization.table:
        zero = np.asarray(quantization.zero_point[0]).astype(operand.array.dtype)
        data = np.where(counted, operand.array, zero)
        return replace(operand, data=data), np.where(counted, truth, 0.0)
    if operand.quantization is not None or operand.dtype not in _HAS_INFINITY:
        return None
    mark = np.asarray(-inf)
    data = np.where(counted, operand.array, mark.astype(operand.array.dtype))
    return replace(operand, data=data), np.where(counted, truth, mark)
