"""What two graphs of ten thousand ops (`--ops N` for another number) cost the browser: the first
picture, and every frame after. Above 50,000 ops come as groups, each when it is opened.

Served by the real command, opened in Debian's Chromium, read from the browser's own trace. One JSON
line a measurement, in milliseconds of the main thread on the processor, which others who use the
machine take nothing from; `seen` is by the clock, and so is `pace`, a loop that takes some 30 ms
where nobody else is at work. `heatmap`: a pair of 4096 x 4096 from the click to the picture.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

sys.path[:0] = [str(Path(__file__).parent.parent / "tests")]

import syncpoint as sp  # noqa: E402
from helpers import browser_server, large_graphs  # noqa: E402
from syncpoint.page.graphs import build_graph  # noqa: E402
from syncpoint.page.open_comparison import OpenComparison  # noqa: E402

CANVAS = ".structure canvas"
DRAWN = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"""
KNOWN = "() => !/over 0 /.test(document.querySelector('.drift canvas').ariaLabel)"
PACE = """() => {
    const start = performance.now();
    let sum = 0;
    for (let i = 0; i < 3e7; i++) sum += i % 7;
    return performance.now() - start;
}"""
CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline", "blink.user_timing"]


def on_main(trace: bytes) -> list[dict]:
    """What the main thread of the page did."""
    events = json.loads(trace)["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [event for event in events if (event["pid"], event["tid"]) in main]


def tasks(events: list[dict]) -> list[tuple[int, float]]:
    """When each ended, and its milliseconds on the processor."""
    return [
        (event["ts"] + event["dur"], event.get("tdur", event["dur"]) / 1000)
        for event in events
        if event["name"] == "RunTask" and event["ph"] == "X"
    ]


def frames(events: list[dict]) -> list[float]:
    """Main-thread milliseconds of every frame in which something was drawn."""
    begins = sorted(event["ts"] for event in events if event["name"] == "FireAnimationFrame")
    spent = np.zeros(len(begins) + 1)
    for end, cost in tasks(events):
        # A frame begins inside a task: the task belongs to the frame it ends in.
        spent[np.searchsorted(begins, end)] += cost
    return spent[1:].tolist()


def traced(browser, page, act) -> list[dict]:
    browser.start_tracing(page=page, categories=CATEGORIES)
    act()
    page.evaluate(DRAWN)
    return on_main(browser.stop_tracing())


def told(name: str, **figures: object) -> None:
    rounded = {k: round(v, 1) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps({"name": name, **rounded}))


def first_picture(browser, path: Path, served: browser_server.Served) -> None:
    opened = OpenComparison(path)
    start = time.process_time()
    for side in ("target", "reference"):
        build_graph(opened, side).model_dump_json()
    answers = 1000 * (time.process_time() - start)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(60_000)

    def show() -> None:
        browser_server.open_page(page, served)
        page.wait_for_function("() => performance.getEntriesByName('structure').length")

    events = traced(browser, page, show)
    painted = min(event["ts"] for event in events if event["name"] == "structure")
    drawing = sum(cost for end, cost in tasks(events) if end <= painted + 100_000)
    seen = page.evaluate("() => performance.getEntriesByName('structure')[0].startTime")
    told(
        "first picture",
        **{"page ms": drawing, "graphs' answers ms": answers, "seen ms": seen},
        **{"pace ms": page.evaluate(PACE)},
    )
    page.close()


def every_frame(browser, served: browser_server.Served) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(60_000)
    browser_server.open_page(page, served)
    page.wait_for_function(KNOWN)
    page.evaluate(DRAWN)
    box = page.locator(CANVAS).bounding_box()
    middle = (box["x"] + box["width"] / 2 - 15, box["y"] + box["height"] / 2)

    def shown() -> list[dict]:
        return page.locator(CANVAS).evaluate("canvas => canvas.shown()")

    def expand() -> None:
        for _ in range(12):
            closed = [
                one
                for one in shown()
                if one["lane"] == "target" and one["kind"] == "closed"
                if box["y"] + 10 < one["y"] < box["y"] + box["height"] - 10
            ]
            if closed:
                page.mouse.click(closed[0]["x"], closed[0]["y"])
                page.evaluate(DRAWN)
            page.mouse.move(*middle)
            page.mouse.wheel(0, 150)
            page.evaluate(DRAWN)

    def pan() -> None:
        for _ in range(60):
            page.mouse.wheel(0, 220)

    def zoom() -> None:
        page.keyboard.down("Control")
        for at in range(60):
            page.mouse.wheel(0, 90 if at < 30 else -90)
        page.keyboard.up("Control")

    page.mouse.move(*middle)
    for act in (expand, pan, zoom):
        spent = frames(traced(browser, page, act))
        told(
            act.__name__,
            frames=len(spent),
            **{"95 % within ms": float(np.percentile(spent, 95)), "worst ms": max(spent)},
        )
    page.close()


def heatmap(browser, folder: Path) -> None:
    rng = np.random.default_rng(0)
    large = rng.standard_normal((4096, 4096)).astype("f4")
    np.savez(folder / "a.npz", small=large[:4], large=large)
    large[1234, 3210] += 1
    np.savez(folder / "b.npz", small=large[:4], large=large)
    sp.compare(folder / "b.npz", folder / "a.npz", out=folder / "heat.cmp")
    served = browser_server.start("view", str(folder / "heat.cmp"))
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(60_000)
    try:
        browser_server.open_page(page, served)
        for time_ in ("first", "again"):
            page.locator(".row", has_text="small").click()
            page.wait_for_timeout(1500)

            def click() -> None:
                page.locator(".row", has_text="large").click()
                page.wait_for_function(
                    "() => /cursor\\s*.1234, 3210/.test(document.querySelector('.insp').innerText)"
                )

            start = time.perf_counter()
            events = traced(browser, page, click)
            told(
                f"heatmap, {time_}",
                **{"page ms": sum(cost for _, cost in tasks(events))},
                **{"seen ms": 1000 * (time.perf_counter() - start)},
            )
    finally:
        browser_server.stop(served)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ops", type=int, default=10_000)
    ops = parser.parse_args().ops // large_graphs.BLOCK * large_graphs.BLOCK
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = large_graphs.make(Path(folder), ops)
        served = browser_server.start("view", str(path))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            first_picture(browser, path, served)
            every_frame(browser, served)
            heatmap(browser, Path(folder))
        finally:
            browser.close()
            browser_server.stop(served)


if __name__ == "__main__":
    main()
