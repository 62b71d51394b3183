"""Show a comparison in a notebook, as HTML and SVG: headline, runs, warnings, the PSNR chart, first
divergence, worst rows, findings.

Plain HTML and SVG without scripts, so that every notebook viewer shows it.
"""

from __future__ import annotations

from html import escape as html_escape
from math import isfinite

from syncpoint.comparison.findings import NOT_DIAGNOSED, Finding
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.foreign_text import make_visible
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.checksum_text import unverified_lines, verified_line
from syncpoint.reports.divergence_message import divergence_lines
from syncpoint.reports.number_and_name_format import metric_text, ratio_text, run_text
from syncpoint.reports.verdict_line import headline
from syncpoint.reports.warning_lines import inputs_lines, unreadable_lines
from syncpoint.run.model import Role

_WIDTH, _HEIGHT, _LEFT_MARGIN, _BOTTOM_MARGIN = 760, 120, 34, 16
_MAX_POINTS = 2000
_MAX_ROWS = 8
_COLOURS = {
    Verdict.CLOSE: "#3b9680",
    Verdict.MODERATE: "#b57a00",
    Verdict.LARGE: "#c62f28",
    Verdict.INHERITED: "#c62f28",
    Verdict.AMPLIFIED: "#c62f28",
    Verdict.NONE: "#9aa2ac",
}


def notebook_html(result: Result) -> str:
    """The report as HTML."""
    alarms = [*inputs_lines(result), *unreadable_lines(result)]
    alarms += unverified_lines(result)
    parts = [
        _drift_svg(result),
        f"<div><b>target</b> {escape(run_text(result.target))} &nbsp; "
        f"<b>reference</b> {escape(run_text(result.reference))}</div>",
        *(f"<div style='color:#b0231c'>{escape(line)}</div>" for line in alarms),
        f"<div style='color:{_COLOURS[result.verdict]};font-weight:600'>"
        f"{escape(headline(result))}</div>",
        f"<div style='color:{_COLOURS[Verdict.NONE]}'>"
        f"verified {escape(verified_line(result))}</div>",
    ]
    parts += [_finding_html(finding) for finding in result.findings[:3] if finding.level != "note"]
    if result.diagnosis is not None:
        parts += [
            f"<div style='color:{_COLOURS[Verdict.MODERATE]}'>{escape(line)}</div>"
            for line in result.diagnosis.trouble_lines
        ]
    elif result.verdict is not Verdict.CLOSE:
        parts.append(f"<div style='color:{_COLOURS[Verdict.NONE]}'>{escape(NOT_DIAGNOSED)}</div>")
    for row in result.first_divergence[:3]:
        lines = "\n".join(map(escape, divergence_lines(row, result)))
        parts.append(f"<pre style='margin:4px 0;white-space:pre-wrap'>{lines}</pre>")
    parts.append(_worst_rows_table(result))
    body = "".join(parts)
    return f"<div style='font:12px/1.45 system-ui,sans-serif;max-width:{_WIDTH}px'>{body}</div>"


def escape(text: str) -> str:
    """Escaped text for HTML; characters that hide or reverse other text become visible."""
    return html_escape(make_visible(text))


def _finding_html(finding: Finding) -> str:
    evidence = "".join(f"<li>{escape(sentence)}</li>" for sentence in finding.evidence[:4])
    advice = f"<div><b>next</b> {escape(finding.next)}</div>" if finding.next else ""
    return (
        "<div style='border:1px solid #d5d9df;border-radius:6px;padding:6px 10px;margin:6px 0'>"
        f"<b>{escape(finding.title)}</b> <span style='color:#5d6672'>{escape(finding.cause)},"
        f" {finding.certainty}</span><ul style='margin:2px 0 2px 16px;padding:0'>{evidence}</ul>"
        f"{advice}</div>"
    )


def _rows_in_order(result: Result) -> list[Row]:
    rows = [r for r in result.rows if r.target.key.role is not Role.PARAMETER]
    return sorted(rows, key=_order_key)


def _order_key(row: Row) -> tuple[bool, bool, int]:
    """Sort key: model inputs first, rows without a position in the execution order last."""
    is_input = row.target.key.role is Role.MODEL_INPUT
    return (not is_input, row.target.order < 0, row.target.order)


def _thin_points(rows: list[Row]) -> list[tuple[int, Row]]:
    """At most `_MAX_POINTS` points: the worst of each interval, and every guilty row."""
    step = -(-len(rows) // _MAX_POINTS) if rows else 1
    chosen: dict[int, Row] = {}
    for start in range(0, len(rows), step):
        interval = list(enumerate(rows[start : start + step], start))
        index, row = min(interval, key=lambda candidate: _psnr_or_inf(candidate[1]))
        chosen[index] = row
    chosen.update(
        {index: row for index, row in enumerate(rows) if row.guilty and row.verdict.severity}
    )
    return sorted(chosen.items())


def _psnr_or_inf(row: Row) -> float:
    value = (row.numbers or {}).get("psnr")
    return float("inf") if value is None or value != value else float(value)


def _drift_svg(result: Result) -> str:
    """The PSNR chart over the execution order; rows that are not close are marked by shape."""
    rows = _rows_in_order(result)
    points = [(index, row, _psnr_or_inf(row)) for index, row in _thin_points(rows)]
    finite = [value for _, _, value in points if isfinite(value)]
    if not finite:
        return ""
    low, high = min(*finite, 0.0), max(*finite, 60.0)

    def x(index: int) -> float:
        return _LEFT_MARGIN + (index + 0.5) / max(len(rows), 1) * (_WIDTH - _LEFT_MARGIN - 6)

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return 6 + (1 - share) * (_HEIGHT - _BOTTOM_MARGIN - 6)

    line = " ".join(
        f"{x(index):.1f},{y(value):.1f}" for index, _, value in points if isfinite(value)
    )
    marks = "".join(
        _mark_svg(row, x(index), y(value if isfinite(value) else low))
        for index, row, value in points
        if row.verdict not in (Verdict.CLOSE, Verdict.NONE)
    )
    axis = "".join(
        f"<text x='{_LEFT_MARGIN - 4}' y='{y(value) + 3:.1f}' text-anchor='end'>{value:.0f}</text>"
        f"<path d='M{_LEFT_MARGIN} {y(value):.1f}H{_WIDTH - 6}' stroke='#8884' />"
        for value in (low, (low + high) / 2, high)
    )
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' width='100%' role='img' "
        "aria-label='PSNR over execution order' "
        "style='font:10px system-ui;fill:currentColor;display:block;margin:4px 0'>"
        f"{axis}<polyline points='{line}' fill='none' stroke='currentColor' stroke-width='1.3'/>"
        f"{marks}<text x='{_LEFT_MARGIN}' y='{_HEIGHT - 3}'>PSNR, dB, over {len(rows)} sync points"
        " in execution order</text></svg>"
    )


def _mark_svg(row: Row, x: float, y: float) -> str:
    colour = _COLOURS[row.verdict]
    title = f"<title>{escape(f'{row.target.label}: {row.verdict}')}</title>"
    hollow = row.verdict in (Verdict.INHERITED, Verdict.AMPLIFIED)
    fill = f"fill='none' stroke='{colour}'" if hollow else f"fill='{colour}'"
    if row.verdict is Verdict.MODERATE:
        path = f"M{x:.1f} {y - 4:.1f}l4 7h-8z"
        return f"<path d='{path}' {fill}>{title}</path>"
    return f"<rect x='{x - 3:.1f}' y='{y - 3:.1f}' width='6' height='6' {fill}>{title}</rect>"


def _worst_rows_table(result: Result) -> str:
    rows = [row for row in result.worst(_MAX_ROWS) if row.verdict is not Verdict.CLOSE]
    if not rows:
        return ""
    head = "".join(
        f"<th style='text-align:left'>{name}</th>"
        for name in ("", "target", "reference", "psnr, dB", "introduced", "module", "source")
    )
    lines = []
    for row in rows:
        introduced = row.introduced
        psnr = metric_text("psnr", (row.numbers or {}).get("psnr"))
        cells = (
            f"{row.verdict.glyph} {row.verdict if row.verdict is not Verdict.NONE else row.reason}",
            row.target.label,
            row.reference.label,
            psnr,
            ratio_text(introduced.ratio) if introduced else "",
            row.target.module or row.reference.module,
            row.target.source or row.reference.source,
        )
        cell_html = "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)
        lines.append(f"<tr style='color:{_COLOURS[row.verdict]}'>{cell_html}</tr>")
    return (
        f"<table style='font-size:11px'><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
