"""The report with the columns that the manual of the tool documents, and ours behind them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf, isnan

from syncpoint.ascend.dumps.torchair_columns import METRICS_SEED, ColumnsSeed
from syncpoint.ascend.dumps.torchair_summaries import DIFFERENCES, DIGESTS, ColumnsSummary
from syncpoint.ascend.mode.torchair.options import Summary
from syncpoint.ascend.mode.torchair.report_rows import Line
from syncpoint.ascend.sheets import Colour
from syncpoint.metrics.verdict import FAILING_REASONS, ReasonCode, Verdict

_METRICS = {
    Summary.VALUES: METRICS_SEED,
    Summary.STATISTICS: DIFFERENCES,
    Summary.MD5: DIGESTS,
}
_GRADIENTS = ("Requires_grad Consistent",)
UNKNOWN = "N/A"


def header(summary: Summary) -> tuple[str, ...]:
    """The names of the columns."""
    return (
        *("API Name", "Stack Info", "Data Name"),
        *_METRICS[summary],
        *(_GRADIENTS if summary is Summary.VALUES else ()),
        *("Result", "Accuracy Reached or Not", "Err_message"),
        *("Token", "Verdict", "Remark"),
    )


def cells(line: Line, summary: Summary) -> list[str]:
    """A line in the order of the header."""
    columns = line.columns if isinstance(line.columns, ColumnsSeed | ColumnsSummary) else None
    metrics: Sequence[float | str | None] = (None,) * len(_METRICS[summary])
    if columns is not None:
        metrics = columns.metrics
    said = columns.reason if columns is not None else line.entry.words or line.remark
    passed = _passed(line)
    return [
        _name(line),
        UNKNOWN,  # a dump has no stacks
        f"[{line.my_path or UNKNOWN}, {line.golden_path or UNKNOWN}]",
        *map(_text, metrics),
        *((UNKNOWN,) if summary is Summary.VALUES else ()),  # nor does it know of gradients
        UNKNOWN if passed is None else "PASS" if passed else "FAIL",
        UNKNOWN if passed is None else "Yes" if passed else "No",
        said,
        str(max(line.entry.part.step, 0)),
        str(line.verdict),
        line.remark,
    ]


def colour(line: Line) -> Colour:
    """By the rule of the manual and by our verdict: green only where both are content."""
    if line.verdict.severity > 1 or line.reason in FAILING_REASONS:
        return Colour.RED
    if line.verdict is Verdict.CLOSE and _passed(line):
        return Colour.GREEN
    return Colour.YELLOW


def _passed(line: Line) -> bool | None:
    """The rule of the manual. What should be comparable and is not has failed."""
    if line.columns is not None:
        return line.columns.passed
    return False if line.reason in FAILING_REASONS else None


def _name(line: Line) -> str:
    entry = line.entry
    tensor = entry.target if entry.target is not None else entry.reference
    names = entry.target_names or entry.reference_names
    name = ",".join(names)
    if tensor is None or (entry.target is None and entry.reason is ReasonCode.UNREADABLE):
        return name
    return f"{name}.{tensor.key.role}.{tensor.key.index}"


def _text(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or UNKNOWN
    if isnan(value):
        return "NaN"
    return ("-inf" if value < 0 else "inf") if isinf(value) else f"{value:.12g}"
