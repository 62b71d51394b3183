"""Writes the report as CSV, with the columns that the users of these dumps know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from syncpoint.ascend.mode.offline_data.metric_columns import METRICS
from syncpoint.ascend.mode.offline_data.report_rows import Line
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


def cells(line: Line, devices: bool, overflow: bool) -> list[str]:
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
    path: Path, lines: Iterable[Line], devices: bool, overflow: bool
) -> Iterator[Line]:
    """Write the lines as they come and pass them on; the file, which must be new, appears after
    the last."""
    with write_errors(path), replacing(path, new=True) as temporary, csv_file(temporary) as writer:
        writer.writerow(header(devices, overflow))
        for line in lines:
            writer.writerow(cells(line, devices, overflow))
            yield line
