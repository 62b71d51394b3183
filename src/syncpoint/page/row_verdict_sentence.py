"""Whose fault a row is, in a headline and a few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from syncpoint.metrics.limits import precision_name
from syncpoint.page.error_source import OP_FIELDS, PART_FIELDS, Op, came_from, first_divergence
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_states import GUILTS
from syncpoint.reports.number_format import metric_text, ratio_text


@dataclass(frozen=True)
class Fault:
    """What to say of a row."""

    headline: str
    story: str
    row: int | None = None
    """Where the error came from."""
    how: str = ""


def fault(opened: Opened, row: int, flat: Mapping[str, Any]) -> Fault:
    """Whose fault a row is."""
    return _fault_by_itself(opened, row, flat) or _fault_by_source(opened, row, flat)


def _fault_by_itself(opened: Opened, row: int, flat: Mapping[str, Any]) -> Fault | None:
    """What is said of a row whatever came before it; None where that matters."""
    verdict, role = flat["verdict"], flat["target_role"]
    if verdict == "none":
        return Fault("No verdict.", _sentence(flat["reason"]))
    if flat["basis"] == "digest" and verdict == "close":
        return Fault("The same bytes.", "The digests of both sides are equal.")
    if flat["first_non_finite"]:
        return Fault(
            "The first non-finite values are made here.", _non_finite(flat, opened.knows_reads)
        )
    if verdict == "close":
        return Fault("Close.", _close(flat))
    if role in ("model-input", "parameter"):
        what = "input" if role == "model-input" else "parameter"
        return Fault(f"The two runs have another {what} here.", _sentence(flat["reason"]))
    if GUILTS[opened.table.guilts[row]] == "amplified":
        return Fault("Off, and nobody is guilty.", _sentence(flat["reason"]))
    return None


def _fault_by_source(opened: Opened, row: int, flat: Mapping[str, Any]) -> Fault:
    """What is said of a row that is off, with the op that the error came from."""
    guilt = GUILTS[opened.table.guilts[row]]
    source, how = came_from(opened, row, flat)
    if guilt == "inherited":
        ratio = flat["introduced_ratio"]
        story = f"This op adds no more than {_precision(flat)} allows"
        if ratio:
            story += f" ({ratio_text(ratio)})"
        return Fault("Damaged, not guilty.", f"{story}. {_non_finite(flat)}".strip(), source, how)
    if flat["introduced_verdict"] in ("moderate", "large"):
        return Fault("The error is made here.", _made_here(opened, flat))
    if flat["mismatched"] and flat["basis"] == "values":
        headline, story = "NaN or infinite on one side only.", _non_finite(flat)
        if source is not None and not opened.table.frame["mismatched"][source]:
            # What it came in from is finite: a wrong number does not make these.
            other = opened.table.label(source)
            story += f" {other} makes error, and is not where these begin: see the findings."
            return Fault(headline, story)
        return Fault(headline, story, source, how)
    story = _sentence(flat["reason"])
    if flat["basis"] == "statistics":
        story += " Statistics can prove a difference, hardly equality."
    if guilt == "output":
        return Fault("This output is off.", story, source, how)
    return Fault("Off, guilt unknown.", story + _guilt_unknown(opened, row, flat), source, how)


def _guilt_unknown(opened: Opened, row: int, flat: Mapping[str, Any]) -> str:
    """What is known instead of the guilt of an op."""
    text = ""
    if row in first_divergence(opened):
        known = "Everything it reads is close" if opened.knows_reads else "Nothing before it is off"
        text = f" {known}: this is where the two runs part."
    if flat["introduced_unknown"]:
        return f"{text} Introduced error is not known: {flat['introduced_unknown']}."
    return f"{text} Introduced error was not measured, so guilt is not known."


def _made_here(opened: Opened, flat: Mapping[str, Any]) -> str:
    psnr = _inputs_psnr(opened, flat)
    adds = f"his op adds {ratio_text(flat['introduced_ratio'])} what {_precision(flat)} allows."
    if psnr is None:
        return f"T{adds}"
    level, value = psnr
    given = f"Inputs are {level} ({metric_text('psnr', value)} dB)"
    return f"{given}; t{adds}"


def _inputs_psnr(opened: Opened, flat: Mapping[str, Any]) -> tuple[str, float] | None:
    """How far off what an op was given is: the worst of its inputs."""
    start: Op = tuple(flat[f"target_{name}"] for name in OP_FIELDS)
    before = opened.edges.get(start)
    if not before:
        return None
    frame = opened.table.frame
    part = [pl.col(f"target_{name}") == flat[f"target_{name}"] for name in PART_FIELDS]
    rows = frame.lazy().filter(
        pl.col("target_role") == "output",
        pl.col("target_op").is_in([op[0] for op in before]),
        *part,
    )
    worst: tuple[str, float] | None = None
    keys = [f"target_{name}" for name in OP_FIELDS]
    for *key, verdict, psnr in rows.select(*keys, "verdict", "psnr").collect().iter_rows():
        known = tuple(key) in set(before) and psnr is not None and verdict != "none"
        if known and (worst is None or psnr < worst[1]):
            worst = ("close" if verdict == "close" else "off too", psnr)
    return worst


def _non_finite(flat: Mapping[str, Any], first: bool = False) -> str:
    if not flat["mismatched"] or not flat["count"]:
        return ""
    kinds = [
        f"{flat[f'{side}_{kind}']:,} {word} in the {side}"
        for side in ("target", "reference")
        for kind, word in (("nan", "NaN"), ("inf", "infinite"))
        if flat[f"{side}_{kind}"]
    ]
    text = (
        f"{flat['mismatched']:,} of {flat['count']:,} elements are NaN, infinite or masked on one "
        "side only"
    )
    if kinds:
        text += f" ({', '.join(kinds)})"
    if first:
        text += "; what it was given is finite"
    if flat["psnr"] is not None and flat["compared"]:
        text += f". The finite part measures {metric_text('psnr', flat['psnr'])} dB"
    return text + "."


def _close(flat: Mapping[str, Any]) -> str:
    if flat["basis"] == "statistics":
        return "The statistics agree; they can prove a difference, hardly equality."
    if flat["preset"] == "exact":
        return "Every element is equal."
    return f"Within the limits of {precision_name(flat['preset'])}."


def _precision(flat: Mapping[str, Any]) -> str:
    return precision_name(flat["introduced_preset"] or flat["preset"])


def _sentence(text: str) -> str:
    """A reason as a sentence."""
    text = (text or "").strip()
    for name, title in (("psnr", "PSNR"), ("sqnr", "SQNR"), ("max_abs", "greatest difference")):
        text = text.replace(name, title)
    return f"{text[0].upper()}{text[1:]}." if text else ""
