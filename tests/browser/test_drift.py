"""The drift strip in a real browser: its flags, its brush, and what a click selects."""

import re

import pytest
from playwright.sync_api import expect

from helpers.browser_server import open_page

CANVAS = ".drift canvas"
KNOWN = "() => !/over 0 sync/.test(document.querySelector('.drift canvas').ariaLabel)"
ORDER = """async row => {
    const at = location.pathname.replace('/c/', '/api/comparisons/');
    const answer = await fetch(`${at}/rows?sort=operation&limit=200`);
    return (await answer.json()).items.find(one => one.row === row).order;
}"""


def ready(page) -> None:
    page.wait_for_function("() => document.querySelector('.drift canvas').flags !== undefined")
    page.wait_for_function(KNOWN)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def flags(page, count: int) -> list[dict]:
    """The flags, once there are so many: they need the drift and the state of every row."""
    page.wait_for_function(
        "count => document.querySelector('.drift canvas').flags().length === count", arg=count
    )
    return page.locator(CANVAS).evaluate("canvas => canvas.flags()")


def across(page, order) -> float:
    return page.locator(CANVAS).evaluate("(canvas, order) => canvas.xOf(order)", order)


def height(page, share) -> float:
    box = page.locator(CANVAS).bounding_box()
    return box["y"] + share * box["height"]


@pytest.mark.parametrize("width", [1440, 1280])
def test_flags_say_what_happened_and_never_overlap(page, served, width):
    page.set_viewport_size({"width": width, "height": 900})
    open_page(page, served("guilty"))
    ready(page)
    found = flags(page, 2)
    texts = [flag["text"] for flag in found]
    assert texts[0].startswith("linear_9 introduces") and texts[1] == "log produces NaN or inf"
    box = page.locator(CANVAS).bounding_box()
    for at, one in enumerate(found):
        assert one["w"] > 0 and one["x"] > 0 and one["x"] + one["w"] < box["width"]
        for other in found[:at]:
            apart = one["x"] > other["x"] + other["w"] or other["x"] > one["x"] + one["w"]
            assert apart or one["y"] != other["y"]


def test_brushing_filters_the_navigator_and_escape_clears_it(page, served):
    open_page(page, served("guilty"), sort="operation")
    ready(page)
    everything = int(page.get_by_test_id("matching").inner_text())
    page.mouse.move(across(page, 20), height(page, 0.5))
    page.mouse.down()
    page.mouse.move(across(page, 29), height(page, 0.5), steps=5)
    page.mouse.up()
    expect(page.get_by_test_id("matching")).to_have_text("10")
    assert "brush=20-30" in page.url
    rows = page.locator(".row").evaluate_all("rows => rows.map(row => Number(row.dataset.row))")
    assert [page.evaluate(ORDER, row) for row in rows] == list(range(20, 30))
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("matching")).to_have_text(str(everything))
    assert "brush" not in page.url


def test_brushing_backwards_and_past_the_end_holds_what_is_there(page, served):
    open_page(page, served("guilty"))
    ready(page)
    page.mouse.move(across(page, 5), height(page, 0.5))
    page.mouse.down()
    page.mouse.move(1, height(page, 0.5), steps=3)
    page.mouse.up()
    expect(page.get_by_test_id("matching")).to_have_text("6")
    assert "brush=0-6" in page.url


def test_a_click_selects_the_nearest_sync_point(page, served):
    open_page(page, served("guilty"), sort="operation")
    ready(page)
    page.mouse.click(across(page, 47), height(page, 0.6))
    expect(page.locator(".row[aria-selected=true]")).to_be_visible()
    assert re.search(r"row=\d+", page.url)
    place = int(re.search(r"row=(\d+)", page.url)[1])
    assert page.evaluate(ORDER, place) == 47


def test_a_flag_and_a_module_can_be_clicked(page, served):
    open_page(page, served("guilty"), sort="operation")
    ready(page)
    [flag] = [one for one in flags(page, 2) if one["kind"] == "guilty"]
    box = page.locator(CANVAS).bounding_box()
    page.mouse.click(box["x"] + flag["x"] + 20, box["y"] + flag["y"] + 8)
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("linear_9")
    page.mouse.click(across(page, 47), box["y"] + box["height"] - 6)
    expect(page.locator(".chip.t", has_text="ops")).to_be_visible()
    expect(page.get_by_test_id("matching")).to_have_text("24")


@pytest.mark.parametrize("metric", ["max_abs", "cosine", "exact", "max_ulp", "mse"])
def test_every_kind_of_metric_can_be_drawn(page, served, metric):
    open_page(page, served("guilty"), metric=metric)
    ready(page)
    flags(page, 2)
    painted = page.locator(CANVAS).evaluate(
        "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
        ".data.some(value => value > 0)"
    )
    assert painted


def test_without_values_it_says_so(page, served):
    open_page(page, served("digest"))
    expect(page.locator(".drift .none")).to_contain_text("No sync point has a value of PSNR")


def test_what_statistics_bound_is_drawn_as_bounds(page, served):
    open_page(page, served("statistics"))
    ready(page)
    expect(page.locator(".drift .head")).to_contain_text("at most (statistics)")
    expect(page.locator(".drift .none")).to_have_count(0)


@pytest.mark.parametrize("kind", ["missing", "plain", "fused", "clean"])
def test_other_kinds_of_comparisons_have_their_strip(page, served, kind):
    open_page(page, served(kind))
    ready(page)
    flags(page, {"missing": 2, "plain": 0, "fused": 1, "clean": 0}[kind])
    expect(page.locator(".drift .none")).to_have_count(0)


@pytest.mark.parametrize("kind", ["statistics", "digest"])
def test_it_says_that_nothing_the_ops_made_was_kept_as_values(page, served, kind):
    open_page(page, served(kind), metric="cosine")
    said = page.locator(".pane.drift")
    expect(said).to_contain_text("no op output was recorded with values on both sides")
    expect(said).not_to_contain_text("it was not measured here")
