"""Everyone can use it: axe finds nothing serious, in light and dark, in every state."""

from pathlib import Path

import pytest

from browsing import open_page

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
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
@pytest.mark.parametrize("kind", ["guilty", "statistics", "digest", "missing", "plain"])
def test_nothing_serious_is_in_the_way(page, served, kind, scheme):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size(NARROW)
    open_page(page, served(kind))
    assert serious(page) == []
    page.keyboard.press("ArrowDown")
    page.locator(".row[aria-selected=true]").wait_for()
    assert serious(page) == []


def test_nothing_is_wider_than_a_small_screen(page, served):
    page.set_viewport_size(NARROW)
    for state in ({}, {"row": 47, "sort": "operation", "grouped": 1}):
        open_page(page, served("guilty"), **state)
        page.wait_for_timeout(300)
        width = page.evaluate("document.documentElement.scrollWidth")
        height = page.evaluate("document.documentElement.scrollHeight")
        assert (width, height) == (1280, 800)
        for pane in page.locator(".pane").all():
            box = pane.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 1280.5
