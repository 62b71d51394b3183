"""One page on one kind of comparison, used by test after test as a person uses it."""

import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import Page

from helpers.comparison_oracle import Known

RUNS = {
    "guilty": {"target": "target.run", "reference": "reference.run"},
    "fused": {"target": "fused/target.run", "reference": "fused/reference.run"},
    "sourceless": {"target": "here.npz", "reference": "there.npz"},
    "statistics": {"target": "light.run", "reference": "reference.run"},
    "missing": {"target": "target.run", "reference": "reference.run"},
}
"""Where the values behind each kind of comparison are; those of missing are for the tests alone.

The kinds: values that are not finite, ops without partner, no source, statistics only, no runs.
"""
DRIFT = ".drift canvas"
DRAWN = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"""
_GO = """said => new Promise(done => {
    if (location.hash.slice(1) === said) return done();
    addEventListener('hashchange', () => setTimeout(done), { once: true });
    location.hash = said;
})"""
_LIST = """() => {
    const list = document.querySelector('.list');
    if (list) list.scrollTop = 0;
    return [...document.querySelectorAll('.list .row[data-row]')]
        .map(row => [Number(row.id.slice(5)), Number(row.dataset.row),
                     row.querySelector('svg.g').getAttribute('aria-label')])
        .sort((a, b) => a[0] - b[0]).map(([, row, dot]) => [row, dot]);
}"""
_SELECTED = "row => new URLSearchParams(location.hash.slice(1)).get('row') === String(row)"
_PAINTED = """canvas => canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data.some(value => value > 0)"""
_CAPTIONS = """() => Object.fromEntries(
    [...['target', 'reference', 'difference'].map(name => [name, `value-${name}`]),
     ['readout', 'readout']].map(([name, id]) => {
        const found = document.querySelector(`[data-testid=${id}]`);
        return [name, (name === 'readout' ? found?.querySelector('b') : found)?.innerText ?? null];
    }))"""
_WORDS = "pane => (pane.innerText ?? '').trim().length"


def place_of(comparisons: Path, kind: str) -> Path:
    """Where one of the comparisons lies; the missing one lies away from its runs."""
    return comparisons / ("elsewhere" if kind == "missing" else ".") / f"{kind}.cmp"


def known_of(comparisons: Path, kind: str) -> Known:
    runs = {side: comparisons / run for side, run in RUNS[kind].items()}
    return Known(place_of(comparisons, kind), runs)


def watch(page: Page) -> list[str]:
    """Everything that goes wrong in a page from now on."""
    wrong: list[str] = []

    def told(message) -> None:
        if message.type == "error":
            wrong.append(f"console: {message.text}")

    page.on("console", told)
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("requestfailed", lambda one: wrong.append(f"{one.url} failed: {one.failure}"))
    page.on(
        "response",
        lambda one: wrong.append(f"{one.url}: {one.status}") if one.status >= 400 else None,
    )
    return wrong


class Looked:
    """A page, what the comparison on it holds, and what went wrong so far."""

    def __init__(self, page: Page, kind: str, known: Known, address: str) -> None:
        self.page, self.kind, self.known, self.address = page, kind, known, address
        self.wrong = watch(page)

    def go(self, **state: object) -> Page:
        """The page in this state, as if somebody had followed a link to it."""
        self.page.mouse.move(0, 0)
        self.page.evaluate(_GO, urlencode(state))
        return self.page

    def listed(self) -> list[tuple[int, str]]:
        """The first sync points of the navigator, with the names of their dots."""
        return [(row, dot) for row, dot in self.page.evaluate(_LIST)]

    def lists(self, rows: list[int], metric: str = "psnr", most: int = 15) -> None:
        """The navigator begins with these rows, with the right dots, and counts them all."""
        want = [(row, self.known.dot(row, metric)) for row in rows[:most]]
        matching = self.page.get_by_test_id("matching")
        for _ in range(100):
            found, counted = self.listed()[:most], matching.inner_text().replace(",", "")
            if found == want and counted == str(len(rows)):
                return
            self.page.wait_for_timeout(50)
        assert (found, counted) == (want, str(len(rows)))

    def chosen(self, row: int) -> None:
        """The address names this row as selected."""
        self.page.wait_for_function(_SELECTED, arg=row)

    def selected(self) -> int | None:
        found = re.search(r"[#&]row=(\d+)", self.page.url)
        return int(found[1]) if found else None

    def nothing_blank(self) -> None:
        """Every pane says or draws something."""
        panes = self.page.locator(".pane")
        assert panes.count() >= 5
        for pane in panes.all():
            assert pane.is_visible()
            assert pane.evaluate(_WORDS) > 5, pane.get_attribute("aria-label")
        for canvas in self.page.locator(".structure canvas, .drift canvas").all():
            # A canvas is painted in a frame after its data arrive.
            for _ in range(100):
                if canvas.evaluate(_PAINTED):
                    break
                self.page.wait_for_timeout(50)
            assert canvas.evaluate(_PAINTED)


def row_with(known, least: int = 3) -> int | None:
    """The least similar sync point whose values were kept, of so many axes, not seen through a
    view: its element is the same element of both runs."""
    for at in known.similarity("psnr"):
        row = known.rows[at]
        long = [length for length in row["target_shape"] if length > 1]
        if row["basis"] != "values" or len(long) < least or row["view"]:
            continue
        if row["target_shape"] == row["reference_shape"]:
            return at
    return None


def _number(text: str) -> float:
    if "∞" in text or "NaN" in text:
        return {"−∞": -np.inf, "+∞": np.inf}.get(text, np.nan)
    return float(text.replace("−", "-").replace("+", ""))


def check_cursor(looked, at: int) -> tuple[int, ...]:
    """Index under the cursor; what the captions say there is what the runs hold."""
    values = {side: looked.known.values(side, at) for side in ("target", "reference")}
    held = None
    for _ in range(100):
        # All at one moment: the picture of the slice before may still be there.
        said = looked.page.evaluate(_CAPTIONS)
        index = tuple(int(part) for part in re.findall(r"\d+", said["readout"] or ""))
        found = [_number(said[what] or "NaN") for what in ("target", "reference", "difference")]
        if said["readout"] and _inside(index, values["target"].shape):
            held = [values[side][index] for side in ("target", "reference")]
            with np.errstate(invalid="ignore"):
                apart = held[0] - held[1]
            want = [pytest.approx(number, rel=1e-3, nan_ok=True) for number in held]
            want.append(pytest.approx(apart, rel=2e-3, nan_ok=True))
            if found == want:
                return index
        looked.page.wait_for_timeout(50)
    pytest.fail(f"the captions say {said}, the runs hold {held} there")


def _inside(index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(index) == len(shape) and all(a < n for a, n in zip(index, shape, strict=True))
