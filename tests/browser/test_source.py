"""The source pane in a real browser: the line, its marks, and what a click on it selects."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from helpers.browser_server import open_page
from models import vit
from syncpoint.comparison.storage.comparison_folder import load


@pytest.fixture(scope="module")
def rows(comparisons):
    return load(comparisons / "guilty.cmp").rows


def row_of(rows, name):
    return next(at for at, row in enumerate(rows) if row.target.key.op.op == name)


def line_of(text):
    lines = Path(vit.__file__).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if text in line)


def chosen(page):
    return page.locator(".cm-line.sel")


def selected(page):
    return int(re.search(r"row=(\d+)", page.url)[1])


def test_the_line_of_the_selected_op_is_shown_with_its_marks(page, served, rows):
    open_page(page, served("guilty"), row=row_of(rows, "linear_9"))
    expect(chosen(page)).to_have_text("        return self.proj(x)")
    crumb = page.locator("#crumb")
    expect(crumb).to_contain_text(f"vit.py:{line_of('return self.proj(x)')}")
    marks = page.locator(".ann:has(.cur) [data-row]")
    assert [int(mark.get_attribute("data-row")) for mark in marks.all()] == [
        row_of(rows, name) for name in ("linear_3", "linear_9", "linear_15")
    ]
    names = [mark.get_attribute("aria-label") for mark in marks.locator("svg").all()]
    assert names == ["close", "large", "large, inherited"]
    expect(page.locator(".ann .cur")).to_have_attribute("data-row", str(row_of(rows, "linear_9")))


def test_clicks_on_a_line_select_its_worst_op_and_then_the_others(page, served, rows):
    open_page(page, served("guilty"), row=row_of(rows, "softmax"))
    line = page.locator(".cm-line", has_text="return self.proj(x)")
    for name in ("linear_9", "linear_15", "linear_3", "linear_9"):
        line.click()
        page.wait_for_url(re.compile(rf"row={row_of(rows, name)}(?!\d)"))
        expect(page.get_by_role("complementary", name="Inspector")).to_contain_text(name)
        expect(chosen(page)).to_contain_text("self.proj(x)")
    page.locator(".ann:has(.cur) [data-row]").first.click()
    page.wait_for_url(re.compile(rf"row={row_of(rows, 'linear_3')}(?!\d)"))
    page.locator(".cm-line", has_text="class Mlp").click()
    assert selected(page) == row_of(rows, "linear_3")


def test_the_box_goes_to_the_line_that_is_clicked_however_many_ops_it_has(page, served, rows):
    open_page(page, served("guilty"))
    page.keyboard.press("g")
    boxed = page.locator(".ann .cur")
    expect(boxed).to_have_attribute("data-row", str(row_of(rows, "linear_9")))
    page.locator(".cm-line", has_text="q = self.q(x)").click()
    expect(chosen(page)).to_contain_text("q = self.q(x)")
    expect(boxed).to_have_count(1)
    expect(boxed).to_have_text(re.compile(r"^\d+ ops$"))
    page.locator(".cm-line", has_text="attn.softmax").click()
    expect(chosen(page)).to_contain_text("attn.softmax")
    expect(boxed).to_have_attribute("data-row", re.compile(r"\d"))
    expect(boxed).to_have_count(1)


def test_the_source_follows_the_selection(page, served, rows):
    open_page(page, served("guilty"), row=row_of(rows, "linear_9"), sort="operation")
    expect(chosen(page)).to_contain_text("self.proj(x)")
    page.get_by_role("button", name="Next sync point").click()
    expect(chosen(page)).to_contain_text("x = x + self.attn")
    expect(chosen(page)).to_be_in_viewport()


def test_a_step_of_the_module_path_filters_the_navigator(page, served, rows):
    open_page(page, served("guilty"), row=row_of(rows, "linear_9"))
    path = page.get_by_role("navigation", name="Module path")
    expect(path).to_have_text(re.compile("blocks.1.*attn.*proj"))
    before = page.get_by_test_id("matching").inner_text()
    path.get_by_role("button", name="attn").click()
    expect(page.get_by_test_id("matching")).not_to_have_text(before)
    assert "module=blocks.1.attn" in page.url
    expect(chosen(page)).to_contain_text("self.proj(x)")


def test_either_run_s_source_can_be_chosen(page, served, rows):
    open_page(page, served("guilty"), row=row_of(rows, "linear_9"))
    sides = page.get_by_role("group", name="Source of")
    expect(sides.get_by_role("button", name="Target")).to_have_attribute("aria-pressed", "true")
    sides.get_by_role("button", name="Reference").click()
    expect(page.locator(".cm-content")).to_have_attribute(
        "aria-label", re.compile("^Source of the reference")
    )
    expect(chosen(page)).to_contain_text("self.proj(x)")


def test_without_source_the_pane_says_why(page, served, rows):
    open_page(page, served("plain"), row=0)
    expect(page.get_by_test_id("nosource")).to_contain_text("Neither run has a source stack")
    at = next(i for i, row in enumerate(rows) if row.target.key.role == "parameter")
    open_page(page, served("guilty"), row=at)
    expect(page.get_by_test_id("nosource")).to_contain_text("no source line computes it")
    open_page(page, served("missing"), row=row_of(rows, "linear_9"))
    said = page.get_by_test_id("nosource")
    expect(said).to_contain_text("run is not available")
    expect(said).to_contain_text("blocks.1.attn.proj")


def test_a_fused_op_has_all_its_lines_and_its_pieces_are_links(page, served, comparisons):
    rows = load(comparisons / "fused.cmp").rows
    at = next(n for n, row in enumerate(rows) if row.introduced and len(row.introduced.region) > 1
              and row.target.key.op.op == "layer_norm_6")  # fmt: skip
    open_page(page, served("fused"), row=at)
    lines = [line_of("return x + self.mlp"), line_of("self.norm(x).mean")]
    expect(chosen(page)).to_have_count(2)
    text = Path(vit.__file__).read_text().splitlines()
    assert chosen(page).all_inner_texts() == [text[line - 1] for line in lines]
    region = page.get_by_test_id("region")
    expect(region).to_contain_text("2 reference ops together: add_6, layer_norm_6")
    region.get_by_role("button", name="add_6").click()
    expect(page.locator("#crumb")).to_contain_text(f"vit.py:{lines[0]}")
    assert f"row={at}" in page.url, "it has no sync point of its own"
    expect(region.get_by_role("button", name="add_6")).to_have_attribute("aria-current", "true")
