"""The report of `offline_data`, written as CSV: its header and lines, cells for address, shape,
type, msProbe's reasons, our verdict and remark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_file import tensor_facts
from syncpoint.ascend.matching.device_views import PLAIN_LAYOUTS
from syncpoint.ascend.matching.plan import PlanEntry
from syncpoint.ascend.mode.batch_columns import BatchColumns
from syncpoint.ascend.mode.offline_data.metric_columns import METRICS, columns, overflow
from syncpoint.ascend.mode.offline_data.open_and_plan import OfflineCase
from syncpoint.ascend.mode.offline_data.options import OfflineFlags
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.spreadsheet_text import csv_file, escape_cell

UNKNOWN_CELL = "NaN"
"""The cell of an unknown value."""
NO_OPS_CELL = "*"
"""The cell for the original ops of an op that the compiler added."""


@dataclass(frozen=True, kw_only=True)
class OfflineLine:
    """One line of the report, as text."""

    index: int
    sequence: str
    type: str
    target_names: str
    target_type: str
    target_address: str
    reference_names: str
    reference_type: str
    reference_address: str
    label: str
    shape: str
    overflow: str
    metrics: tuple[str, ...]
    reason: str
    verdict: str
    remark: str
    code: ReasonCode | None
    """Why there is no verdict; None if there is one."""


@dataclass(frozen=True)
class PairCells:
    """The cells of msProbe for one pair."""

    cells: tuple[str, ...]
    reasons: tuple[str, ...]
    overflow: str


NO_CELLS = PairCells((UNKNOWN_CELL,) * len(METRICS), (), UNKNOWN_CELL)


class DeviceColumns(BatchColumns[PairCells]):
    """An event sink that computes the cells of every pair."""

    def __init__(self, flags: OfflineFlags, case: OfflineCase) -> None:
        super().__init__(case.target, case.reference, self._compute_cells, flags.threads)
        self._flags = flags
        self._case = case

    def add_repeated(self, result: Result, repeated: Mapping[TensorKey, TensorKey]) -> None:
        """Add the cells of repeated tensors. They are those of the first tensor, unless they name
        its file."""
        rows = {row.target.key: row for row in result.rows}
        for key, first in repeated.items():
            cells, row = self.columns_by_tensor.get(first), rows.get(key)
            if cells is None or row is None:
                continue
            if cells.reasons:
                target = self._case.target.tensor(key)
                reference = self._case.reference.tensor(row.reference.key)
                assert target is not None and reference is not None
                values = View(row.view).apply(self._case.target.values(target))
                cells = self._compute_cells(row, values, self._case.reference.values(reference))
            self.columns_by_tensor[key] = cells

    def _compute_cells(self, row: Row, target: NDArray[Any], reference: NDArray[Any]) -> PairCells:
        files = (self._file(0, row.target.key), self._file(1, row.reference.key))
        metrics = columns(target, reference, *files, reference.shape)
        needs_overflow = self._flags.overflow or self._flags.advisor
        overflow_cell = overflow(target) if needs_overflow else UNKNOWN_CELL
        cells = tuple(metrics.cells[name] for name in METRICS)
        return PairCells(cells, tuple(metrics.reasons), overflow_cell)

    def _file(self, side: int, key: TensorKey) -> str:
        folder = (self._flags.target, self._flags.golden)[side]
        stored = self._case.stored[side].tensor(key)
        return f"{folder}/{stored.shard if stored is not None else ''}"


def lines(
    case: OfflineCase,
    result: Result,
    cells_by_tensor: Mapping[TensorKey, PairCells],
    remarks: Mapping[TensorKey, str],
) -> Iterator[OfflineLine]:
    """All lines in the order of the network; `remarks` are on single tensors."""
    rows = {row.target.key: row for row in result.rows}
    for entry in case.plan.entries:
        key = entry.target.key if entry.target is not None else None
        row = rows.get(key) if key is not None else None
        cells = cells_by_tensor.get(key) if key is not None else None
        remark = remarks.get(key, "") if key is not None else ""
        yield _line(case, entry, row, cells, remark)


def _line(
    case: OfflineCase,
    entry: PlanEntry,
    row: Row | None,
    pair_cells: PairCells | None,
    tensor_remark: str,
) -> OfflineLine:
    is_blank = case.by_name and entry.reason is not None
    target = None if is_blank else entry.target
    cells = pair_cells or NO_CELLS
    verdict, code, remark = _verdict_cells(entry, row, cells.cells)
    return OfflineLine(
        index=entry.index,
        sequence=UNKNOWN_CELL if entry.sequence is None else str(entry.sequence),
        type=UNKNOWN_CELL if is_blank else entry.type or UNKNOWN_CELL,
        target_names=",".join(entry.target_names) or NO_OPS_CELL,
        target_type=_type_cell(case.stored[0], target) if pair_cells else UNKNOWN_CELL,
        target_address=UNKNOWN_CELL if target is None else str(target.address or 0),
        reference_names=",".join(entry.reference_names) or NO_OPS_CELL,
        reference_type=_type_cell(case.stored[1], entry.reference) if pair_cells else UNKNOWN_CELL,
        reference_address=_reference_address(case, entry, is_blank),
        label=UNKNOWN_CELL if target is None else entry.label,
        shape=_shape_cell(case, entry, target, pair_cells is not None),
        overflow=cells.overflow,
        metrics=cells.cells,
        reason=",".join(reason for reason in _reasons(entry, row, pair_cells) if reason),
        verdict=verdict,
        remark="; ".join(text for text in (remark, tensor_remark) if text),
        code=code,
    )


def _reasons(entry: PlanEntry, row: Row | None, pair_cells: PairCells | None) -> tuple[str, ...]:
    """Why msProbe computes no metrics, or not all, as it says it."""
    if pair_cells is not None:
        return pair_cells.reasons
    if entry.reason is None and row is not None:
        return (f"[{entry.op}] The tensors cannot be compared: {row.reason}.",)
    return (entry.report_text,)


def _reference_address(case: OfflineCase, entry: PlanEntry, is_blank: bool) -> str:
    if not case.by_name or is_blank or entry.reference is None:
        return UNKNOWN_CELL
    return str(entry.reference.address or 0)


def _shape_cell(case: OfflineCase, entry: PlanEntry, target: Tensor | None, compared: bool) -> str:
    if target is None:
        return UNKNOWN_CELL
    stored = case.stored[0].tensor(target.key)
    shape = (stored or target).shape
    if compared and not case.by_name and entry.reference is not None and target.count:
        shape = entry.reference.shape
        if target.layout in PLAIN_LAYOUTS and entry.axes in PLAIN_LAYOUTS:
            # msProbe flattens plain tensors; it adds axes of one if it crops them.
            is_cropped = target.count != entry.reference.count
            shape = (entry.reference.count, *((1, 1, 1) if is_cropped else ()))
    return f"[{','.join(map(str, shape or (1,)))}]"


def _type_cell(run: Run, tensor: Tensor | None) -> str:
    """The NumPy dtype of the decoded values, as in the report."""
    if tensor is None:
        return UNKNOWN_CELL
    if tensor.count == 0:
        return "float64"
    stored = str(tensor_facts(run, tensor).get("stored_type", ""))
    if stored.lower().startswith(("float8", "hifloat8")) or tensor.dtype.startswith("f8"):
        return "float64"
    if tensor.dtype == "bf16":
        return "float32"
    if tensor.dtype in ("i4", "u4"):
        return "int8"
    return str(DTYPES[tensor.dtype].numpy)


def _verdict_cells(
    entry: PlanEntry, row: Row | None, cells: tuple[str, ...]
) -> tuple[str, ReasonCode | None, str]:
    """Our verdict, the code of the reason why there is none, and the remark."""
    if row is None or entry.target is None:
        code = entry.reason or ReasonCode.NO_COUNTERPART
        return str(Verdict.NONE), code, str(code)
    if entry.reason is ReasonCode.UNREADABLE:
        return str(Verdict.NONE), entry.reason, str(entry.reason)
    remarks = [row.reason] if row.reason and row.verdict is not Verdict.CLOSE else []
    remarks += row.notes
    if row.verdict.severity and _looks_perfect(dict(zip(METRICS, cells, strict=True))):
        error = (row.numbers or {}).get("max_abs")
        if error is not None and not row.first_non_finite:
            remarks.append(f"the metrics hide the error: the max absolute error is {error:.6g}")
    return str(row.verdict), row.why.code, "; ".join(remarks)


def _looks_perfect(cells: dict[str, str]) -> bool:
    """Whether the metrics of msProbe show no error."""
    perfect = {"0.000000", "-0.000000", "1.000000", "1.0", UNKNOWN_CELL, "nan"}
    return cells["CosineSimilarity"] in ("1.000000", "1.0") or all(
        cells[name] in perfect for name in METRICS if name.endswith(("Error", "Distance"))
    )


def header(devices: bool, overflow: bool) -> list[str]:
    """The names of the columns."""
    return [
        *("Index", "OpSequence", "OpType", "NPUDump", "DataType", "Address"),
        *("GroundTruth", "DataType"),
        *(("Address",) if devices else ()),
        *("TensorIndex", "Shape"),
        *(("OverFlow",) if overflow else ()),
        *METRICS,
        *("CompareFailReason", "Verdict", "Remark"),
    ]


def cells(line: OfflineLine, devices: bool, overflow: bool) -> list[str]:
    """A line in the order of the header."""
    return [
        str(line.index),
        line.sequence,
        escape_cell(line.type),
        escape_cell(line.target_names),
        line.target_type,
        line.target_address,
        escape_cell(line.reference_names),
        line.reference_type,
        *((line.reference_address,) if devices else ()),
        escape_cell(line.label),
        line.shape,
        *((line.overflow,) if overflow else ()),
        *line.metrics,
        escape_cell(line.reason),
        line.verdict,
        escape_cell(line.remark),
    ]


def write_report(
    path: Path, lines: Iterable[OfflineLine], devices: bool, overflow: bool
) -> Iterator[OfflineLine]:
    """Write the lines and yield each of them. The file must be new; it appears after the last
    line."""
    with write_errors(path), replacing(path, new=True) as temporary, csv_file(temporary) as writer:
        writer.writerow(header(devices, overflow))
        for line in lines:
            writer.writerow(cells(line, devices, overflow))
            yield line
