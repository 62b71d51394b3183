"""The recorded source files of a run for the page, with the sync points and fused ops of each of
their lines."""

from __future__ import annotations

import numpy as np
import polars as pl

from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.page.fused_ops import read_regions
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import Side, SourceFile, SourceMark

_MAX_NAMED_FILES = 5
_MAX_FILES = 200
_MAX_ROWS_PER_LINE = 20_000
"""Sync points of one line: a line in a loop may have a million."""


def read_source(opened: OpenComparison, side: Side, file: str) -> SourceFile:
    """Return a file of a run's own snapshot, and which sync points come from each line.

    Files are looked up by name in the index of the snapshot, so that no path is opened that the
    run does not name. InputError where neither the run nor any op names the file.
    """
    marks = _mark_lines(opened, side, file)
    run = opened.run(side)
    text, why_missing = None, ""
    if run is None:
        why_missing = f"The {side} run is not available: {opened.why_missing.get(side, '')}."
    else:
        try:
            text = run.source_text(file)
        except FormatError as error:
            why_missing = f"The copy cannot be read: {error}."
        else:
            if text is None:
                why_missing = f"The {side} run has no copy of this file."
    if text is None and not marks:
        files = ", ".join(list_source_files(opened, side)[:_MAX_NAMED_FILES])
        raise InputError(
            f"the {side} run has no source file {repr(file)[:200]}",
            cure=f"choose one of its files: {files}" if files else "",
        )
    return SourceFile(
        side=side,
        file=file,
        text=text,
        why_not=why_missing if text is None else "",
        marks=marks,
        others=[other for other in list_source_files(opened, side) if other != file],
    )


def list_source_files(opened: OpenComparison, side: Side) -> list[str]:
    """Return the files that the ops of a run point to."""
    column = opened.table.frame[f"{side}_source"].fill_null("").unique(maintain_order=True)
    names = column.str.replace(r":\d+$", "").unique(maintain_order=True).to_list()
    return [name for name in names if name][:_MAX_FILES]


def _mark_lines(opened: OpenComparison, side: Side, file: str) -> list[SourceMark]:
    if not file:
        return []
    table = opened.table
    column = table.frame[f"{side}_source"].fill_null("")
    is_computed = table.frame["target_role"].is_in(["output", "model-output", "state"])
    rows = np.flatnonzero((column.str.starts_with(f"{file}:") & is_computed).to_numpy())
    lines = column.gather(rows).str.slice(len(file) + 1).cast(pl.Int64, strict=False)
    marks = pl.DataFrame({"row": rows.astype(np.int64), "line": lines}).drop_nulls()
    # A fused op comes from the lines of all its pieces.
    marks = pl.concat([marks, _find_fused_lines(opened, side, file)]).unique()
    marks = marks[np.lexsort((marks["row"], table.order[marks["row"].to_numpy()]))]
    rows_by_line = marks.group_by("line", maintain_order=True).agg(
        pl.col("row").head(_MAX_ROWS_PER_LINE)
    )
    return [
        SourceMark(line=line, rows=line_rows)
        for line, line_rows in rows_by_line.sort("line").iter_rows()
    ]


def _find_fused_lines(opened: OpenComparison, side: Side, file: str) -> pl.DataFrame:
    """Return the lines of a file that pieces of fused ops come from: row, line."""
    lines = read_regions(opened).filter((pl.col("file") == file) & (pl.col("line") > 0))
    if side == "target" and lines.height and not _is_same_file(opened, file):
        lines = lines.clear()
    return lines.select("row", "line")


def _is_same_file(opened: OpenComparison, file: str) -> bool:
    """Whether both runs have the same text of a file, and so the same line numbers."""
    texts = []
    for side in ("target", "reference"):
        run = opened.run(side)
        try:
            texts.append(run.source_text(file) if run is not None else None)
        except SyncpointError:
            return False
    return texts[0] is not None and texts[0] == texts[1]
