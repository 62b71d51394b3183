"""Everyone can use it: axe finds nothing serious, in light and dark, in every state."""

import pytest
from playwright.sync_api import expect

from helpers.browser_server import open_page
from helpers.page_checks import RUNS, watch
from helpers.paths import ROOT
from helpers.session_server import Server, write_dumps

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
NARROW = {"width": 1280, "height": 800}
SERIOUS = """async () => {
    const found = await axe.run(document, {
        resultTypes: ["violations"],
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    });
    return found.violations
        .filter(one => ["serious", "critical"].includes(one.impact))
        .map(one => `${one.id}: ${one.nodes.map(node => node.html).slice(0, 3).join(" | ")}`);
}"""


def serious(page) -> list[str]:
    page.wait_for_timeout(500)
    page.evaluate(AXE.read_text())
    return page.evaluate(SERIOUS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", [*RUNS, "digest", "plain"])
def test_nothing_serious_is_in_the_way(page, served, kind, scheme):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size(NARROW)
    open_page(page, served(kind))
    assert serious(page) == []
    page.keyboard.press("ArrowDown")
    page.locator(".row[aria-selected=true]").wait_for()
    assert serious(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_is_in_the_way_of_a_session(page, tmp_path, scheme):
    write_dumps(tmp_path)
    server = Server(tmp_path)
    try:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size(NARROW)
        page.goto(server.address)
        page.locator("#target-path").fill("target.npz")
        page.locator("#reference-path").fill("nowhere.npz")
        page.get_by_role("alert").first.wait_for()
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    finally:
        server.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_is_in_the_way_of_an_error(page, served, scheme):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size(NARROW)
    page.goto(served("guilty").address)
    page.goto(f"{served('guilty').origin}/c/nothing")
    said = page.get_by_role("alert")
    expect(said).to_contain_text("This comparison cannot be shown")
    expect(said).to_contain_text("nothing")
    assert serious(page) == []


OUTSIDE = """() => {
    const inside = (box) => box.left >= -0.5 && box.top >= -0.5
        && box.right <= innerWidth + 0.5 && box.bottom <= innerHeight + 0.5;
    const scrolled = (element) => {
        for (let up = element.parentElement; up; up = up.parentElement) {
            const style = getComputedStyle(up);
            const cuts = style.overflowX !== 'visible' || style.overflowY !== 'visible';
            if (cuts && inside(up.getBoundingClientRect())) return true;
        }
        return false;
    };
    return [...document.querySelectorAll('.frame *')].filter(one => {
        const box = one.getBoundingClientRect();
        return box.width && box.height && !inside(box) && !scrolled(one);
    }).map(one => one.outerHTML.slice(0, 120));
}"""
"""What reaches out of the window and cannot be scrolled to."""


@pytest.mark.parametrize("kind", RUNS)
def test_everything_fits_into_a_small_screen(page, served, kind):
    wrong = watch(page)
    page.set_viewport_size(NARROW)
    open_page(page, served(kind))
    for state in ("nothing selected", "a row selected", "grouped"):
        if state == "a row selected":
            page.keyboard.press("ArrowDown")
            page.get_by_test_id("fault").wait_for()
        elif state == "grouped":
            page.get_by_label("Group by module").click()
        page.wait_for_timeout(300)
        size = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        assert size == [NARROW["width"], NARROW["height"]], state
        assert page.evaluate(OUTSIDE) == [], state
        panes = page.locator(".pane").all()
        assert len(panes) == 5
        for pane in panes:
            box = pane.bounding_box()
            assert box["width"] >= 150 and box["height"] >= 80, pane.get_attribute("aria-label")
    assert wrong == []
