"""Format metrics, counts (`3 more rows`), runs, source lines, and the op of a row with its
location, as text for reports."""

from __future__ import annotations

from math import isinf
from typing import Any

from syncpoint.comparison.rows import Row
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.ratio_text import ratio_text as ratio_text


def short_source(source: str) -> str:
    """`file.py:12` without its folders, for tables."""
    return source.replace("\\", "/").rsplit("/", 1)[-1]


def row_place(row: Row) -> str:
    """The op of a row with its module and source line."""
    location = [p for p in (row.target.module or row.reference.module,) if p]
    source = row.target.source or row.reference.source
    if source:
        location.append(source)
    return f"{row.target.label} ({', '.join(location)})" if location else row.target.label


def run_text(about: Any) -> str:
    """A run in a few words: model, runtime, device, precision."""
    name = about["model"] or about["path"] or "in memory"
    runtime = " ".join(p for p in (about["runtime"], about["runtime_version"]) if p)
    facts = ", ".join(p for p in (runtime, about["device"], about["precision"]) if p)
    return f"{name} ({facts})" if facts else str(name)


def metric_text(metric: str, value: Any) -> str:
    """The value of a metric with its significant digits; a dash if there is none."""
    if value is None:
        return "–"
    if isinstance(value, float) and isinf(value):
        return "∞" if value > 0 else "−∞"
    entry = CATALOGUE.get(metric)
    if entry is not None and entry.unit == "dB":
        return f"{value:.1f}".replace("-", "−")
    if isinstance(value, int):
        return f"{value:,}"
    if metric in ("cosine", "exact", "within_1e3", "within_5e3", "allclose", "norm_ratio"):
        # Enough digits that 0.99999 is not shown as 1.
        return f"{value:.7g}"
    return f"{value:.3g}".replace("-", "−") if abs(value) >= 1e-3 or value == 0 else f"{value:.2e}"


def more_text(count: int, what: str) -> str:
    """`3 more rows`, `1 more row`."""
    return f"{count} more {what}{'' if count == 1 else 's'}"
