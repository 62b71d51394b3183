"""What the page costs the browser at scale, as time of its main thread.

A comparison of a million sync points (`--rows N` for fewer), served by the real command and opened
in Debian's Chromium. One JSON line a measurement: seconds of main-thread work, seconds until it is
seen, and of the scrolling how many of the rows in view were still empty when a frame was drawn.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests")]

from playwright.sync_api import sync_playwright  # noqa: E402

from helpers import browser_server  # noqa: E402
from helpers.mixed_comparison import mixed  # noqa: E402
from helpers.reseal_checksums import reseal  # noqa: E402


def large(rows: int, path: Path) -> None:
    """A real comparison, its table repeated under other names."""
    made = mixed(1000)
    made.save(path)
    table = made.table.filter(pl.col("target_role") == "output")
    layer = pl.Series(np.arange(rows) // table.height).cast(pl.String)
    noise = pl.Series(np.random.default_rng(0).standard_normal(rows) * 3)
    names = {
        f"{side}_op": pl.lit("layer") + layer + "_" + pl.col(f"{side}_op")
        for side in ("target", "reference")
    }
    module = pl.lit("model.layers.") + layer + "." + pl.col("target_module")
    repeated = pl.concat([table] * -(-rows // table.height)).head(rows)
    repeated.with_columns(
        **names,
        target_module=module.str.strip_chars_end("."),
        target_order=pl.Series(np.arange(rows)),
        psnr=pl.col("psnr") + noise,
    ).write_parquet(path / "syncpoints.parquet")
    reseal(path, rows=rows, edges=[])


class Clock:
    """Main-thread work of a page, by the browser's own account."""

    def __init__(self, page) -> None:
        self._cdp = page.context.new_cdp_session(page)
        self._cdp.send("Performance.enable")

    def work(self) -> float:
        found = self._cdp.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in found if one["name"] == "TaskDuration")


def measured(name: str, clock: Clock, act) -> None:
    before, start = clock.work(), perf_counter()
    more = act() or {}
    seen = perf_counter() - start
    print(json.dumps({"name": name, "main thread s": round(clock.work() - before, 3),
                      "seen after s": round(seen, 3), **more}))  # fmt: skip


def scroll(page) -> dict:
    """From the top in wheels of a screen, and in jumps: rows in view that are still empty."""
    empty = """() => {
        const box = document.querySelector('.list').getBoundingClientRect();
        const seen = [...document.querySelectorAll('.list .row')].filter(r => {
            const at = r.getBoundingClientRect(); return at.bottom > box.top && at.top < box.bottom; });
        return [seen.filter(r => r.classList.contains('skeleton')).length, seen.length]; }"""  # noqa: E501
    page.mouse.move(150, 400)
    blank = rows = 0
    for _ in range(60):
        page.mouse.wheel(0, 500)
        page.evaluate("() => new Promise(requestAnimationFrame)")
        one, all_ = page.evaluate(empty)
        blank, rows = blank + one, rows + all_
    return {"frames": 60, "empty rows": blank, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "large.cmp"
        large(rows, path)
        served = browser_server.start("view", str(path))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            clock = Clock(page)
            page.set_default_timeout(60_000)
            first = page.locator(".row .a").first

            def opening():
                page.goto(served.address)
                first.wait_for()

            def sorting():
                before = first.inner_text()
                page.get_by_role("button", name="Operation").click()
                page.wait_for_function(
                    "text => document.querySelector('.row .a')?.innerText !== text", arg=before
                )

            def grouping():
                page.get_by_label("Group by module").click()
                page.locator(".list .grp").first.wait_for()

            measured(f"{rows} rows: first rows", clock, opening)
            page.wait_for_timeout(3000)
            measured(f"{rows} rows: sort", clock, sorting)
            measured(f"{rows} rows: scroll", clock, lambda: scroll(page))
            measured(f"{rows} rows: group", clock, grouping)
        finally:
            browser.close()
            browser_server.stop(served)


if __name__ == "__main__":
    main()
