"""The cards of findings: causes of the diagnosis or, without one, first divergence, first NaN, an
output without counterpart, and what was not compared."""

from __future__ import annotations

import numpy as np

from syncpoint.comparison.findings import Finding
from syncpoint.comparison.findings import Level as CauseLevel
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.drift import find_places_before
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_states import GUILTS, INHERITED, LEVELS
from syncpoint.page.schema import FindingCard, Level, UnmatchedBrief
from syncpoint.page.unmatched_list import build_unmatched_brief
from syncpoint.reports.number_and_name_format import metric_text, ratio_text
from syncpoint.run.dtypes import long_name

_MAX_CARDS = 12
_MAX_CARD_ROWS = 50
_LEVEL_OF_CAUSE: dict[CauseLevel, Level] = {
    CauseLevel.CAUSE: "large",
    CauseLevel.SUSPECT: "moderate",
    CauseLevel.NOTE: "none",
}
_TITLE_BY_REASON = {
    ReasonCode.SHAPE: "{} with another shape",
    ReasonCode.UNREADABLE: "{} cannot be read",
    ReasonCode.DAMAGED: "{} damaged: copy the file again or record the run again",
    ReasonCode.AMBIGUOUS: "{} with more than one possible counterpart",
}


def build_cards(opened: OpenComparison, first_divergence: list[int]) -> list[FindingCard]:
    """Return the diagnosed causes; without a diagnosis, the first divergence and the first
    non-finite values. Then what could not be compared."""
    findings = opened.about.get("findings") or []
    cards = [_card_of_finding(opened, Finding.of_dict(finding)) for finding in findings]
    if not opened.about.get("diagnosis"):
        cards = [_card_of_row(opened, row) for row in first_divergence[:_MAX_CARDS]]
        non_finite = np.flatnonzero(opened.table.guilts == GUILTS.index("first-non-finite"))
        non_finite = non_finite[np.argsort(opened.table.order[non_finite])]
        cards += [
            _card_of_row(opened, int(row))
            for row in non_finite[:_MAX_CARDS]
            if row not in first_divergence
        ]
    for code, title in _TITLE_BY_REASON.items():
        rows = (opened.table.frame["reason_code"] == code.value).arg_true().to_numpy()
        if len(rows):
            names = ", ".join(opened.table.labels(rows[:3]))
            cards.append(
                FindingCard(
                    title=title.format(f"{len(rows)} tensor{'s' if len(rows) > 1 else ''}"),
                    cause="",
                    level="none",
                    confidence=None,
                    certainty="",
                    missing=[],
                    evidence=[names + (" and others" if len(rows) > 3 else "")],
                    next="",
                    rows=[int(row) for row in rows[:_MAX_CARD_ROWS]],
                    source="",
                )
            )
    return cards


def _card_of_finding(opened: OpenComparison, finding: Finding) -> FindingCard:
    evidence = list(finding.evidence)
    if finding.module:
        evidence.append(f"in {finding.module}")
    unmatched, place = (None, 0)
    if finding.ops:
        unmatched, place = _find_unmatched_output(opened, finding.ops[0])
    return FindingCard(
        title=finding.title,
        cause=finding.cause,
        level=_LEVEL_OF_CAUSE[finding.level],
        confidence=finding.confidence,
        certainty=finding.certainty,
        evidence=evidence,
        missing=list(finding.missing),
        next=finding.next,
        rows=list(finding.rows),
        source=finding.source,
        alone=unmatched,
        before=place,
    )


def _find_unmatched_output(opened: OpenComparison, op: str) -> tuple[UnmatchedBrief | None, int]:
    """Return the first output of a target op if it has no counterpart, and the place before which
    the op ran."""
    for unmatched in opened.about["unmatched"]:
        key = (unmatched["side"], unmatched["op"], unmatched["role"], unmatched["index"])
        if key == ("target", op, "output", 0):
            places = find_places_before(opened, {op})
            return build_unmatched_brief(unmatched), places[0] if places else 0
    return None, 0


def _card_of_row(opened: OpenComparison, row: int) -> FindingCard:
    table = opened.table
    fields = table.frame.row(row, named=True)
    name = table.label(row)
    evidence = []
    precision = long_name(fields["introduced_preset"] or "")
    if fields["first_non_finite"]:
        title = f"{name} makes the first non-finite values"
        evidence.append(
            f"{fields['mismatched']:,} of {fields['count']:,} elements are NaN, infinite or masked "
            "on one side only" + ("; its inputs are finite" if opened.has_edges else "")
        )
    elif fields["introduced_ratio"] is not None:
        ratio = ratio_text(fields["introduced_ratio"])
        title = f"{name} introduces {ratio} what {precision} allows"
        evidence.append(
            f"introduced error {metric_text('psnr', fields['introduced_psnr'])} dB, total error "
            f"{metric_text('psnr', fields['psnr'])} dB; its inputs add no more than that"
        )
    else:
        title = f"{name} is the first op that is off"
        why = fields["introduced_unknown"]
        text = "its inputs are close; its introduced error is not known"
        if not opened.has_edges:
            text = "nothing before it is off; its inputs and its introduced error are not known"
        evidence.append(f"{text}: {why}" if why else text)
    if fields["introduced_region"]:
        evidence.append("somewhere in " + ", ".join(fields["introduced_region"][:6]))
    evidence += [str(note) for note in (fields["notes"] or [])[:2]]
    is_later = table.order > table.order[row]
    later = int(np.count_nonzero((table.guilts == INHERITED) & is_later))
    if later:
        points = "sync point is" if later == 1 else "sync points are"
        evidence.append(f"{later} later {points} off only because the error is passed on")
    return FindingCard(
        title=title,
        cause="",
        certainty="",
        missing=[],
        level=LEVELS[table.levels("psnr")[row]] if fields["basis"] == "values" else "large",
        confidence=None,
        evidence=evidence,
        next=f"Compare {fields['target_type'] or 'the op'} and its attributes on both sides.",
        rows=[row],
        source=fields["target_source"] or fields["reference_source"] or "",
    )
