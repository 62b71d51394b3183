"""The section on whether the runs can be trusted: equal inputs, observer check, checksums,
precision, failures or lack of a diagnosis."""

from __future__ import annotations

import polars as pl

from syncpoint.comparison.findings import NOT_DIAGNOSED, Diagnosis
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import Level, Trust
from syncpoint.reports.checksum_text import verified_text

_SIDES = ("target", "reference")


def build_trust_lines(opened: OpenComparison) -> list[Trust]:
    """Return the lines of the section on trust."""
    lines = [_inputs_line(opened)]
    for side in _SIDES:
        lines += _run_lines(opened, side)
    target, reference = (opened.about[side]["precision"] or "unknown" for side in _SIDES)
    precision = f"target {target}, reference {reference}"
    if target == reference:
        precision = f"{target} on both sides"
    lines.append(Trust(what="precision", level="close", text=precision))
    return [*lines, *_diagnosis_lines(opened)]


def _inputs_line(opened: OpenComparison) -> Trust:
    inputs = opened.table.frame.select("target_role", "verdict").filter(
        pl.col("target_role") == "model-input"
    )
    if not inputs.height:
        return Trust(what="inputs", level="none", text="not recorded on both sides")
    if inputs["verdict"].is_in(["moderate", "large"]).any():
        return Trust(what="inputs", level="large", text="the two runs have different inputs")
    return Trust(what="inputs", level="close", text="the same on both sides")


def _run_lines(opened: OpenComparison, side: str) -> list[Trust]:
    """Return what is known of the recording of one run, and of its checksums."""
    about = opened.about[side]
    observer = about.get("observer")
    level: Level
    if not observer:
        text, level = "not checked against a run without recording", "none"
    elif observer["equal"]:
        text, level = "recording did not change the outputs", "close"
    else:
        text, level = f"recording changed the outputs: {observer['detail']}", "moderate"
    lines = [Trust(what=f"{side} recording", level=level, text=text)]
    if not about.get("complete", True):
        missing = about.get("missing") or "the process that wrote it was killed"
        lines.append(Trust(what=side, level="moderate", text=f"incomplete: {missing}"))
    counts = (opened.about.get("verified") or {}).get(side)
    if counts and counts["tensors"]:
        level = "close" if counts["verified"] == counts["tensors"] else "none"
        level = "large" if counts["damaged"] else level
        text = f"verified {verified_text(counts)}"
        lines.append(Trust(what=f"{side} bytes", level=level, text=text))
    return lines


def _diagnosis_lines(opened: OpenComparison) -> list[Trust]:
    """Return that there was no diagnosis, or what the diagnosis could not do."""
    saved = opened.about.get("diagnosis")
    if not saved:
        return [Trust(what="diagnosis", level="none", text=NOT_DIAGNOSED)]
    diagnosis = Diagnosis.of_dict(saved, opened.about.get("findings") or [])
    return [
        Trust(what="diagnosis", level="moderate", text=line) for line in diagnosis.trouble_lines
    ]
