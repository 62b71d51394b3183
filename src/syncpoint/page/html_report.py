"""A comparison as one HTML file: the page, and the answers to all it may ask.

It holds the numbers of every sync point, both graphs, the source files, and previews of the
tensors that matter most; it needs no network and no server.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.outputs import write_output
from syncpoint.foreign_text import make_visible
from syncpoint.page import (
    BUILT,
    distributions,
    graphs,
    heatmaps,
    overview,
    row_details,
    source_code,
)
from syncpoint.page.drift import drift
from syncpoint.page.encoding import pack_array
from syncpoint.page.heatmaps import Wish
from syncpoint.page.navigator import briefs
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_selection import RowQuery
from syncpoint.page.row_states import pack_states
from syncpoint.page.schema import Side
from syncpoint.page.unmatched_list import unmatched

PREVIEWS = 24
"""Sync points whose tensors are shown: where the runs part, and the worst."""
_PIXELS = 96
_FEWER_PIXELS = 48
_LARGE_MAPS = 1_600_000
"""Letters of the finer pictures together: some eight of 96 x 96. Noise cannot be compressed, and
two dozen of them would make the report of a small net too large to be sent around."""
_MOST_DETAILS = 5_000
"""Rows with all their words; beyond it only those that are off have them."""
_MOST_METRICS_ROWS = 50_000
_FEW_METRICS = ("psnr", "sqnr", "max_abs", "rel_l2", "cosine")
_LARGEST_SOURCE = 1 << 20
_SIDES: tuple[Side, Side] = ("target", "reference")


def write(opened: Opened, path: Path) -> Path:
    """Write the report of a comparison; the file is whole or not there."""
    return write_output(path, html(opened))


def html(opened: Opened) -> str:
    """The report as text."""
    script, style = (_built(name) for name in ("app.js", "app.css"))
    held = json.dumps(data(opened), allow_nan=False, separators=(",", ":"))
    told = base64.b64encode(zlib.compress(held.encode(), 9)).decode()
    title = escape(make_visible(f"{opened.path.name.removesuffix('.cmp')} · Syncpoint"))
    # A script ends at the first `</script`, wherever it stands.
    script = script.replace("</script", "<\\/script")
    return (
        '<!doctype html>\n<html lang="en" data-theme="light"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
        ' worker-src blob:">'
        f"<title>{title}</title><style>{style}</style></head>\n"
        f'<body><div id="app"></div>\n<script type="text/plain" id="report-data">{told}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _built(name: str) -> str:
    try:
        return (BUILT / name).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            "the built page in this installation",
            f"no {name}",
            "run `make web`, or install a wheel of syncpoint",
        ) from error


def data(opened: Opened) -> dict[str, Any]:
    """Every answer that the report can give; `web/src/api/report.ts` reads it."""
    table = opened.table
    whole = overview.overview(opened)
    names = [metric.id for metric in whole.metrics if metric.choosable]
    if table.size > _MOST_METRICS_ROWS:
        names = [name for name in names if name in _FEW_METRICS]
    every = np.arange(table.size)
    shown = _shown(opened, whole.first_divergence)
    described = every if table.size <= _MOST_DETAILS else shown
    lonely = unmatched(opened, "", 0, 5_000)
    return {
        "overview": {
            **whole.model_dump(),
            "metrics": [
                {**metric.model_dump(), "choosable": metric.id in names} for metric in whole.metrics
            ],
        },
        "rows": [brief.model_dump() for brief in briefs(table, "psnr", every)],
        "search": table.search_texts.to_list(),
        "metrics": {name: _columns(opened, name) for name in names},
        "unmatched": [one.model_dump() for one in lonely.items],
        "details": {
            str(row): row_details.detail(opened, int(row), "psnr").model_dump() for row in described
        },
        "heatmaps": dict(_heatmaps(opened, shown)),
        "distributions": dict(_distributions(opened, shown)),
        "graphs": dict(_graphs(opened)),
        "files": list(_files(opened)),
    }


def _shown(opened: Opened, first: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where the runs part, the outputs, then the worst."""
    table = opened.table
    worst = table.select(RowQuery()).rows
    off = worst[table.levels("psnr")[worst] != 0]
    outputs = np.flatnonzero(table.frame["output"].to_numpy())
    order = [*first, *off[: PREVIEWS // 2].tolist(), *outputs[:4].tolist(), *off.tolist()]
    order += worst[:4].tolist()
    return np.array(list(dict.fromkeys(order))[:PREVIEWS], np.int64)


def _columns(opened: Opened, metric: str) -> dict[str, Any]:
    table = opened.table
    fills, ticks = table.bar_lengths(metric, np.arange(table.size))
    return {
        "states": pack_states(opened, metric).model_dump(),
        "drift": drift(opened, metric).model_dump(),
        "fills": pack_array(fills, "<f4"),
        "ticks": pack_array(ticks, "<f4"),
        "rank": pack_array(table.similarity_ranks(metric), "<u4"),
    }


def _heatmaps(opened: Opened, wanted: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    spent = 0
    for row in wanted:
        # What cannot be read is told in its details.
        with suppress(SyncpointError):
            found = heatmaps.heatmap(opened, int(row), Wish(rows=_PIXELS, columns=_PIXELS))
            size = sum(map(len, (found.reference, found.target, found.difference, found.places)))
            if spent + size > _LARGE_MAPS:
                wish = Wish(rows=_FEWER_PIXELS, columns=_FEWER_PIXELS)
                found = heatmaps.heatmap(opened, int(row), wish)
            else:
                spent += size
            yield str(row), found.model_dump()


def _distributions(opened: Opened, wanted: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in wanted:
        with suppress(SyncpointError):
            yield str(row), distributions.distribution(opened, int(row)).model_dump()


def _graphs(opened: Opened) -> Iterator[tuple[str, dict[str, Any]]]:
    for side in _SIDES:
        with suppress(SyncpointError):
            yield side, graphs.graph(opened, side).model_dump()


def _files(opened: Opened) -> Iterator[dict[str, Any]]:
    for side in _SIDES:
        for file in source_code.files(opened, side):
            with suppress(SyncpointError):
                found = source_code.source(opened, side, file)
                if len(found.text or "") <= _LARGEST_SOURCE:
                    yield found.model_dump()
