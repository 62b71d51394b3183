"""The panes around the selection, whatever the comparison is like.

Each test runs on values that are not finite, on ops without partner, without source, on statistics
and without the runs. Values are held against NumPy on the recorded tensors; where there is nothing
to click or to move, the page must say so in words.
"""

import re

import numpy as np
from playwright.sync_api import expect

from helpers.page_actions import check_module_in_both_graphs, check_source_line_click, least_similar
from helpers.page_checks import DRAWN, DRIFT, check_cursor, row_with

COLUMN = """(canvas, order) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.round((canvas.xOf(order) - box.left) * canvas.width / box.width);
    const wide = canvas.getContext('2d').getImageData(x - 3, 0, 7, canvas.height).data;
    return wide.join();
}"""
LIT = """([target, reference]) => {
    const lit = document.querySelector('.structure canvas').shown().filter(one => one.selected);
    return lit.some(one => one.lane === 'target' && one.name === target)
        && lit.some(one => one.lane === 'reference' && one.name === reference);
}"""


def inspected(looked, at: int) -> None:
    """Select a sync point and wait for its inspector."""
    page = looked.go(sort="operation", row=at)
    name = looked.known.rows[at]["target_name"] or looked.known.rows[at]["target_op"]
    expect(page.locator(".insp .pair b").first).to_have_text(name)


def says_why_there_are_no_values(looked) -> None:
    """Where somebody would look for pictures there are words."""
    page = looked.page
    said = page.get_by_test_id("missing")
    if looked.kind == "missing":
        expect(said).to_contain_text("no such file: target.run in")
    else:
        expect(said).to_contain_text("Only statistics were kept")
        expect(page.get_by_test_id("statistics")).to_be_visible()
    expect(page.locator(".insp canvas")).to_have_count(0)
    expect(page.locator(".insp input[type=range]")).to_have_count(0)


def test_the_selection_is_followed_in_all_panes(looked):
    known = looked.known
    at = least_similar(known)
    row = known.rows[at]
    order = known.execution.index(at)
    page = looked.go(text=row["target_op"])
    page.evaluate(DRAWN)
    before = page.locator(DRIFT).evaluate(COLUMN, order)
    page.locator(f".row[data-row='{at}']").click()
    expect(page.locator(".row[aria-selected=true]")).to_have_attribute("data-row", str(at))
    expect(page.locator(".insp .pair b").first).to_have_text(row["target_op"])
    expect(page.get_by_test_id("place")).to_have_text(f"{order + 1} of {len(known.rows)}")
    expect(page.get_by_test_id("evidence")).to_contain_text(row["evidence"])
    page.wait_for_function(LIT, arg=[row["target_op"], row["reference_op"]])
    page.mouse.move(0, 0)
    page.evaluate(DRAWN)
    assert page.locator(DRIFT).evaluate(COLUMN, order) != before
    module = row["target_module"] or row["reference_module"]
    if module:
        path = page.get_by_role("navigation", name="Module path")
        last = path.get_by_role("button").last
        expect(last).to_have_attribute("title", f"Show only what is in {module}")
    looked.nothing_blank()


def test_a_module_opens_in_both_graphs(looked):
    check_module_in_both_graphs(looked)


def test_a_line_of_source_is_clicked(looked):
    check_source_line_click(looked)


def test_a_slice_of_the_tensors_is_moved(looked):
    page, known = looked.page, looked.known
    if looked.kind in ("statistics", "missing"):
        inspected(looked, least_similar(known))
        says_why_there_are_no_values(looked)
        page.keyboard.press("]")
        says_why_there_are_no_values(looked)
    at = row_with(known)
    if looked.kind == "missing":
        return
    inspected(looked, at)
    sliders = page.locator(".insp input[type=range]")
    expect(sliders.first).to_be_visible()
    axis = int(re.search(r"\d+", sliders.first.get_attribute("aria-label"))[0])
    length = known.rows[at]["target_shape"][axis]
    start = int(sliders.first.input_value())
    assert check_cursor(looked, at)[axis] == start
    page.keyboard.press("[" if start else "]")
    now = start - 1 if start else 1
    expect(sliders.first).to_have_value(str(now))
    cursor = page.get_by_test_id("readout").locator("b")
    moved = r"^\[" + r"\d+, " * axis + str(now)
    expect(cursor).to_have_text(re.compile(moved))
    assert check_cursor(looked, at)[axis] == now
    sliders.first.fill(str(length - 1))
    expect(cursor).to_have_text(re.compile(r"^\[" + r"\d+, " * axis + str(length - 1)))
    check_cursor(looked, at)


def test_a_value_is_read_under_the_cursor(looked):
    page, known = looked.page, looked.known
    if looked.kind in ("statistics", "missing"):
        inspected(looked, least_similar(known))
        says_why_there_are_no_values(looked)
    if looked.kind == "missing":
        return
    rows = [row_with(known, 2)]
    if looked.kind == "guilty":
        rows += [at for at, row in enumerate(known.rows) if row["mismatched"]][:3]
    for at in rows:
        inspected(looked, at)
        page.get_by_test_id("readout").wait_for()
        seen = {check_cursor(looked, at)}
        picture = page.get_by_role("img", name=re.compile("^Target,"))
        box = picture.bounding_box()
        for x, y in ((0.2, 0.3), (0.5, 0.5), (0.9, 0.8)):
            picture.hover(position={"x": x * box["width"], "y": y * box["height"]})
            page.evaluate(DRAWN)
            seen.add(check_cursor(looked, at))
        count = np.prod(known.rows[at]["target_shape"])
        assert len(seen) > 1 or count == 1
        if known.rows[at]["mismatched"]:
            values = known.values("target", at)
            assert not np.isfinite(values).all()
            expect(page.locator(".read .bad")).to_contain_text("NaN or infinite")


def test_the_strip_is_brushed(looked):
    page, known = looked.go(sort="operation"), looked.known
    looked.lists(known.execution)
    first, last = (3, 9) if len(known.drawn) < 30 else (12, 25)
    box = page.locator(DRIFT).bounding_box()
    across = [page.locator(DRIFT).evaluate("(c, at) => c.xOf(at)", at) for at in (first, last)]
    page.mouse.move(across[0], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(across[1], box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    looked.lists(known.drawn[first : last + 1])
    expect(page.get_by_role("button", name=f"ops {first}–{last}")).to_be_visible()
    page.mouse.click(across[0], box["y"] + box["height"] * 0.6)
    looked.chosen(known.drawn[first])
    page.keyboard.press("Escape")
    looked.lists(known.execution)
