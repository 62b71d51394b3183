"""Two sentences that summarize a comparison: which ops make the damage, and what is close, broken
or not compared elsewhere."""

from __future__ import annotations

import numpy as np

from syncpoint.comparison.coverage import Coverage
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_states import GUILTS
from syncpoint.page.row_table import RowTable, count_values


def summarize(
    opened: OpenComparison, first_divergence: list[int], counts: dict[str, int], verdict: str
) -> tuple[str, str]:
    """Return one sentence that explains most of the damage, and a quieter one."""
    off_count = sum(counts[name] for name in ("moderate", "large", "inherited", "amplified"))
    damaged = int((opened.table.frame["reason_code"] == ReasonCode.DAMAGED.value).sum())
    unmatched = opened.about["unmatched"]
    damaged += sum(tensor["reason"] == ReasonCode.DAMAGED for tensor in unmatched)
    if damaged:
        aside = "Everything that was compared is close."
        if off_count:
            aside = f"{off_count} sync points are not close."
        tensors = "1 tensor is" if damaged == 1 else f"{damaged} tensors are"
        return f"{tensors} damaged: copy the file again or record the run again.", aside
    if not opened.about["coverage"]["compared"]:
        return "Nothing was compared.", "No target tensor has a counterpart in the reference."
    if not off_count:
        return "Everything that was compared is close.", _describe_gaps(opened, counts)
    points = f"{off_count} sync point{'s' if off_count > 1 else ''}"
    if verdict == "amplified":
        return "No op is guilty: small errors grew on the way.", f"{points} are not close."
    if not first_divergence:
        return f"{points} not close, and no single op stands out.", ""
    sentence = _describe_divergence(opened.table, first_divergence, points)
    return sentence, _describe_surroundings(opened.table, first_divergence)


def _describe_gaps(opened: OpenComparison, counts: dict[str, int]) -> str:
    """Return what a comparison in which everything is close did not compare."""
    bases = count_values(opened.table.frame, "basis")
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


def _describe_divergence(table: RowTable, first_divergence: list[int], points: str) -> str:
    """Return which ops make the error; `points` says how many sync points are off."""
    names = table.labels(np.array(first_divergence))
    is_unknown = table.guilts[first_divergence[0]] == GUILTS.index("unknown")
    if len(names) == 1:
        what = "is where the two runs diverge" if is_unknown else "makes the error"
        return f"{names[0]} {what}: {points} not close."
    what = "are where the two runs diverge" if is_unknown else "make the error"
    return f"{names[0]} and {len(names) - 1} on parallel branches {what}: {points} not close."


def _describe_surroundings(table: RowTable, first_divergence: list[int]) -> str:
    """Return the module of the first op that is off, and what is close or broken elsewhere."""
    module = str(table.modules[first_divergence[0]])
    is_before = table.order < min(table.order[row] for row in first_divergence)
    is_off_before = is_before & ~np.isin(table.verdicts, ["close", "none"])
    sentences = [f"In {module}."] if module else []
    if not is_off_before.any():
        sentences.append("Everything before it is close.")
    is_broken = table.mismatched > 0
    if is_broken.any() and not any(is_broken[row] for row in first_divergence):
        sentences.append("NaN or infinite values begin elsewhere: see the findings.")
    return " ".join(sentences)
