"""A bisection in words, and as JSON."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.files.outputs import write_output
from syncpoint.files.write_errors import write_errors
from syncpoint.foreign_text import make_visible

if TYPE_CHECKING:
    from syncpoint.bisection.result import Bisected, Culprit, Cut


def as_text(made: Bisected) -> str:
    """What `as_lines` says, as one text."""
    return "\n".join(map(make_visible, as_lines(made)))


def as_lines(made: Bisected) -> list[str]:
    """The culprits first, then what was tried."""
    lines = [f"target     {made.target}", f"reference  {made.reference}"]
    verdicts = ", ".join(f"{name} {verdict}" for name, verdict in made.outputs.items())
    lines.append(f"outputs    {verdicts or 'none could be compared'}")
    for culprit in made.culprits:
        lines += ["", *_culprit_lines(culprit)]
    if not made.culprits and made.outputs:
        lines += ["", "no output is off: there is nothing to look for"]
    lines.append("")
    lines += [f"note: {note}" for note in made.notes]
    kept = [cut.model for cut in made.cuts if cut.model]
    if kept:
        lines.append(f"cut models in {Path(kept[0]).parent}")
    lines.append(f"{made.runs} runs of the target, which has {made.ops} ops")
    return lines


def cut_line(cut: Cut) -> str:
    """One run, while it goes on."""
    kind = f" ({cut.type})" if cut.type else ""
    return f"{cut.state:8} {_decibels_text(cut.psnr):>10}  {cut.op}{kind}"


def write_json(made: Bisected, path: Path) -> Path:
    """Strict JSON: what is not finite is a string."""
    text = json.dumps(_strict(made.as_dict()), indent=1, allow_nan=False) + "\n"
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
    lines.append(f"  seen at {', '.join(culprit.outputs)}")
    if culprit.suspects:
        lines.append(f"  or one of these, which could not be judged: {', '.join(culprit.suspects)}")
    return [*lines, *(f"  {note}" for note in culprit.notes)]


def _decibels_text(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1f} dB"


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return value
