"""Print the diagnosis: symptom, findings with evidence and next step; runs that could not be read,
why and the cure; first causes for a comparison report."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping

from syncpoint.comparison.findings import NOT_DIAGNOSED, Diagnosis, Finding, Level, Symptom
from syncpoint.comparison.result import Result
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.console import Console, Text
from syncpoint.reports.number_and_name_format import more_text, run_text, short_source
from syncpoint.reports.terminal_layout import print_line, print_wrapped
from syncpoint.reports.warning_lines import unreadable_lines

PIPED_WIDTH = 100
"""Columns if the output has no width of its own; narrow enough to read sentences."""
Line = tuple[Text, int, int]
"""A line, its indent, and the further indent of its continuation lines."""
_STYLES = {Level.CAUSE: "bold red", Level.SUSPECT: "yellow", Level.NOTE: "dim"}
_GLYPHS = {Level.CAUSE: "■", Level.SUSPECT: "▲", Level.NOTE: "·"}
_MAX_EVIDENCE = 4
"""Maximum sentences of evidence per finding; the JSON has all."""
_PROCESSING_ADVICE = (
    "If results in production differ nevertheless, compare pre- and postprocessing:",
    "  --preprocess ours.py:prepare --preprocess theirs.py:prepare --raw SAMPLE",
)
"""Advice if the models agree but the application does not."""
_LABEL_WIDTH = len("reference  ")
_MAX_NOTES = 3
_MAX_CAUSES = 3
"""Maximum number of findings at the end of a comparison."""


def print_diagnosis(result: Result, console: Console) -> None:
    """Print the symptom, then the findings, then the experiments."""
    print_line(Text(f"target     {run_text(result.target)}"), console, hang=_LABEL_WIDTH)
    print_line(Text(f"reference  {run_text(result.reference)}"), console, hang=_LABEL_WIDTH)
    for line in unreadable_lines(result):
        print_wrapped(Text(line, style=_STYLES[Level.CAUSE]), console, hang=2)
    if result.diagnosis is None:
        console.print(Text(NOT_DIAGNOSED, "yellow"))
        return
    print_lines(diagnosis_lines(result.diagnosis), console)


def as_text(result: Result) -> str:
    """The report as plain text."""
    out = io.StringIO()
    print_diagnosis(result, Console(out, width=PIPED_WIDTH))
    return out.getvalue()


def print_lines(lines: Iterable[Line], console: Console) -> None:
    """Print lines; a line that is too long continues under its text."""
    for text, indent, hang in lines:
        print_wrapped(text, console, hang, indent)


def diagnosis_lines(diagnosis: Diagnosis) -> Iterator[Line]:
    """The lines of a diagnosis."""
    yield Text(), 0, 0
    symptom = diagnosis.symptom.value
    yield Text(f"{symptom[0].upper()}{symptom[1:]}. {diagnosis.summary}.", style="bold"), 0, 2
    causes = [f for f in diagnosis.findings if f.level is not Level.NOTE]
    notes = [f for f in diagnosis.findings if f.level is Level.NOTE]
    if not causes and diagnosis.symptom is Symptom.NONE:
        yield from ((Text(line), 0, 2) for line in _PROCESSING_ADVICE)
    elif not causes:
        yield Text("No cause was found."), 0, 2
    for number, finding in enumerate([*causes, *notes[:_MAX_NOTES]], start=1):
        yield Text(), 0, 0
        yield from _finding_lines(number, finding)
    if len(notes) > _MAX_NOTES:
        yield Text(f"{more_text(len(notes) - _MAX_NOTES, 'note')}; --json has all", "dim"), 0, 2
    if diagnosis.experiments or diagnosis.troubles or diagnosis.absent:
        yield Text(), 0, 0
    if diagnosis.experiments:
        yield Text(f"experiments: {'; '.join(diagnosis.experiments)}", "dim"), 0, 2
    for line in diagnosis.trouble_lines:
        yield Text(line, "yellow"), 0, 2
    if diagnosis.absent:
        yield Text(f"not available: {_absent_text(diagnosis.absent)}", "yellow"), 0, 2


def _absent_text(absent: Mapping[str, str]) -> str:
    """The runs that could not be read, the reasons and the cure."""
    missing_runs = " and ".join(f"the {side}'s run ({why})" for side, why in absent.items())
    pronoun = "it" if len(absent) == 1 else "them"
    cure = f"restore {pronoun}, or compare again and keep both runs"
    return f"{missing_runs}; for a deeper diagnosis, {cure}"


def cause_lines(result: Result) -> Iterator[Line]:
    """The first causes and the troubles of the diagnosis, for the end of a comparison report."""
    causes = [f for f in result.findings if f.level is not Level.NOTE]
    for number, finding in enumerate(causes[:_MAX_CAUSES], start=1):
        yield Text(), 0, 0
        yield from _finding_lines(number, finding)
    if len(causes) > _MAX_CAUSES:
        more = more_text(len(causes) - _MAX_CAUSES, "finding")
        yield Text(f"{more}: syncpoint diagnose", "dim"), 0, 2
    if result.diagnosis is None and result.verdict is not Verdict.CLOSE:
        yield Text(), 0, 0
        yield Text(NOT_DIAGNOSED, "dim"), 0, 2
    if result.diagnosis is not None and result.diagnosis.troubles:
        yield Text(), 0, 0
        yield from ((Text(line, "yellow"), 0, 2) for line in result.diagnosis.trouble_lines)


def _finding_lines(number: int, finding: Finding) -> Iterator[Line]:
    head = Text(f"{number} {_GLYPHS[finding.level]} ", style=_STYLES[finding.level])
    lead = len(head)
    head.append(finding.title, style=_STYLES[finding.level])
    head.append(f"  [{finding.cause}, {finding.certainty}]", style="dim")
    yield head, 0, lead
    where = ", ".join(p for p in (finding.module, short_source(finding.source)) if p)
    if where:
        yield Text(f"at {where}", style="dim"), 4, 2
    for sentence in finding.evidence[:_MAX_EVIDENCE]:
        yield Text(f"- {sentence}"), 4, 2
    if finding.next:
        yield Text(f"next: {finding.next}", style="bold"), 4, 2
    for experiment in finding.missing[:2]:
        yield Text(f"would give more evidence: {experiment}", style="dim"), 4, 2
