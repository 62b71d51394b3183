"""The lines of the report: what the tool of these dumps shows, and beside it our verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_facts import tensor_facts
from syncpoint.ascend.matching.device_views import PLAIN
from syncpoint.ascend.matching.plan import Entry
from syncpoint.ascend.mode.batch_columns import BatchColumns
from syncpoint.ascend.mode.offline_data.metric_columns import METRICS, columns, overflow
from syncpoint.ascend.mode.offline_data.open_dumps import Case
from syncpoint.ascend.mode.offline_data.options import Asked
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.reader import Run

NOTHING = "NaN"
"""How the report writes what it does not know."""
INSERTED = "*"
"""In place of the original ops of an op that the compiler added."""


@dataclass(frozen=True, kw_only=True)
class Line:
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
    """Why there is no verdict; None where there is one."""


@dataclass(frozen=True)
class Columns:
    """What the columns of that tool say of one pair."""

    cells: tuple[str, ...]
    reasons: tuple[str, ...]
    overflow: str


NO_COLUMNS = Columns((NOTHING,) * len(METRICS), (), NOTHING)


class DeviceColumns(BatchColumns[Columns]):
    """The columns of every pair."""

    def __init__(self, asked: Asked, case: Case) -> None:
        super().__init__(case.target, case.reference, self._columns, asked.threads)
        self._asked = asked
        self._case = case

    def complete(self, result: Result, same: Mapping[TensorKey, TensorKey]) -> None:
        """Those of the tensors that were measured as another: the same, unless they name its
        file."""
        rows = {row.target.key: row for row in result.rows}
        for key, other in same.items():
            columns, row = self.found.get(other), rows.get(key)
            if columns is None or row is None:
                continue
            if columns.reasons:
                mine = self._case.target.tensor(key)
                theirs = self._case.reference.tensor(row.reference.key)
                assert mine is not None and theirs is not None
                seen = View(row.view).apply(self._case.target.values(mine))
                columns = self._columns(row, seen, self._case.reference.values(theirs))
            self.found[key] = columns

    def _columns(self, row: Row, mine: NDArray[Any], theirs: NDArray[Any]) -> Columns:
        files = (self._file(0, row.target.key), self._file(1, row.reference.key))
        found = columns(mine, theirs, *files, theirs.shape)
        wanted = self._asked.overflow or self._asked.advisor
        flood = overflow(mine) if wanted else NOTHING
        cells = tuple(found.cells[name] for name in METRICS)
        return Columns(cells, tuple(found.reasons), flood)

    def _file(self, side: int, key: TensorKey) -> str:
        folder = (self._asked.target, self._asked.golden)[side]
        stored = self._case.stored[side].tensor(key)
        return f"{folder}/{stored.shard if stored is not None else ''}"


def lines(
    case: Case, result: Result, found: Mapping[TensorKey, Columns], faults: Mapping[TensorKey, str]
) -> Iterator[Line]:
    """All lines in the order of the network; `faults` are remarks on single tensors."""
    rows = {row.target.key: row for row in result.rows}
    for entry in case.plan.entries:
        key = entry.target.key if entry.target is not None else None
        row = rows.get(key) if key is not None else None
        columns = found.get(key) if key is not None else None
        fault = faults.get(key, "") if key is not None else ""
        yield _line(case, entry, row, columns, fault)


def _line(case: Case, entry: Entry, row: Row | None, columns: Columns | None, fault: str) -> Line:
    blank = case.by_name and entry.reason is not None
    target = None if blank else entry.target
    shown = columns or NO_COLUMNS
    verdict, code, remark = _judged(entry, row, shown.cells)
    return Line(
        index=entry.index,
        sequence=NOTHING if entry.sequence is None else str(entry.sequence),
        type=NOTHING if blank else entry.type or NOTHING,
        target_names=",".join(entry.target_names) or INSERTED,
        target_type=_type(case.stored[0], target) if columns else NOTHING,
        target_address=NOTHING if target is None else str(target.address or 0),
        reference_names=",".join(entry.reference_names) or INSERTED,
        reference_type=_type(case.stored[1], entry.reference) if columns else NOTHING,
        reference_address=_reference_address(case, entry, blank),
        label=NOTHING if target is None else entry.label,
        shape=_shape(case, entry, target, columns is not None),
        overflow=shown.overflow,
        metrics=shown.cells,
        reason=",".join(reason for reason in _reasons(entry, row, columns) if reason),
        verdict=verdict,
        remark="; ".join(text for text in (remark, fault) if text),
        code=code,
    )


def _reasons(entry: Entry, row: Row | None, columns: Columns | None) -> tuple[str, ...]:
    """Why the columns of that tool say nothing, or less than all, in its words."""
    if columns is not None:
        return columns.reasons
    if entry.reason is None and row is not None:
        return (f"[{entry.op}] The tensors cannot be compared: {row.reason}.",)
    return (entry.words,)


def _reference_address(case: Case, entry: Entry, blank: bool) -> str:
    if not case.by_name or blank or entry.reference is None:
        return NOTHING
    return str(entry.reference.address or 0)


def _shape(case: Case, entry: Entry, target: Tensor | None, compared: bool) -> str:
    if target is None:
        return NOTHING
    stored = case.stored[0].tensor(target.key)
    shape = (stored or target).shape
    if compared and not case.by_name and entry.reference is not None and target.count:
        plain = target.layout in PLAIN and entry.axes in PLAIN
        shape = entry.reference.shape
        if plain:
            # That tool lays plain tensors in a row, and pads the row where it cuts it.
            whole = target.count == entry.reference.count
            shape = (entry.reference.count, *(() if whole else (1, 1, 1)))
    return f"[{','.join(map(str, shape or (1,)))}]"


def _type(run: Run, tensor: Tensor | None) -> str:
    """The NumPy type that the report names: that of the numbers as they were decoded."""
    if tensor is None:
        return NOTHING
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


def _judged(
    entry: Entry, row: Row | None, cells: tuple[str, ...]
) -> tuple[str, ReasonCode | None, str]:
    """Our verdict, why there is none, and what the columns of that tool do not say."""
    if row is None or entry.target is None:
        code = entry.reason or ReasonCode.NO_COUNTERPART
        return str(Verdict.NONE), code, str(code)
    if entry.reason is ReasonCode.UNREADABLE:
        return str(Verdict.NONE), entry.reason, str(entry.reason)
    said = [row.reason] if row.reason and row.verdict is not Verdict.CLOSE else []
    said += row.notes
    shown = dict(zip(METRICS, cells, strict=True))
    if row.verdict.severity and _looks_perfect(shown):
        error = (row.numbers or {}).get("max_abs")
        if error is not None and not row.first_non_finite:
            said.append(f"the columns to the left hide it: the greatest error is {error:.6g}")
    return str(row.verdict), row.why.code, "; ".join(said)


def _looks_perfect(shown: dict[str, str]) -> bool:
    perfect = {"0.000000", "-0.000000", "1.000000", "1.0", NOTHING, "nan"}
    return shown["CosineSimilarity"] in ("1.000000", "1.0") or all(
        shown[name] in perfect for name in METRICS if name.endswith(("Error", "Distance"))
    )
