"""Writes the report as CSV, with the columns of msProbe followed by ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from syncpoint.ascend.mode.offline_data.metric_columns import METRICS
from syncpoint.ascend.mode.offline_data.report_rows import OfflineLine
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.spreadsheet_text import csv_file, escape_cell


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
