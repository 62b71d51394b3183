"""A comparison as a whole: who, how much was compared, the verdict, what to look at first."""

from __future__ import annotations

import numpy as np
import polars as pl

from syncpoint.comparison.coverage import Coverage
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.limits import PRESETS
from syncpoint.page.encoding import json_number
from syncpoint.page.error_source import first_divergence
from syncpoint.page.finding_cards import build_cards
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_selection import ROLES
from syncpoint.page.row_states import GUILTS, LEVELS
from syncpoint.page.schema import (
    MetricInfo,
    OutputBrief,
    Overview,
    RunInfo,
)
from syncpoint.page.summary_sentence import summarize
from syncpoint.page.table import tally
from syncpoint.page.trust_lines import build_trust
from syncpoint.reports.coverage_text import uncovered_text
from syncpoint.reports.verdict_line import qualify_verdict

CHOOSABLE = (
    *("psnr", "sqnr", "mae", "mse", "rmse", "max_abs", "mean_rel", "rel_l2", "cosine"),
    *("max_rel", "within_1e3", "allclose", "max_ulp", "exact"),
)
"""Metrics that rows can be sorted and coloured by, in the order of the menu."""


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
    findings = build_cards(opened, first)
    counts = _counts(opened)
    verdict = result.verdict.value if result is not None else about["verdict"]
    summary, aside = summarize(opened, first, counts, verdict)
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
        verdict_text=qualify_verdict(verdict, coverage),
        symptom=_symptom(opened),
        summary=summary,
        aside=aside,
        exit_code=exit_code,
        uncovered=uncovered_text(result) if result and exit_code == EXIT_UNCOVERED else "",
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
        bases=tally(
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
        trust=build_trust(opened),
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


def _types(opened: Opened) -> list[str]:
    counted = opened.table.frame["target_type"].value_counts(sort=True)
    return [name for name in counted["target_type"].to_list() if name][:200]


def _counts(opened: Opened) -> dict[str, int]:
    table = opened.table
    verdicts = tally(table.frame, "verdict")
    guilts = {
        name: int(np.count_nonzero(table.guilts == at)) for at, name in enumerate(GUILTS) if name
    }
    return {
        **{name: verdicts.get(name, 0) for name in ("close", "moderate", "large", "none")},
        **{name: verdicts.get(name, 0) for name in ("inherited", "amplified")},
        **{name: guilts[name] for name in ("guilty", "first-non-finite", "output", "unknown")},
    }


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
    psnr, bounded = table.scores_or_bounds("psnr")
    return [
        OutputBrief(
            row=int(row),
            name=table.label(int(row)),
            level=LEVELS[levels[row]],
            verdict=str(table.verdicts[row]),
            psnr=None if psnr[row] != psnr[row] else json_number(float(psnr[row])),
            bound=bool(bounded[row]),
            reason=str(table.frame["reason"][int(row)] or ""),
        )
        for row in rows[:200]
    ]


def _symptom(opened: Opened) -> str:
    said = opened.about.get("diagnosis")
    if not said:
        return ""
    text = f"{said['symptom']}. {said['summary']}"
    return f"{text[0].upper()}{text[1:]}."
