"""The report of a bisection, as text lines and as JSON; also the line printed for each cut;
decibels as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.files.outputs import write_output
from syncpoint.files.write_errors import write_errors
from syncpoint.foreign_text import make_visible
from syncpoint.reports.json_report import to_strict_json

if TYPE_CHECKING:
    from syncpoint.bisection.result import Bisected, Culprit, Cut


def as_text(bisected: Bisected) -> str:
    """The report as one text."""
    return "\n".join(map(make_visible, as_lines(bisected)))


def as_lines(bisected: Bisected) -> list[str]:
    """The lines of the report: the outputs, the culprits, the notes, the number of runs."""
    lines = [f"target     {bisected.target}", f"reference  {bisected.reference}"]
    verdicts = ", ".join(f"{name} {verdict}" for name, verdict in bisected.outputs.items())
    lines.append(f"outputs    {verdicts or 'none could be compared'}")
    for culprit in bisected.culprits:
        lines += ["", *_culprit_lines(culprit)]
    if not bisected.culprits and bisected.outputs:
        lines += ["", "no output diverges, so there is no bad op to find"]
    lines.append("")
    lines += [f"note: {note}" for note in bisected.notes]
    cut_models = [cut.model for cut in bisected.cuts if cut.model]
    if cut_models:
        lines.append(f"cut models in {Path(cut_models[0]).parent}")
    lines.append(f"{bisected.runs} runs of the target, which has {bisected.ops} ops")
    return lines


def cut_line(cut: Cut) -> str:
    """The line of one run, printed while the bisection runs."""
    kind = f" ({cut.type})" if cut.type else ""
    return f"{cut.state:8} {_decibels_text(cut.psnr):>10}  {cut.op}{kind}"


def write_json(bisected: Bisected, path: Path) -> Path:
    """Write strict JSON; non-finite numbers are strings."""
    text = json.dumps(to_strict_json(bisected.as_dict()), indent=1, allow_nan=False) + "\n"
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return write_output(path, text)


def _culprit_lines(culprit: Culprit) -> list[str]:
    place = ", ".join(part for part in (culprit.module, culprit.source) if part)
    lines = [f"first bad op  {culprit.op} ({culprit.type}){f'  {place}' if place else ''}"]
    lines.append(
        f"  {_decibels_text(culprit.before)} before it, {_decibels_text(culprit.after)} after it"
        f" against {culprit.reference}"
    )
    if culprit.reason:
        lines.append(f"  {culprit.verdict}: {culprit.reason}")
    lines.append(f"  visible in output {', '.join(culprit.outputs)}")
    if culprit.suspects:
        lines.append(
            f"  or one of these ops, which could not be judged: {', '.join(culprit.suspects)}"
        )
    return [*lines, *(f"  {note}" for note in culprit.notes)]


def _decibels_text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} dB"
