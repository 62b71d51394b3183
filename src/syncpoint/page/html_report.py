"""Write a comparison as one HTML file that works offline: choose rows for previews, collect the
answers to all requests of the page, trim large ones.

It holds the numbers of every sync point, both graphs, the source files, and previews of the most
important tensors; it needs no network and no server.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.outputs import write_output
from syncpoint.foreign_text import make_visible
from syncpoint.page import BUILT_PAGE
from syncpoint.page.drift import build_drift_strip
from syncpoint.page.encoding import pack_array
from syncpoint.page.graphs import build_graph
from syncpoint.page.heatmaps import HeatMapRequest, build_heatmap
from syncpoint.page.histograms_and_worst_elements import build_distribution
from syncpoint.page.navigator import build_row_briefs
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.page.row_details import build_row_detail
from syncpoint.page.row_states import pack_states
from syncpoint.page.row_table import RowQuery
from syncpoint.page.schema import Side
from syncpoint.page.source_code import list_source_files, read_source
from syncpoint.page.unmatched_list import list_unmatched

MAX_PREVIEWS = 24
"""Sync points whose tensors are shown: the first divergence, and the worst."""
_FINE_PIXELS = 96
_COARSE_PIXELS = 48
_MAX_FINE_CHARS = 1_600_000
"""Characters of all fine heat maps together: about eight of 96 x 96. Noise cannot be compressed,
and two dozen of them would make the report of a small net too large to be sent around."""
_MAX_DETAILS = 5_000
"""Rows with all details; in a larger comparison only the previewed rows have them."""
_MAX_ROWS_FOR_ALL_METRICS = 50_000
_MAIN_METRICS = ("psnr", "sqnr", "max_abs", "rel_l2", "cosine")
_MAX_UNMATCHED = 5_000
_MAX_SOURCE_CHARS = 1 << 20
_SIDES: tuple[Side, Side] = ("target", "reference")


def write_report(opened: OpenComparison, path: Path) -> Path:
    """Write the report of a comparison; the file appears when it is complete."""
    return write_output(path, render_report(opened))


def render_report(opened: OpenComparison) -> str:
    """Return the report as HTML."""
    script, style = (_read_built(name) for name in ("app.js", "app.css"))
    answers = json.dumps(collect_answers(opened), allow_nan=False, separators=(",", ":"))
    encoded = base64.b64encode(zlib.compress(answers.encode(), 9)).decode()
    title = escape(make_visible(f"{opened.path.name.removesuffix('.cmp')} · Syncpoint"))
    # A script ends at the first `</script`, even inside a string.
    script = script.replace("</script", "<\\/script")
    return (
        '<!doctype html>\n<html lang="en" data-theme="light"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
        ' worker-src blob:">'
        f"<title>{title}</title><style>{style}</style></head>\n"
        '<body><div id="app"></div>\n'
        f'<script type="text/plain" id="report-data">{encoded}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _read_built(name: str) -> str:
    try:
        return (BUILT_PAGE / name).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the page is not built: no {name} in this installation",
            cure="run `make web`, or install a wheel of syncpoint",
        ) from error


def collect_answers(opened: OpenComparison) -> dict[str, Any]:
    """Return every answer that the report can give; `web/src/api/report.ts` reads it."""
    table = opened.table
    overview = build_overview(opened)
    metrics = [metric.id for metric in overview.metrics if metric.choosable]
    if table.size > _MAX_ROWS_FOR_ALL_METRICS:
        metrics = [name for name in metrics if name in _MAIN_METRICS]
    all_rows = np.arange(table.size)
    previewed = _choose_previews(opened, overview.first_divergence)
    detailed = all_rows if table.size <= _MAX_DETAILS else previewed
    unmatched = list_unmatched(opened, "", 0, _MAX_UNMATCHED)
    return {
        "overview": {
            **overview.model_dump(),
            "metrics": [
                {**metric.model_dump(), "choosable": metric.id in metrics}
                for metric in overview.metrics
            ],
        },
        "rows": [brief.model_dump() for brief in build_row_briefs(table, "psnr", all_rows)],
        "search": table.search_texts.to_list(),
        "metrics": {name: _pack_metric(opened, name) for name in metrics},
        "unmatched": [brief.model_dump() for brief in unmatched.items],
        "details": {
            str(row): build_row_detail(opened, int(row), "psnr").model_dump() for row in detailed
        },
        "heatmaps": dict(_build_heatmaps(opened, previewed)),
        "distributions": dict(_build_distributions(opened, previewed)),
        "graphs": dict(_build_graphs(opened)),
        "files": list(_read_sources(opened)),
    }


def _choose_previews(opened: OpenComparison, first_divergence: list[int]) -> NDArray[np.int64]:
    """Return the first divergence, the worst rows and the outputs."""
    table = opened.table
    worst = table.select(RowQuery()).rows
    off = worst[table.levels("psnr")[worst] != 0]
    outputs = np.flatnonzero(table.frame["output"].to_numpy())
    rows = [
        *first_divergence,
        *off[: MAX_PREVIEWS // 2].tolist(),
        *outputs[:4].tolist(),
        *off.tolist(),
        *worst[:4].tolist(),
    ]
    return np.array(list(dict.fromkeys(rows))[:MAX_PREVIEWS], np.int64)


def _pack_metric(opened: OpenComparison, metric: str) -> dict[str, Any]:
    table = opened.table
    lengths, ticks = table.bar_lengths(metric, np.arange(table.size))
    return {
        "states": pack_states(opened, metric).model_dump(),
        "drift": build_drift_strip(opened, metric).model_dump(),
        "fills": pack_array(lengths, "<f4"),
        "ticks": pack_array(ticks, "<f4"),
        "rank": pack_array(table.similarity_ranks(metric), "<u4"),
    }


def _build_heatmaps(
    opened: OpenComparison, rows: Iterable[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    fine = HeatMapRequest(rows=_FINE_PIXELS, columns=_FINE_PIXELS)
    coarse = HeatMapRequest(rows=_COARSE_PIXELS, columns=_COARSE_PIXELS)
    fine_chars = 0
    for row in rows:
        # The details of the row say why its values cannot be read.
        with suppress(SyncpointError):
            heatmap = build_heatmap(opened, int(row), fine)
            arrays = (heatmap.reference, heatmap.target, heatmap.difference, heatmap.places)
            chars = sum(map(len, arrays))
            if fine_chars + chars > _MAX_FINE_CHARS:
                heatmap = build_heatmap(opened, int(row), coarse)
            else:
                fine_chars += chars
            yield str(row), heatmap.model_dump()


def _build_distributions(
    opened: OpenComparison, rows: Iterable[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in rows:
        with suppress(SyncpointError):
            yield str(row), build_distribution(opened, int(row)).model_dump()


def _build_graphs(opened: OpenComparison) -> Iterator[tuple[str, dict[str, Any]]]:
    for side in _SIDES:
        with suppress(SyncpointError):
            yield side, build_graph(opened, side).model_dump()


def _read_sources(opened: OpenComparison) -> Iterator[dict[str, Any]]:
    for side in _SIDES:
        for file in list_source_files(opened, side):
            with suppress(SyncpointError):
                source = read_source(opened, side, file)
                if len(source.text or "") <= _MAX_SOURCE_CHARS:
                    yield source.model_dump()
