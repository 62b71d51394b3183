"""The source that ops came from, as it was when the run was recorded."""

from __future__ import annotations

import numpy as np
import polars as pl

from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.page.fused_ops import regions
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import Side, SourceFile, SourceMark

_MOST_FILES = 200
_MOST_ROWS = 20_000
"""Sync points of one line: one line of a loop may have made a million."""


def source(opened: Opened, side: Side, file: str) -> SourceFile:
    """A file of a run's own snapshot, and which sync points each line made.

    Files are looked up by name in the index of the snapshot, so that no path is ever opened that
    the run does not name. InputError where neither the run nor any op knows the file.
    """
    marks = _marks(opened, side, file)
    run = opened.run(side)
    text, why = None, ""
    if run is None:
        why = f"The {side} run is not at hand: {opened.why_not.get(side, '')}."
    else:
        try:
            text = run.source_text(file)
        except FormatError as error:
            why = f"The copy cannot be read: {error}."
        else:
            if text is None:
                why = f"The {side} run carries no copy of this file."
    if text is None and not marks:
        raise InputError(f"a source file of the {side} run", repr(file)[:200])
    return SourceFile(
        side=side,
        file=file,
        text=text,
        why_not=why if text is None else "",
        marks=marks,
        others=[other for other in files(opened, side) if other != file],
    )


def _marks(opened: Opened, side: Side, file: str) -> list[SourceMark]:
    table = opened.table
    column = table.frame[f"{side}_source"].fill_null("")
    made = table.frame["target_role"].is_in(["output", "model-output", "state"])
    rows = np.flatnonzero((column.str.starts_with(f"{file}:") & made).to_numpy())
    if not file:
        return []
    lines = column.gather(rows).str.slice(len(file) + 1).cast(pl.Int64, strict=False)
    found = pl.DataFrame({"row": rows.astype(np.int64), "line": lines}).drop_nulls()
    # What was fused came from the lines of all its pieces.
    found = pl.concat([found, lines_of(opened, side, file)]).unique()
    found = found[np.lexsort((found["row"], table.order[found["row"].to_numpy()]))]
    grouped = found.group_by("line", maintain_order=True).agg(pl.col("row").head(_MOST_ROWS))
    return [SourceMark(line=line, rows=own) for line, own in grouped.sort("line").iter_rows()]


def files(opened: Opened, side: Side) -> list[str]:
    """The files that the ops of a run point to."""
    column = opened.table.frame[f"{side}_source"].fill_null("").unique(maintain_order=True)
    names = column.str.replace(r":\d+$", "").unique(maintain_order=True).to_list()
    return [name for name in names if name][:_MOST_FILES]


def lines_of(opened: Opened, side: Side, file: str) -> pl.DataFrame:
    """row, line: the lines of a file that the pieces of sync points came from."""
    found = regions(opened).filter((pl.col("file") == file) & (pl.col("line") > 0))
    if side == "target" and found.height and not _same_file(opened, file):
        found = found.clear()
    return found.select("row", "line")


def _same_file(opened: Opened, file: str) -> bool:
    """Whether both runs carry the same text: then the lines of one are those of the other."""
    texts = []
    for side in ("target", "reference"):
        run = opened.run(side)
        try:
            texts.append(run.source_text(file) if run is not None else None)
        except SyncpointError:
            return False
    return texts[0] is not None and texts[0] == texts[1]
