"""Whether the two runs can be trusted: inputs, recording, checksums, precision, diagnosis."""

from __future__ import annotations

import polars as pl

from syncpoint.comparison.findings import NOT_DIAGNOSED, Diagnosis
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import Trust
from syncpoint.reports.checksum_text import verified_text


def build_trust(opened: Opened) -> list[Trust]:
    """Return the lines of the section on trust."""
    about, table = opened.about, opened.table
    lines = []
    inputs = table.frame.select("target_role", "verdict").filter(
        pl.col("target_role") == "model-input"
    )
    if inputs.height:
        same = not inputs["verdict"].is_in(["moderate", "large"]).any()
        text = "the same on both sides" if same else "the two runs were given different inputs"
        lines.append(Trust(what="inputs", level="close" if same else "large", text=text))
    else:
        lines.append(Trust(what="inputs", level="none", text="not recorded on both sides"))
    for side in ("target", "reference"):
        observer = about[side].get("observer")
        if not observer:
            text, level = "not checked against a plain run", "none"
        elif observer["equal"]:
            text, level = "changed no output", "close"
        else:
            text, level = f"changed the outputs: {observer['detail']}", "moderate"
        lines.append(Trust(what=f"{side} recording", level=level, text=text))  # type: ignore[arg-type]
        if not about[side].get("complete", True):
            missing = about[side].get("missing") or "its writer died"
            lines.append(Trust(what=side, level="moderate", text=f"incomplete: {missing}"))
        counts = (about.get("verified") or {}).get(side)
        if counts and counts["tensors"]:
            level = "close" if counts["verified"] == counts["tensors"] else "none"
            level = "large" if counts["damaged"] else level
            text = f"verified {verified_text(counts)}"
            lines.append(Trust(what=f"{side} bytes", level=level, text=text))  # type: ignore[arg-type]
    target, reference = (about[side]["precision"] or "unknown" for side in ("target", "reference"))
    precision = f"target {target}, reference {reference}"
    if target == reference:
        precision = f"{target} on both sides"
    lines.append(Trust(what="precision", level="close", text=precision))
    return [*lines, *_diagnosis_lines(opened)]


def _diagnosis_lines(opened: Opened) -> list[Trust]:
    """That nobody looked for causes, or what the diagnosis could not do."""
    saved = opened.about.get("diagnosis")
    if not saved:
        return [Trust(what="diagnosis", level="none", text=NOT_DIAGNOSED)]
    made = Diagnosis.of_dict(saved, opened.about.get("findings") or [])
    return [Trust(what="diagnosis", level="moderate", text=line) for line in made.trouble_lines]
