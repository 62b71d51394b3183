"""The two graphs in a real browser: opened, moved, searched, and one with the selection."""

import re

import pytest
from playwright.sync_api import expect

from helpers import browser_server
from helpers.browser_server import open_page
from helpers.page_checks import place_of

CANVAS = ".structure canvas"
TALL = {"width": 1440, "height": 2200}
"""High enough for an opened module."""
GONE = """name => !document.querySelector('.structure canvas').shown()
    .some(one => one.name === name)"""
SEEN = """() => {
    const canvas = document.querySelector('.structure canvas');
    const box = canvas.getBoundingClientRect();
    return canvas.shown().some(one => one.selected && one.y > box.top && one.y < box.bottom);
}"""
DRAWN = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"""
FOUND = "() => document.querySelector('.structure canvas').shown().some(one => one.found)"


def nodes(page, lane="target") -> dict[str, dict]:
    """What is drawn on a lane, by name."""
    page.evaluate(DRAWN)
    found = page.locator(CANVAS).evaluate("canvas => canvas.shown()")
    return {one["name"]: one for one in found if one["lane"] == lane}


def wait(page, name, lane="target") -> dict:
    """A node, as soon as it is drawn."""
    page.wait_for_function(
        "([name, lane]) => document.querySelector('.structure canvas').shown?.()"
        ".some(one => one.name === name && one.lane === lane)",
        arg=[name, lane],
    )
    return nodes(page, lane)[name]


def press(page, node) -> None:
    page.mouse.click(node["x"], node["y"])


def chosen(page) -> str:
    found = re.search(r"[#&]row=(\d+)", page.url)
    return found[1] if found else ""


def test_it_opens_with_the_modules_in_order_on_both_lanes(page, served):
    open_page(page, served("guilty"))
    wait(page, "blocks.1")
    for lane in ("target", "reference"):
        shown = nodes(page, lane)
        modules = ["stem", "blocks.0", "blocks.1", "blocks.2", "aux"]
        names = ["image", *modules[:-1], "layer_norm_6", "aux"]
        assert [shown[name]["y"] for name in names] == sorted(shown[n]["y"] for n in names)
        assert all(shown[name]["kind"] == "closed" for name in modules)
    target = nodes(page)
    assert target["blocks.0"]["level"] == "close"
    assert target["blocks.1"]["level"] == "large"
    assert target["blocks.1"]["y"] == nodes(page, "reference")["blocks.1"]["y"]


def test_what_no_module_made_stands_beside_the_modules(page, served):
    page.set_viewport_size(TALL)
    open_page(page, served("guilty"))
    wait(page, "blocks.1")
    for lane in ("target", "reference"):
        shown = nodes(page, lane)
        assert shown["flatten"]["kind"] == shown["mean"]["kind"] == "op", "its modules are closed"
        assert shown["stem"]["y"] < shown["flatten"]["y"] < shown["blocks.0"]["y"]
        assert shown["layer_norm_6"]["y"] < shown["mean"]["y"] < shown["aux"]["y"]


def test_a_click_opens_a_module_in_both_lanes_and_closes_it(page, served):
    page.set_viewport_size(TALL)
    open_page(page, served("guilty"))
    press(page, wait(page, "blocks.1"))
    assert wait(page, "linear_9")["kind"] == "op", "what makes error is open at once"
    assert wait(page, "mlp")["kind"] == "closed", "what only passes it on is not"
    assert "linear_9" in nodes(page, "reference")
    press(page, wait(page, "mlp"))
    wait(page, "gelu_1")
    press(page, nodes(page)["blocks.1"])
    page.wait_for_function(GONE, arg="add_4")
    assert nodes(page)["blocks.1"]["kind"] == "closed"


def test_a_click_on_an_op_selects_it_everywhere(page, served):
    page.set_viewport_size(TALL)
    open_page(page, served("guilty"), sort="operation")
    press(page, wait(page, "blocks.1"))
    press(page, wait(page, "add_3"))
    row = page.locator(".row.sel, .row[aria-selected=true]")
    expect(row).to_contain_text("add_3")
    assert nodes(page)["add_3"]["selected"] and nodes(page, "reference")["add_3"]["selected"]
    words = page.locator("#structure-words")
    expect(words).to_contain_text("add_3 in blocks.1: large, inherited; reference add_3, paired by")
    assert chosen(page)


def test_what_is_selected_elsewhere_is_opened_and_brought_into_view(page, served):
    open_page(page, served("guilty"), text="gelu_2")
    page.locator(".row", has_text="gelu_2").click()
    node = wait(page, "gelu_2")
    box = page.locator(CANVAS).bounding_box()
    assert node["selected"]
    assert box["y"] < node["y"] < box["y"] + box["height"]
    # The filter first, then the selection.
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    node = wait(page, "linear_9")
    assert node["selected"] and box["y"] < node["y"] < box["y"] + box["height"]


def test_dragging_and_the_wheel_move_it_and_ctrl_wheel_zooms(page, served):
    open_page(page, served("guilty"), row=47)
    before = wait(page, "linear_9")
    centre = before["x"] + wait(page, "linear_9", "reference")["x"]
    box = page.locator(CANVAS).bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.wheel(0, 60)
    assert nodes(page)["linear_9"]["y"] == pytest.approx(before["y"] - 60, abs=1)
    page.mouse.down()
    page.mouse.move(middle[0], middle[1] + 40, steps=4)
    page.mouse.up()
    assert nodes(page)["linear_9"]["y"] == pytest.approx(before["y"] - 20, abs=1)
    assert chosen(page) == "47", "a drag is no click"
    step = nodes(page)["add_3"]["y"] - nodes(page)["linear_9"]["y"]
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    assert nodes(page)["add_3"]["y"] - nodes(page)["linear_9"]["y"] > 1.3 * step
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Fit", exact=True).click()
    both = nodes(page)["linear_9"]["x"] + nodes(page, "reference")["linear_9"]["x"]
    assert both == pytest.approx(centre, abs=2)


def test_the_search_marks_what_it_finds(page, served):
    open_page(page, served("guilty"))
    wait(page, "blocks.1")
    page.locator("#filter").fill("linear_9")
    page.wait_for_function(FOUND)
    assert [name for name, node in nodes(page).items() if node["found"]] == ["blocks.1"]


def test_hovering_lights_up_the_pair_and_the_row(page, served):
    open_page(page, served("guilty"), sort="operation")
    node = wait(page, "image", "reference")
    page.mouse.move(node["x"], node["y"])
    expect(page.locator(".row.hov")).to_contain_text("image")


def test_the_keyboard_moves_opens_and_fits(page, served):
    open_page(page, served("guilty"), row=47)
    before = wait(page, "linear_9")
    page.locator(CANVAS).focus()
    page.keyboard.press("+")
    assert nodes(page)["linear_9"]["x"] != before["x"]
    page.keyboard.press("Enter")
    assert "linear_9" not in nodes(page), "its module is closed"
    box = page.locator(CANVAS).bounding_box()
    closed = nodes(page)["attn"]
    assert closed["selected"] and box["y"] < closed["y"] < box["y"] + box["height"]
    page.keyboard.press("f")
    page.keyboard.press("Enter")
    opened = wait(page, "linear_9")
    assert box["y"] < opened["y"] < box["y"] + box["height"], "and not below the pane"
    before = nodes(page)["linear_9"]
    page.keyboard.press("End")
    moved = nodes(page).get("linear_9")
    assert moved is None or moved["y"] < before["y"]


def test_fit_shows_all_of_both_graphs_with_a_module_open(page, served):
    page.set_viewport_size({"width": 1440, "height": 1200})
    open_page(page, served("guilty"), row=47)
    wait(page, "linear_9")
    box = page.locator(CANVAS).bounding_box()
    bottom = box["y"] + box["height"]

    def all_in_view() -> bool:
        shown = [*nodes(page).values(), *nodes(page, "reference").values()]
        names = {one["name"] for one in shown if box["y"] < one["y"] < bottom}
        return {"image", "linear_9", "aux"} <= names

    assert not all_in_view()
    page.get_by_role("button", name="Fit", exact=True).click()
    assert all_in_view()
    expect(page.locator("#structure-words")).to_contain_text("linear_9")
    page.keyboard.press("ArrowDown")
    page.wait_for_function(SEEN)
    assert not all_in_view(), "what is selected can be read"
    page.keyboard.press("f")
    assert all_in_view()


def test_where_all_of_the_graphs_would_be_too_small_fit_says_so(page, served):
    page.set_viewport_size({"width": 1440, "height": 500})
    open_page(page, served("guilty"), row=47)
    before = wait(page, "linear_9")
    page.keyboard.press("f")
    expect(page.locator("#structure-words")).to_contain_text("too tall to fit")
    wait(page, "linear_9")
    page.wait_for_function(SEEN)
    assert nodes(page)["linear_9"]["x"] == pytest.approx(before["x"], abs=2)


def test_ops_without_partner_say_why(page, served):
    open_page(page, served("plain"))
    node = wait(page, "extra")
    assert node["reason"] == "no counterpart"
    press(page, node)
    expect(page.locator("#structure-words")).to_have_text("Target op extra: no counterpart")
    assert chosen(page) == ""
    assert len(nodes(page, "reference")) == 6


def test_what_is_fused_is_drawn_as_one(page, served):
    open_page(page, served("fused"))
    press(page, wait(page, "stem"))
    relu = wait(page, "relu", "reference")
    assert relu["members"] == 1, "conv2d is computed together with it"
    assert "conv2d" not in nodes(page, "reference")
    assert wait(page, "conv2d_1")["members"] == 1, "two target ops are one of the reference"


def test_without_its_runs_it_says_what_is_missing(page, served):
    open_page(page, served("missing"), row=47)
    wait(page, "linear_9")
    wait(page, "linear_9", "reference")
    said = page.locator(".structure .missing")
    expect(said).to_contain_text("no such file: target.run in")
    expect(said).to_contain_text("no such file: reference.run in")


@pytest.mark.parametrize("kind", ["statistics", "digest", "clean"])
def test_other_kinds_of_comparisons_have_their_graphs(page, served, kind):
    open_page(page, served(kind))
    level = wait(page, "blocks.1")["level"]
    assert level == {"statistics": "large", "digest": "large", "clean": "close"}[kind]


def test_nothing_moves_by_itself_but_in_180_ms(browser, served):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    try:
        open_page(page, served("guilty"), row=47)
        wait(page, "linear_9")
        page.keyboard.press("g")
        wait(page, "log")
        page.wait_for_function(SEEN)
    finally:
        context.close()


@pytest.fixture(scope="module")
def in_groups(comparisons):
    """The guilty comparison as one that is too large: groups, of which few ops are sent at once."""
    limits = {"SYNCPOINT_GRAPH_OPS": "40", "SYNCPOINT_GROUP_OPS": "9"}
    served = browser_server.start("view", str(place_of(comparisons, "guilty")), **limits)
    yield served
    browser_server.stop(served)


def in_order(page, names, lane) -> None:
    shown = nodes(page, lane)
    heights = [shown[name]["y"] for name in names]
    assert heights == sorted(heights), dict(zip(names, heights, strict=True))


def test_groups_and_what_no_module_made_stand_in_execution_order(page, in_groups):
    open_page(page, in_groups)
    wait(page, "blocks.1")
    for lane in ("target", "reference"):
        names = ["image", "stem", "flatten … add", "blocks.0", "blocks.1", "blocks.2"]
        in_order(page, [*names, "layer_norm_6", "mean", "linear_18", "aux"], lane)
        assert nodes(page, lane)["flatten … add"]["kind"] == "closed"
        assert nodes(page, lane)["mean"]["kind"] == "op"
    press(page, wait(page, "flatten … add"))
    for lane in ("target", "reference"):
        wait(page, "transpose", lane)
        in_order(page, ["stem", "flatten", "transpose", "add", "blocks.0"], lane)


def test_a_group_that_is_too_large_says_how_many_more_ops_it_has(page, in_groups):
    page.set_viewport_size(TALL)
    open_page(page, in_groups)
    press(page, wait(page, "blocks.1"))
    wait(page, "layer_norm_2")
    [rest] = [name for name, one in nodes(page).items() if one["kind"] == "rest"]
    found = re.fullmatch(r"… (\d+) more ops after these", rest)
    assert found and int(found[1]) > 9
    assert "add_4" not in nodes(page)
    for _ in range(9):
        later = [one for one in nodes(page).values() if "after these" in one["name"]]
        if not later:
            break
        before = set(nodes(page))
        press(page, later[0])
        page.wait_for_function(GONE, arg=later[0]["name"])
        assert set(nodes(page)) != before
    assert "add_4" in nodes(page)
    assert any("before these" in name for name in nodes(page))


def test_what_is_selected_is_shown_however_large_its_group_is(page, in_groups):
    open_page(page, in_groups, sort="operation")
    for name in ("add_4", "layer_norm_2", "linear_9", "gelu_2", "gelu_1", "mean", "transpose"):
        page.locator("#filter").fill(name)
        expect(page.locator(".row").first).to_contain_text(name)
        page.locator(".row", has_text=name).first.click()
        wait(page, name)
        page.wait_for_function(SEEN)
        assert nodes(page)[name]["selected"] and nodes(page, "reference")[name]["selected"]


def test_digests_are_equal_or_not(page, served):
    open_page(page, served("digest"), sort="operation")
    wait(page, "blocks.1")
    found = nodes(page)
    assert found["blocks.0"]["bytes"] == "=" and found["blocks.1"]["bytes"] == "≠"
    assert all(one["bytes"] for name, one in found.items() if name != "image")
