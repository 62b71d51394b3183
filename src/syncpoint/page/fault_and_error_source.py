"""Find the op that a row's error comes from (breadth first upstream), and describe in words which
op is at fault or why that is unknown.

The source is the first divergence, or the op upstream that makes the error. The words are a
headline and a few sentences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from syncpoint.metrics.limits import precision_name
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_states import ERROR_MAKERS, GUILTS
from syncpoint.reports.number_and_name_format import metric_text, ratio_text

OpFields = tuple[Any, ...]
OP_FIELDS = ("op", "call", "graph", "path", "iteration")
PART_FIELDS = ("sample", "step", "rank")
_MAX_VISITED_OPS = 200_000
"""Ops that are visited upstream; a longer search takes too long for a click."""


def find_first_divergence(opened: OpenComparison) -> list[int]:
    """Return the rows where the two runs begin to differ; computed once."""
    if "first_divergence" not in opened.cache:
        opened.cache["first_divergence"] = _compute_first_divergence(opened)
    rows: list[int] = opened.cache["first_divergence"]
    return rows


def _compute_first_divergence(opened: OpenComparison) -> list[int]:
    if opened.decisive_rows is not None:
        comparison, rows = opened.decisive_rows
        row_by_id = {id(row): index for row, index in zip(comparison.rows, rows, strict=True)}
        return [row_by_id[id(row)] for row in comparison.first_divergence]
    # Too many rows are off: the first in execution order is taken.
    table = opened.table
    is_maker = np.isin(table.guilts, ERROR_MAKERS)
    is_off = np.isin(table.verdicts, ["moderate", "large"])
    is_off &= (table.frame["target_role"] == "output").to_numpy()
    candidates = np.flatnonzero(is_maker & is_off if (is_maker & is_off).any() else is_off)
    return [int(row) for row in candidates[np.argsort(table.order[candidates])][:1]]


def find_error_source(
    opened: OpenComparison, row: int, fields: Mapping[str, Any]
) -> tuple[int | None, str]:
    """Return the row of the nearest op upstream that makes error, or is the first that is off; and
    how it is known. `fields` are those of the row."""
    table = opened.table
    makers = set(np.flatnonzero(np.isin(table.guilts, ERROR_MAKERS)).tolist())
    makers |= set(find_first_divergence(opened))
    makers.discard(row)
    if not makers:
        return None, ""
    part = tuple(fields[f"target_{name}"] for name in PART_FIELDS)
    row_by_op: dict[OpFields, int] = {}
    frame = table.frame[sorted(makers)]
    keys = frame.select([f"target_{name}" for name in (*OP_FIELDS, *PART_FIELDS)]).rows()
    for maker, key in zip(sorted(makers), keys, strict=True):
        if key[len(OP_FIELDS) :] == part:
            row_by_op.setdefault(key[: len(OP_FIELDS)], maker)
    start: OpFields = tuple(fields[f"target_{name}"] for name in OP_FIELDS)
    source = _search_upstream(opened.edges, start, row_by_op)
    if source is not None and source != row:
        distance = int(table.order[row] - table.order[source])
        return source, f"{distance} sync point{'s' if distance != 1 else ''} before"
    if not opened.has_edges:
        return None, ""  # a dump that does not record what its ops read
    # Between the steps of a loop there are no edges; the order decides.
    makers_before = [maker for maker in makers if table.order[maker] < table.order[row]]
    if not makers_before:
        return None, ""
    return max(
        makers_before, key=lambda maker: int(table.order[maker])
    ), "the last one off before it"


def _search_upstream(
    edges: Mapping[OpFields, list[OpFields]], start: OpFields, row_by_op: Mapping[OpFields, int]
) -> int | None:
    """Return the row of the nearest op, breadth first, that is a key of `row_by_op`."""
    queue, visited = deque([start]), {start}
    while queue and len(visited) < _MAX_VISITED_OPS:
        op = queue.popleft()
        if op in row_by_op and op != start:
            return row_by_op[op]
        for producer in edges.get(op, ()):
            if producer not in visited:
                visited.add(producer)
                queue.append(producer)
    return None


@dataclass(frozen=True)
class RowFault:
    """The headline and the sentences about one row."""

    headline: str
    story: str
    source_row: int | None = None
    """The row that the error came from."""
    source_evidence: str = ""
    """How that row is known: "3 sync points before"."""


def describe_fault(opened: OpenComparison, row: int, fields: Mapping[str, Any]) -> RowFault:
    """Return whose fault a row is."""
    return _describe_without_source(opened, row, fields) or _describe_source(opened, row, fields)


def _describe_without_source(
    opened: OpenComparison, row: int, fields: Mapping[str, Any]
) -> RowFault | None:
    """Describe a row for which the ops before it do not matter; None where they do."""
    verdict, role = fields["verdict"], fields["target_role"]
    if verdict == "none":
        return RowFault("No verdict.", _as_sentence(fields["reason"]))
    if fields["basis"] == "digest" and verdict == "close":
        return RowFault("The same bytes.", "The digests of both sides are equal.")
    if fields["first_non_finite"]:
        return RowFault(
            "The first non-finite values are made here.",
            _describe_non_finite(fields, opened.has_edges),
        )
    if verdict == "close":
        return RowFault("Close.", _describe_close(fields))
    if role in ("model-input", "parameter"):
        what = "inputs" if role == "model-input" else "parameters"
        return RowFault(f"The two runs have different {what} here.", _as_sentence(fields["reason"]))
    if GUILTS[opened.table.guilts[row]] == "amplified":
        return RowFault("Off, and no op is guilty.", _as_sentence(fields["reason"]))
    return None


def _describe_source(opened: OpenComparison, row: int, fields: Mapping[str, Any]) -> RowFault:
    """Describe a row that is off, with the op that the error came from."""
    guilt = GUILTS[opened.table.guilts[row]]
    source, evidence = find_error_source(opened, row, fields)
    if guilt == "inherited":
        ratio = fields["introduced_ratio"]
        story = f"This op adds no more error than {_precision(fields)} allows"
        if ratio:
            story += f" ({ratio_text(ratio)})"
        story = f"{story}. {_describe_non_finite(fields)}".strip()
        return RowFault("Damaged, not guilty.", story, source, evidence)
    if fields["introduced_verdict"] in ("moderate", "large"):
        return RowFault("The error is made here.", _describe_introduced(opened, fields))
    if fields["mismatched"] and fields["basis"] == "values":
        headline, story = "NaN or infinite on one side only.", _describe_non_finite(fields)
        if source is not None and not opened.table.frame["mismatched"][source]:
            # The values of the source are finite: a wrong number does not make NaN.
            name = opened.table.label(source)
            story += f" {name} makes error, but these values do not begin there: see the findings."
            return RowFault(headline, story)
        return RowFault(headline, story, source, evidence)
    story = _as_sentence(fields["reason"])
    if fields["basis"] == "statistics":
        story += " Statistics can prove a difference, hardly equality."
    if guilt == "output":
        return RowFault("This output is off.", story, source, evidence)
    story += _describe_unknown_guilt(opened, row, fields)
    return RowFault("Off, guilt unknown.", story, source, evidence)


def _describe_unknown_guilt(opened: OpenComparison, row: int, fields: Mapping[str, Any]) -> str:
    """Return what is known instead of the guilt of an op."""
    text = ""
    if row in find_first_divergence(opened):
        reason = "Everything it reads is close" if opened.has_edges else "Nothing before it is off"
        text = f" {reason}: this is where the two runs diverge."
    if fields["introduced_unknown"]:
        return f"{text} Introduced error is not known: {fields['introduced_unknown']}."
    return f"{text} Introduced error was not measured, so guilt is not known."


def _describe_introduced(opened: OpenComparison, fields: Mapping[str, Any]) -> str:
    ratio = ratio_text(fields["introduced_ratio"])
    sentence = f"his op adds {ratio} what {_precision(fields)} allows."
    worst_input = _find_worst_input(opened, fields)
    if worst_input is None:
        return f"T{sentence}"
    level, psnr = worst_input
    return f"Inputs are {level} ({metric_text('psnr', psnr)} dB); t{sentence}"


def _find_worst_input(
    opened: OpenComparison, fields: Mapping[str, Any]
) -> tuple[str, float] | None:
    """Return the level and the psnr of the worst input of an op."""
    op: OpFields = tuple(fields[f"target_{name}"] for name in OP_FIELDS)
    producers = opened.edges.get(op)
    if not producers:
        return None
    is_same_part = [pl.col(f"target_{name}") == fields[f"target_{name}"] for name in PART_FIELDS]
    rows = opened.table.frame.lazy().filter(
        pl.col("target_role") == "output",
        pl.col("target_op").is_in([producer[0] for producer in producers]),
        *is_same_part,
    )
    worst: tuple[str, float] | None = None
    keys = [f"target_{name}" for name in OP_FIELDS]
    for *key, verdict, psnr in rows.select(*keys, "verdict", "psnr").collect().iter_rows():
        is_measured = tuple(key) in set(producers) and psnr is not None and verdict != "none"
        if is_measured and (worst is None or psnr < worst[1]):
            worst = ("close" if verdict == "close" else "off too", psnr)
    return worst


def _describe_non_finite(fields: Mapping[str, Any], has_finite_inputs: bool = False) -> str:
    if not fields["mismatched"] or not fields["count"]:
        return ""
    counts = [
        f"{fields[f'{side}_{kind}']:,} {word} in the {side}"
        for side in ("target", "reference")
        for kind, word in (("nan", "NaN"), ("inf", "infinite"))
        if fields[f"{side}_{kind}"]
    ]
    text = (
        f"{fields['mismatched']:,} of {fields['count']:,} elements are NaN, infinite or masked on "
        "one side only"
    )
    if counts:
        text += f" ({', '.join(counts)})"
    if has_finite_inputs:
        text += "; its inputs are finite"
    if fields["psnr"] is not None and fields["compared"]:
        text += f". The finite elements measure {metric_text('psnr', fields['psnr'])} dB"
    return text + "."


def _describe_close(fields: Mapping[str, Any]) -> str:
    if fields["basis"] == "statistics":
        return "The statistics agree; they can prove a difference, hardly equality."
    if fields["preset"] == "exact":
        return "Every element is equal."
    return f"Within the limits of {precision_name(fields['preset'])}."


def _precision(fields: Mapping[str, Any]) -> str:
    return precision_name(fields["introduced_preset"] or fields["preset"])


def _as_sentence(text: str) -> str:
    """Return a reason as a sentence."""
    text = (text or "").strip()
    for name, title in (("psnr", "PSNR"), ("sqnr", "SQNR"), ("max_abs", "max absolute error")):
        text = text.replace(name, title)
    return f"{text[0].upper()}{text[1:]}." if text else ""
