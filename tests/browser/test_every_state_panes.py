"""The panes around the selection, whatever the comparison is like.

Each test runs on values that are not finite, on ops without partner, without source, on statistics
and without the runs. Values are held against NumPy on the recorded tensors; where there is nothing
to click or to move, the page must say so in words.
"""

import re
from pathlib import Path

import numpy as np
from playwright.sync_api import expect

from looking import DRAWN, DRIFT, check_cursor, row_with

STRUCTURE = ".structure canvas"
COLUMN = """(canvas, order) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.round((canvas.xOf(order) - box.left) * canvas.width / box.width);
    const wide = canvas.getContext('2d').getImageData(x - 3, 0, 7, canvas.height).data;
    return wide.join();
}"""
SCROLL = """(scroller, line) => {
    const height = scroller.querySelector('.cm-line').getBoundingClientRect().height;
    scroller.scrollTop = (line - 4) * height;
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
        expect(said).to_contain_text("there is no target.run in")
    else:
        expect(said).to_contain_text("Only statistics were kept")
        expect(page.get_by_test_id("statistics")).to_be_visible()
    expect(page.locator(".insp canvas")).to_have_count(0)
    expect(page.locator(".insp input[type=range]")).to_have_count(0)


def off(known) -> int:
    """A computed sync point that is off, with a module where there are any."""
    rows = [at for at in known.similarity("psnr") if known.rows[at]["target_role"] == "output"]
    return next((at for at in rows if known.rows[at]["target_module"]), rows[0])


def test_the_selection_is_followed_in_all_panes(looked):
    known = looked.known
    at = off(known)
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
    page = looked.go()
    page.get_by_role("button", name="Fit", exact=True).click()
    page.locator(STRUCTURE).focus()
    page.keyboard.press("Home")

    def drawn(lane: str) -> dict[str, dict]:
        page.evaluate(DRAWN)
        found = page.locator(STRUCTURE).evaluate("canvas => canvas.shown()")
        return {one["name"]: one for one in found if one["lane"] == lane}

    if looked.kind == "sourceless":
        # Without modules every op stands in the open.
        for lane in ("target", "reference"):
            ops = {name for name, one in drawn(lane).items() if one["kind"] == "op"}
            assert ops
            assert ops <= {row["target_op"] for row in looked.known.rows}
            assert not [one for one in drawn(lane).values() if one["kind"] == "closed"]
        return
    stem = drawn("target")["stem"]
    if stem["kind"] == "open":
        page.mouse.click(stem["x"], stem["y"])
        page.evaluate(DRAWN)
    inside = looked.known.within("stem")
    names = {
        side: {
            looked.known.rows[at][f"{side}_op"]
            for at in inside
            if looked.known.rows[at]["target_role"] == "output"
        }
        for side in ("target", "reference")
    }
    assert names["target"]
    assert not names["target"] & set(drawn("target"))
    stem = drawn("target")["stem"]
    page.mouse.click(stem["x"], stem["y"])
    for side, wanted in names.items():
        page.wait_for_function(
            "([lane, name]) => document.querySelector('.structure canvas').shown()"
            ".some(one => one.lane === lane && one.name === name && one.kind === 'op')",
            arg=[side, sorted(wanted)[0]],
        )
        assert wanted <= set(drawn(side))
    if looked.kind == "missing":
        expect(page.locator(".structure .missing")).to_contain_text("Neither run is at hand")
    stem = drawn("target")["stem"]
    page.mouse.click(stem["x"], stem["y"])


def test_a_line_of_source_is_clicked(looked):
    known = looked.known
    at = off(known)
    page = looked.go(row=at)
    if looked.kind in ("sourceless", "missing"):
        why = {"sourceless": "Neither run carries a source stack", "missing": "is not at hand"}
        expect(page.get_by_test_id("nosource")).to_contain_text(why[looked.kind])
        expect(page.locator(".cm-line")).to_have_count(0)
        looked.nothing_blank()
        return
    content = page.locator(".cm-content")
    expect(content).to_be_visible()
    side = re.search("Source of the (target|reference)", content.get_attribute("aria-label"))[1]
    file, _, number = known.rows[at][f"{side}_source"].rpartition(":")
    text = Path(file).read_text().splitlines()
    expect(page.locator(".cm-line.sel")).to_have_text(text[int(number) - 1])
    wanted = "return x + self.mlp(self.norm2(x))"
    line = 1 + next(i for i, one in enumerate(text) if wanted in one)
    made = [
        one
        for one in known.execution
        if known.rows[one][f"{side}_source"] == f"{file}:{line}"
        and known.rows[one]["target_role"] in ("output", "model-output")
    ]
    assert made
    # Only lines near the window are there to be clicked.
    page.locator(".cm-scroller").evaluate(SCROLL, line)
    page.locator(".cm-line", has_text=wanted).click()
    for _ in range(100):
        if looked.selected() != at:
            break
        page.wait_for_timeout(50)
    first = looked.selected()
    assert first in made
    rank = ("none", "close", "moderate", "large").index
    worst = max(rank(known.level(one, "psnr")) for one in made)
    assert rank(known.level(first, "psnr")) == worst
    expect(page.locator(".cm-line.sel")).to_contain_text(wanted)
    if looked.kind == "fused":
        # Ops that were fused from this line as well are among those that it made.
        visited = [first]
        for _ in range(4 * len(made)):
            page.locator(".cm-line", has_text=wanted).click()
            page.wait_for_timeout(50)
            visited.append(looked.selected())
        assert set(made) <= set(visited)
        return
    for _ in made[1:]:
        now = looked.selected()
        page.locator(".cm-line", has_text=wanted).click()
        looked.chosen(made[(made.index(now) + 1) % len(made)])


def test_a_slice_of_the_tensors_is_moved(looked):
    page, known = looked.page, looked.known
    if looked.kind in ("statistics", "missing"):
        inspected(looked, off(known))
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
        inspected(looked, off(known))
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
