"""The cards of findings: causes that were found or, without a diagnosis, what is known for sure."""

from __future__ import annotations

import numpy as np

from syncpoint.comparison.findings import Finding as FoundCause
from syncpoint.comparison.findings import Level as CauseLevel
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.drift import places_before
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_states import GUILTS, LEVELS
from syncpoint.page.schema import Finding, Level, UnmatchedBrief
from syncpoint.page.unmatched_list import unmatched_brief
from syncpoint.reports.number_format import metric_text, ratio_text
from syncpoint.run.dtypes import long_name

_MOST_FINDINGS = 12


def build_cards(opened: Opened, first: list[int]) -> list[Finding]:
    """The causes that were found. Where nobody looked for them, what is known for sure: where the
    runs part, what is not finite. And what could not be compared."""
    saved = opened.about.get("findings") or []
    cards = [_saved(opened, FoundCause.of_dict(one)) for one in saved]
    if not opened.about.get("diagnosis"):
        cards = [_card(opened, row) for row in first[:_MOST_FINDINGS]]
        made = np.flatnonzero(opened.table.guilts == GUILTS.index("first-non-finite"))
        made = made[np.argsort(opened.table.order[made])]
        cards += [_card(opened, int(row)) for row in made[:_MOST_FINDINGS] if row not in first]
    table = opened.table
    for code, title in (
        (ReasonCode.SHAPE, "{} with another shape"),
        (ReasonCode.UNREADABLE, "{} cannot be read"),
        (ReasonCode.DAMAGED, "{} damaged: copy the file again or record the run again"),
        (ReasonCode.AMBIGUOUS, "{} with an ambiguous partner"),
    ):
        rows = (table.frame["reason_code"] == code.value).arg_true().to_numpy()
        if len(rows):
            count = f"{len(rows)} tensor{'s' if len(rows) > 1 else ''}"
            names = ", ".join(table.labels(rows[:3]))
            cards.append(
                Finding(
                    title=title.format(count),
                    cause="",
                    level="none",
                    confidence=None,
                    certainty="",
                    missing=[],
                    evidence=[names + (" and others" if len(rows) > 3 else "")],
                    next="",
                    rows=[int(row) for row in rows[:50]],
                    source="",
                )
            )
    return cards


def _saved(opened: Opened, found: FoundCause) -> Finding:
    levels: dict[CauseLevel, Level] = {
        CauseLevel.CAUSE: "large",
        CauseLevel.SUSPECT: "moderate",
        CauseLevel.NOTE: "none",
    }
    evidence = list(found.evidence)
    if found.module:
        evidence.append(f"in {found.module}")
    alone, before = _lone(opened, found.ops[0]) if found.ops else (None, 0)
    return Finding(
        title=found.title,
        cause=found.cause,
        level=levels[found.level],
        confidence=found.confidence,
        certainty=found.certainty,
        evidence=evidence,
        missing=list(found.missing),
        next=found.next,
        rows=list(found.rows),
        source=found.source,
        alone=alone,
        before=before,
    )


def _lone(opened: Opened, op: str) -> tuple[UnmatchedBrief | None, int]:
    """What a target op gave that has no counterpart, and the place before which it ran."""
    for one in opened.about["unmatched"]:
        if (one["side"], one["op"], one["role"], one["index"]) == ("target", op, "output", 0):
            places = places_before(opened, {op})
            return unmatched_brief(one), places[0] if places else 0
    return None, 0


def _card(opened: Opened, row: int) -> Finding:
    table = opened.table
    flat = table.frame.row(row, named=True)
    name = table.label(row)
    source = flat["target_source"] or flat["reference_source"] or ""
    evidence = []
    precision = long_name(flat["introduced_preset"] or "")
    if flat["first_non_finite"]:
        title = f"{name} makes the first non-finite values"
        evidence.append(
            f"{flat['mismatched']:,} of {flat['count']:,} elements are not finite, or masked, on "
            "one side only" + ("; its inputs are fine" if opened.knows_reads else "")
        )
    elif flat["introduced_ratio"] is not None:
        title = f"{name} introduces {ratio_text(flat['introduced_ratio'])} what {precision} allows"
        evidence.append(
            f"introduced {metric_text('psnr', flat['introduced_psnr'])} dB, total "
            f"{metric_text('psnr', flat['psnr'])} dB; what it was given adds no more than that"
        )
    else:
        title = f"{name} is the first that is off"
        why = flat["introduced_unknown"]
        text = "its inputs are close; whether it is guilty is not known"
        if not opened.knows_reads:
            text = "nothing before it is off; what it reads, and so whose fault it is, is not known"
        evidence.append(f"{text}: {why}" if why else text)
    if flat["introduced_region"]:
        evidence.append("somewhere in " + ", ".join(flat["introduced_region"][:6]))
    evidence += [str(note) for note in (flat["notes"] or [])[:2]]
    later = int(
        np.count_nonzero(
            (table.guilts == GUILTS.index("inherited")) & (table.order > table.order[row])
        )
    )
    if later:
        points = "sync point is" if later == 1 else "sync points are"
        evidence.append(f"{later} later {points} off and only inherited it")
    return Finding(
        title=title,
        cause="",
        certainty="",
        missing=[],
        level=LEVELS[table.levels("psnr")[row]] if flat["basis"] == "values" else "large",
        confidence=None,
        evidence=evidence,
        next=f"Look at {flat['target_type'] or 'the op'} and its attributes on both sides.",
        rows=[row],
        source=source,
    )
