"""Two graphs of ten thousand ops stay fluid: what the first picture and every frame cost.

Costs are counted in time on the processor, which others who use the machine take nothing from; the
clock on the wall is held against the same limit where the machine has nothing else to do.
"""

import json
import time

import numpy as np
import pytest

import browsing
import large_graphs
from syncpoint.page.graphs import graph
from syncpoint.page.opened import Opened

CANVAS = ".structure canvas"
FIRST_PAINT = 2000
FRAME = 25
DRAWN = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"""
KNOWN = "() => !/over 0 /.test(document.querySelector('.drift canvas').ariaLabel)"
PACE = """() => {
    const start = performance.now();
    let sum = 0;
    for (let i = 0; i < 3e7; i++) sum += i % 7;
    return performance.now() - start;
}"""
QUIET = 40
"""Milliseconds that this takes where nobody else is at work."""
CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline", "blink.user_timing"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return large_graphs.make(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def served_large(large):
    served = browsing.start("view", str(large))
    yield served
    browsing.stop(served)


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


def test_the_first_picture_comes_within_two_seconds(browser, large, served_large):
    opened = Opened(large)
    start = time.process_time()
    for side in ("target", "reference"):
        graph(opened, side).model_dump_json()
    answers = 1000 * (time.process_time() - start)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(30_000)

    def show() -> None:
        browsing.open_page(page, served_large)
        page.wait_for_function("() => performance.getEntriesByName('structure').length")

    try:
        events = traced(browser, page, show)
        painted = min(event["ts"] for event in events if event["name"] == "structure")
        drawing = sum(cost for end, cost in tasks(events) if end <= painted + 100_000)
        wall = page.evaluate("() => performance.getEntriesByName('structure')[0].startTime")
        pace = page.evaluate(PACE)
    finally:
        context.close()
    print(f"answers {answers:.0f} ms, page {drawing:.0f} ms, wall {wall:.0f} ms, pace {pace:.0f}")
    assert answers + drawing <= FIRST_PAINT
    assert wall <= FIRST_PAINT or pace > QUIET


def test_expanding_panning_and_zooming_stay_within_a_frame(browser, served_large):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(30_000)
    try:
        browsing.open_page(page, served_large)
        page.wait_for_function(KNOWN)
        page.evaluate(DRAWN)
        box = page.locator(CANVAS).bounding_box()
        middle = (box["x"] + box["width"] / 2 - 15, box["y"] + box["height"] / 2)
        opened: set[str] = set()

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
                    opened.update(one["path"] for one in shown() if one["kind"] == "open")
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
            share = float(np.percentile(spent, 95))
            print(f"{act.__name__}: {len(spent)} frames, 95 % within {share:.1f} ms")
            assert len(spent) > 10
            assert share <= FRAME, act.__name__
        assert len(opened) > 3, "modules were opened"
    finally:
        context.close()
