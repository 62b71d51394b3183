"""A comparison as a whole: who, how much was compared, the verdict, what to look at first."""

from __future__ import annotations

import numpy as np
import polars as pl

from syncpoint.comparison.coverage import Coverage
from syncpoint.comparison.findings import NOT_DIAGNOSED, Diagnosis
from syncpoint.comparison.findings import Finding as FoundCause
from syncpoint.comparison.findings import Level as CauseLevel
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.open_comparison import Opened
from syncpoint.page.rows import unmatched_brief
from syncpoint.page.schema import (
    Finding,
    Level,
    MetricInfo,
    OutputBrief,
    Overview,
    RunInfo,
    Trust,
    UnmatchedBrief,
    number,
)
from syncpoint.page.sync_point_states import places_before
from syncpoint.page.table import GUILTS, LEVELS, ROLES, Table
from syncpoint.reports.checksum_text import verified_text
from syncpoint.reports.coverage_text import uncovered
from syncpoint.reports.number_format import metric_text, ratio_text
from syncpoint.reports.verdict_line import qualified
from syncpoint.run.dtypes import long_name

CHOOSABLE = (
    *("psnr", "sqnr", "mae", "mse", "rmse", "max_abs", "mean_rel", "rel_l2", "cosine"),
    *("max_rel", "within_1e3", "allclose", "max_ulp", "exact"),
)
"""Metrics that rows can be sorted and coloured by, in the order of the menu."""
_MOST_FINDINGS = 12


def overview(opened: Opened) -> Overview:
    """Everything that the page says of the whole; worked out once."""
    if "overview" not in opened.told:
        opened.told["overview"] = _overview(opened)
    found: Overview = opened.told["overview"]
    return found


def _overview(opened: Opened) -> Overview:
    about, table = opened.about, opened.table
    coverage = Coverage.of_saved(about)
    result = opened.telling[0] if opened.telling else None
    first = first_divergence(opened)
    findings = _findings(opened, first)
    counts = _counts(opened)
    verdict = result.verdict.value if result is not None else about["verdict"]
    summary, aside = _summary(opened, first, counts, verdict)
    warnings = [str(text) for text in about.get("warnings", [])]
    if opened.unverified:
        warnings.insert(0, f"this comparison is unverified: {opened.unverified}")
    unfinished = about["unfinished"]
    if unfinished:
        summary, aside = f"{unfinished[0].upper()}{unfinished[1:]}.", f"So far: {summary}"
    lonely = about["unmatched"]
    exit_code = result.exit_code() if result is not None else _exit_code(verdict, coverage)
    return Overview(
        id=opened.id,
        name=opened.path.name.removesuffix(".cmp"),
        created=about.get("created", ""),
        target=_run(opened, "target"),
        reference=_run(opened, "reference"),
        verdict=verdict,
        verdict_text=qualified(verdict, coverage),
        symptom=_symptom(opened),
        summary=summary,
        aside=aside,
        exit_code=exit_code,
        uncovered=uncovered(result) if result and exit_code == EXIT_UNCOVERED else "",
        coverage_target=coverage.target,
        coverage_reference=coverage.reference,
        missing_target=coverage.target_missing,
        missing_reference=coverage.reference_missing,
        target_tensors=coverage.target_tensors,
        reference_tensors=coverage.reference_tensors,
        compared=coverage.compared,
        paired=coverage.paired,
        rows=table.size,
        counts=counts,
        bases=_tally(
            table.frame.select("verdict", "basis").filter(pl.col("verdict") != "none"), "basis"
        ),
        unmatched_target=sum(u["side"] == "target" and u["counted"] for u in lonely),
        unmatched_reference=sum(u["side"] == "reference" and u["counted"] for u in lonely),
        limits=opened.limits_name,
        presets=["auto", *PRESETS],
        metrics=_metrics(),
        types=_types(opened),
        roles=[role for role in ROLES if (table.frame["target_role"] == role).any()],
        outputs=_outputs(opened),
        first_divergence=first,
        findings=findings,
        trust=_trust(opened),
        warnings=[text for text in warnings if text != unfinished],
        unfinished=unfinished,
    )


def _exit_code(verdict: str, coverage: Coverage) -> int:
    """The same as `Result.exit_code`, where there are too many rows to look at each."""
    if verdict in ("large", "amplified"):
        return EXIT_DIVERGED
    return EXIT_CLOSE if coverage.is_enough else EXIT_UNCOVERED


def _metrics() -> list[MetricInfo]:
    return [
        MetricInfo(
            id=metric.id,
            title=metric.title,
            unit=metric.unit,
            better=metric.better,
            explanation=metric.explanation,
            choosable=metric.id in CHOOSABLE,
        )
        for metric in CATALOGUE.values()
    ]


def _tally(frame: pl.DataFrame, column: str) -> dict[str, int]:
    counted = frame[column].value_counts()
    return {name: count for name, count in counted.iter_rows() if name}


def _types(opened: Opened) -> list[str]:
    counted = opened.table.frame["target_type"].value_counts(sort=True)
    return [name for name in counted["target_type"].to_list() if name][:200]


def _counts(opened: Opened) -> dict[str, int]:
    table = opened.table
    verdicts = _tally(table.frame, "verdict")
    guilts = {
        name: int(np.count_nonzero(table.guilts == at)) for at, name in enumerate(GUILTS) if name
    }
    return {
        **{name: verdicts.get(name, 0) for name in ("close", "moderate", "large", "none")},
        **{name: verdicts.get(name, 0) for name in ("inherited", "amplified")},
        **{name: guilts[name] for name in ("guilty", "first-non-finite", "output", "unknown")},
    }


def first_divergence(opened: Opened) -> list[int]:
    """Rows where the two runs part."""
    if "first" not in opened.told:
        opened.told["first"] = _first(opened)
    found: list[int] = opened.told["first"]
    return found


def _first(opened: Opened) -> list[int]:
    if opened.telling is not None:
        result, places = opened.telling
        place = {id(row): at for row, at in zip(result.rows, places, strict=True)}
        return [place[id(row)] for row in result.first_divergence]
    # So many are off that the order has to tell.
    table = opened.table
    makers = np.isin(table.guilts, [GUILTS.index("guilty"), GUILTS.index("first-non-finite")])
    off = np.isin(table.verdicts, ["moderate", "large"])
    off &= (table.frame["target_role"] == "output").to_numpy()
    rows = np.flatnonzero(makers & off if (makers & off).any() else off)
    return [int(row) for row in rows[np.argsort(table.order[rows])][:1]]


def _run(opened: Opened, side: str) -> RunInfo:
    about = opened.about[side]
    observer = about.get("observer")
    said = ""
    if observer:
        said = "recording changed no output" if observer["equal"] else observer["detail"]
    return RunInfo(
        label=about["model"] or about["path"] or "in memory",
        runtime=about["runtime"],
        runtime_version=about["runtime_version"],
        device=about["device"],
        precision=about["precision"],
        fusion=about["fusion"],
        path=about["path"],
        available=not opened.absence(side),
        why_not=opened.absence(side),
        notes=[str(note) for note in about["notes"]],
        observer=said,
    )


def _outputs(opened: Opened) -> list[OutputBrief]:
    table = opened.table
    rows = np.flatnonzero(table.frame["output"].to_numpy())
    levels = table.levels("psnr")
    psnr, bounded = table.shown("psnr")
    return [
        OutputBrief(
            row=int(row),
            name=table.label(int(row)),
            level=LEVELS[levels[row]],
            verdict=str(table.verdicts[row]),
            psnr=None if psnr[row] != psnr[row] else number(float(psnr[row])),
            bound=bool(bounded[row]),
            reason=str(table.frame["reason"][int(row)] or ""),
        )
        for row in rows[:200]
    ]


def _trust(opened: Opened) -> list[Trust]:
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


def _symptom(opened: Opened) -> str:
    said = opened.about.get("diagnosis")
    if not said:
        return ""
    text = f"{said['symptom']}. {said['summary']}"
    return f"{text[0].upper()}{text[1:]}."


def _findings(opened: Opened, first: list[int]) -> list[Finding]:
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


def _summary(
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
    bases = _tally(opened.table.frame, "basis")
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
