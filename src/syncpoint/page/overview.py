"""The overview message: both runs, coverage, verdict, counts of verdicts, outputs, findings,
symptom, exit code, metrics and types to choose from."""

from __future__ import annotations

import numpy as np
import polars as pl

from syncpoint.comparison.coverage import Coverage
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.limits import PRESETS
from syncpoint.page.encoding import json_number
from syncpoint.page.fault_and_error_source import find_first_divergence
from syncpoint.page.finding_cards import build_cards
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_states import GUILTS, LEVELS
from syncpoint.page.row_table import ROLES, count_values
from syncpoint.page.schema import MetricInfo, OutputBrief, Overview, RunSummary
from syncpoint.page.summary_sentence import summarize
from syncpoint.page.trust_lines import build_trust_lines
from syncpoint.reports.coverage_text import uncovered_text
from syncpoint.reports.verdict_line import qualify_verdict

CHOOSABLE_METRICS = (
    *("psnr", "sqnr", "mae", "mse", "rmse", "max_abs", "mean_rel", "rel_l2", "cosine"),
    *("max_rel", "within_1e3", "allclose", "max_ulp", "exact"),
)
"""Metrics that rows can be sorted and coloured by, in the order of the menu."""
_MAX_TYPES = 200
_MAX_OUTPUTS = 200


def build_overview(opened: OpenComparison) -> Overview:
    """Return everything that the page says of the whole comparison; computed once."""
    if "overview" not in opened.cache:
        opened.cache["overview"] = _compute_overview(opened)
    overview: Overview = opened.cache["overview"]
    return overview


def _compute_overview(opened: OpenComparison) -> Overview:
    about, table = opened.about, opened.table
    coverage = Coverage.of_saved(about)
    comparison = opened.decisive_rows[0] if opened.decisive_rows else None
    first_divergence = find_first_divergence(opened)
    counts = _count_verdicts(opened)
    verdict = comparison.verdict.value if comparison is not None else about["verdict"]
    summary, aside = summarize(opened, first_divergence, counts, verdict)
    warnings = [str(text) for text in about.get("warnings", [])]
    if opened.unverified:
        warnings.insert(0, f"this comparison is unverified: {opened.unverified}")
    unfinished = about["unfinished"]
    if unfinished:
        summary, aside = f"{unfinished[0].upper()}{unfinished[1:]}.", f"So far: {summary}"
    unmatched = about["unmatched"]
    exit_code = _exit_code(verdict, coverage)
    if comparison is not None:
        exit_code = comparison.exit_code()
    return Overview(
        id=opened.id,
        name=opened.path.name.removesuffix(".cmp"),
        created=about.get("created", ""),
        target=_summarize_run(opened, "target"),
        reference=_summarize_run(opened, "reference"),
        verdict=verdict,
        verdict_text=qualify_verdict(verdict, coverage),
        symptom=_describe_symptom(opened),
        summary=summary,
        aside=aside,
        exit_code=exit_code,
        uncovered=uncovered_text(comparison) if comparison and exit_code == EXIT_UNCOVERED else "",
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
        bases=count_values(
            table.frame.select("verdict", "basis").filter(pl.col("verdict") != "none"), "basis"
        ),
        unmatched_target=sum(u["side"] == "target" and u["counted"] for u in unmatched),
        unmatched_reference=sum(u["side"] == "reference" and u["counted"] for u in unmatched),
        limits=opened.limits_name,
        presets=["auto", *PRESETS],
        metrics=_list_metrics(),
        types=_list_types(opened),
        roles=[role for role in ROLES if (table.frame["target_role"] == role).any()],
        outputs=_list_outputs(opened),
        first_divergence=first_divergence,
        findings=build_cards(opened, first_divergence),
        trust=build_trust_lines(opened),
        warnings=[text for text in warnings if text != unfinished],
        unfinished=unfinished,
    )


def _exit_code(verdict: str, coverage: Coverage) -> int:
    """Return what `Result.exit_code` returns, where there are too many rows to look at each."""
    if verdict in ("large", "amplified"):
        return EXIT_DIVERGED
    return EXIT_CLOSE if coverage.is_enough else EXIT_UNCOVERED


def _list_metrics() -> list[MetricInfo]:
    return [
        MetricInfo(
            id=metric.id,
            title=metric.title,
            unit=metric.unit,
            better=metric.better,
            explanation=metric.explanation,
            choosable=metric.id in CHOOSABLE_METRICS,
        )
        for metric in CATALOGUE.values()
    ]


def _list_types(opened: OpenComparison) -> list[str]:
    counts = opened.table.frame["target_type"].value_counts(sort=True)
    return [name for name in counts["target_type"].to_list() if name][:_MAX_TYPES]


def _count_verdicts(opened: OpenComparison) -> dict[str, int]:
    table = opened.table
    verdicts = count_values(table.frame, "verdict")
    guilts = {
        name: int(np.count_nonzero(table.guilts == code))
        for code, name in enumerate(GUILTS)
        if name
    }
    return {
        **{name: verdicts.get(name, 0) for name in ("close", "moderate", "large", "none")},
        **{name: verdicts.get(name, 0) for name in ("inherited", "amplified")},
        **{name: guilts[name] for name in ("guilty", "first-non-finite", "output", "unknown")},
    }


def _summarize_run(opened: OpenComparison, side: str) -> RunSummary:
    about = opened.about[side]
    observer = about.get("observer")
    observer_text = ""
    if observer:
        observer_text = "recording did not change the outputs"
        if not observer["equal"]:
            observer_text = observer["detail"]
    missing = opened.why_run_missing(side)
    return RunSummary(
        label=about["model"] or about["path"] or "in memory",
        runtime=about["runtime"],
        runtime_version=about["runtime_version"],
        device=about["device"],
        precision=about["precision"],
        fusion=about["fusion"],
        path=about["path"],
        available=not missing,
        why_not=missing,
        notes=[str(note) for note in about["notes"]],
        observer=observer_text,
    )


def _list_outputs(opened: OpenComparison) -> list[OutputBrief]:
    table = opened.table
    rows = np.flatnonzero(table.frame["output"].to_numpy())
    levels = table.levels("psnr")
    psnr, is_bound = table.scores_or_bounds("psnr")
    return [
        OutputBrief(
            row=int(row),
            name=table.label(int(row)),
            level=LEVELS[levels[row]],
            verdict=str(table.verdicts[row]),
            psnr=None if psnr[row] != psnr[row] else json_number(float(psnr[row])),
            bound=bool(is_bound[row]),
            reason=str(table.frame["reason"][int(row)] or ""),
        )
        for row in rows[:_MAX_OUTPUTS]
    ]


def _describe_symptom(opened: OpenComparison) -> str:
    diagnosis = opened.about.get("diagnosis")
    if not diagnosis:
        return ""
    text = f"{diagnosis['symptom']}. {diagnosis['summary']}"
    return f"{text[0].upper()}{text[1:]}."
