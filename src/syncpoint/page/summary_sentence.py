"""The comparison in a summary sentence and a quieter second one."""

from __future__ import annotations

import numpy as np

from syncpoint.comparison.coverage import Coverage
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_states import GUILTS
from syncpoint.page.table import Table, tally


def summarize(
    opened: Opened, first: list[int], counts: dict[str, int], verdict: str
) -> tuple[str, str]:
    """One sentence that explains most of the damage, and a quieter one."""
    off = counts["moderate"] + counts["large"] + counts["inherited"] + counts["amplified"]
    damaged = int((opened.table.frame["reason_code"] == ReasonCode.DAMAGED.value).sum())
    damaged += sum(one["reason"] == ReasonCode.DAMAGED for one in opened.about["unmatched"])
    if damaged:
        points = f"{off} sync points are not close." if off else "All that was compared is close."
        tensors = "1 tensor is" if damaged == 1 else f"{damaged} tensors are"
        return f"{tensors} damaged: copy the file again or record the run again.", points
    if not opened.about["coverage"]["compared"]:
        return "Nothing was compared.", "No target tensor found its counterpart in the reference."
    if not off:
        return "Everything that was compared is close.", _what_is_left_open(opened, counts)
    points = f"{off} sync point{'s' if off > 1 else ''}"
    if verdict == "amplified":
        return "No op is guilty: small errors grew on the way.", f"{points} are not close."
    if not first:
        return f"{points} not close, and no op that stands out.", ""
    return _where_they_part(opened.table, first, points), _around(opened.table, first)


def _what_is_left_open(opened: Opened, counts: dict[str, int]) -> str:
    """What a comparison in which everything is close did not look at."""
    bases = tally(opened.table.frame, "basis")
    coverage = Coverage.of_saved(opened.about)
    text = f"{coverage.compared} of {coverage.target_tensors} target tensors compared."
    if coverage.reference_missing:
        text += (
            f" {coverage.reference_missing} of {coverage.reference_tensors} reference tensors"
            " are missing."
        )
    if any(count for name, count in bases.items() if name != "values"):
        text += " Statistics and digests can prove a difference, hardly equality."
    if counts["none"]:
        text += f" {counts['none']} have no verdict."
    return text


def _where_they_part(table: Table, first: list[int], points: str) -> str:
    """Which ops make the error; `points` says how many sync points are off."""
    names = table.labels(np.array(first))
    unknown = table.guilts[first[0]] == GUILTS.index("unknown")
    if len(names) == 1:
        what = "is where the two runs part" if unknown else "makes the error"
        return f"{names[0]} {what}: {points} not close."
    what = "are where the two runs part" if unknown else "make the error"
    return f"{names[0]} and {len(names) - 1} on parallel branches {what}: {points} not close."


def _around(table: Table, first: list[int]) -> str:
    """The module of the first op that is off, and what is close or broken elsewhere."""
    module = str(table.modules[first[0]])
    before = table.order < min(table.order[row] for row in first)
    off_before = before & ~np.isin(table.verdicts, ["close", "none"])
    quiet = [f"In {module}."] if module else []
    if not off_before.any():
        quiet.append("Everything before it is close.")
    broken = table.frame["mismatched"].fill_null(0).to_numpy() > 0
    if broken.any() and not any(broken[row] for row in first):
        quiet.append("NaN or infinite values begin elsewhere: see the findings.")
    return " ".join(quiet)
