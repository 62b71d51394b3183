"""The inspector in a real browser: whose fault, and the very values of the runs."""

import os
import re
import shutil

import numpy as np
import pytest
from playwright.sync_api import expect

from helpers.browser_server import open_page, start, stop
from syncpoint.comparison.storage.comparison_folder import load
from syncpoint.run.reader import Run


@pytest.fixture(scope="module")
def guilty(comparisons):
    """Rows of the comparison, and the values of both runs by the name of an op."""
    rows = load(comparisons / "guilty.cmp").rows
    runs = {side: Run.open(comparisons / f"{side}.run") for side in ("target", "reference")}

    class Known:
        def row(self, name, role="output"):
            return next(
                at
                for at, row in enumerate(rows)
                if row.target.key.op.op == name and row.target.key.role == role
            )

        def values(self, side, name):
            row = rows[self.row(name)]
            run = runs[side]
            return np.asarray(run.values(run.tensor(getattr(row, side).key)), np.float64)

    return Known()


def shown(page, what):
    """A number of a caption."""
    text = page.get_by_test_id(f"value-{what}").inner_text()
    if "∞" in text or "NaN" in text:
        return {"−∞": -np.inf, "+∞": np.inf}.get(text, np.nan)
    return float(text.replace("−", "-").replace("+", ""))


def cursor(page):
    text = page.get_by_test_id("readout").locator("b").inner_text()
    return tuple(int(part) for part in re.findall(r"\d+", text))


def check_captions(page, known, name):
    """What the captions say is what the runs hold at the cursor."""
    index = cursor(page)
    t, r = (known.values(side, name)[index] for side in ("target", "reference"))
    assert shown(page, "reference") == pytest.approx(r, rel=1e-3)
    assert shown(page, "target") == pytest.approx(t, rel=1e-3)
    assert shown(page, "difference") == pytest.approx(t - r, rel=1e-3)
    return index


def pick(page, served, known, name, kind="guilty", **more):
    open_page(page, served(kind), row=known.row(name), sort="operation", **more)
    page.get_by_test_id("fault").wait_for()


def test_the_guilty_op_is_told_in_words_bars_and_metrics(page, served, guilty):
    pick(page, served, guilty, "linear_9")
    fault = page.get_by_test_id("fault")
    expect(fault).to_contain_text("The error is made here. Inputs are close (")
    expect(fault).to_contain_text("what float16 allows")
    expect(page.get_by_test_id("bars").locator("svg")).to_have_attribute(
        "aria-label", re.compile("introduced")
    )
    expect(page.locator("tr[data-metric=psnr] svg")).to_have_attribute("aria-label", "large")
    expect(page.get_by_test_id("place")).to_have_text(re.compile(r"\d+ of \d+"))
    more = page.get_by_role("button", name=re.compile(r"^\d+ more$")).first
    before = page.locator("[data-testid=metrics] tr").count()
    more.click()
    assert page.locator("[data-testid=metrics] tr").count() > before + 25


def test_a_damaged_op_leads_to_the_guilty_one(page, served, guilty):
    pick(page, served, guilty, "layer_norm_3")
    fault = page.get_by_test_id("fault")
    expect(fault).to_contain_text("Damaged, not guilty.")
    expect(fault).to_contain_text("It came in from linear_9, 2 sync points before.")
    fault.get_by_role("button", name="linear_9").click()
    expect(fault).to_contain_text("The error is made here.")
    page.get_by_role("button", name="Findings", exact=True).click()
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    assert "row=" not in page.url


def test_values_under_the_cursor_are_those_of_the_runs(page, served, guilty):
    pick(page, served, guilty, "linear_9")
    page.get_by_test_id("readout").wait_for()
    first = check_captions(page, guilty, "linear_9")
    off = np.abs(guilty.values("target", "linear_9") - guilty.values("reference", "linear_9"))
    assert off[first] == off.max()
    canvas = page.get_by_role("img", name=re.compile("^Difference"))
    canvas.hover(position={"x": 20, "y": 30})
    moved = check_captions(page, guilty, "linear_9")
    assert moved != first


def test_slices_move_by_slider_and_keys_and_stay_in_the_address(page, served, guilty):
    pick(page, served, guilty, "linear_9")
    slider = page.get_by_label("index along axis 0")
    start = int(slider.input_value())
    page.keyboard.press("[" if start else "]")
    expect(slider).to_have_value(str(1 - start))
    expect(page.get_by_test_id("readout").locator("b")).to_contain_text(f"[{1 - start},")
    assert check_captions(page, guilty, "linear_9")[0] == 1 - start
    assert "slice=" in page.url
    page.reload()
    expect(slider).to_have_value(str(1 - start))
    page.get_by_label("axis shown as rows").select_option(label="axis 0")
    expect(page.get_by_label("index along axis 1")).to_be_visible()
    check_captions(page, guilty, "linear_9")


def test_dragging_zooms_into_a_window(page, served, guilty):
    pick(page, served, guilty, "linear_9")
    canvas = page.get_by_role("img", name=re.compile("^Target"))
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 40, steps=3)
    page.mouse.up()
    whole = page.get_by_role("button", name="whole plane")
    expect(whole).to_be_visible()
    assert re.search(r"slice=.*w", page.url)
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    check_captions(page, guilty, "linear_9")
    whole.click()
    expect(whole).to_have_count(0)


def test_a_worst_element_is_shown_in_the_tensors(page, served, guilty):
    pick(page, served, guilty, "linear_9")
    last = page.get_by_test_id("worst").get_by_role("button").last
    wanted = tuple(int(part) for part in re.findall(r"\d+", last.inner_text()))
    last.click()
    expect(page.get_by_test_id("readout").locator("b")).to_have_text(
        f"[{', '.join(map(str, wanted))}]"
    )
    assert check_captions(page, guilty, "linear_9") == wanted


def test_values_that_are_not_finite_are_marked(page, served, guilty):
    pick(page, served, guilty, "log")
    expect(page.get_by_test_id("fault")).to_contain_text(
        "The first non-finite values are made here."
    )
    expect(page.locator(".read .bad")).to_contain_text("NaN or infinite")
    assert shown(page, "target") == guilty.values("target", "log")[cursor(page)] == -np.inf
    expect(page.locator("tr[data-metric=mismatched] svg")).to_have_attribute("aria-label", "large")
    expect(page.get_by_test_id("worst")).to_contain_text("−∞")


def test_statistics_are_shown_where_they_are_all_there_is(page, served, guilty):
    pick(page, served, guilty, "linear_9", "statistics")
    values = guilty.values("reference", "linear_9")
    table = page.get_by_test_id("statistics")
    expect(table).to_contain_text("max")
    found = float(table.locator("tr", has_text="max").locator("td").nth(1).inner_text())
    assert found == pytest.approx(values.max(), rel=1e-3)
    expect(page.locator(".insp")).to_contain_text(
        "Statistics can prove a difference but not equality."
    )
    expect(page.locator(".insp canvas")).to_have_count(0)


def test_digests_say_whether_bytes_are_equal(page, served):
    open_page(page, served("digest"), row=0, sort="operation")
    expect(page.get_by_test_id("digest")).to_contain_text("The bytes of both sides are equal.")
    expect(page.locator(".insp")).to_contain_text("xxh3-128")


def test_without_the_runs_measurements_stay(page, served, guilty):
    pick(page, served, guilty, "linear_9", "missing")
    expect(page.get_by_test_id("missing")).to_contain_text("no such file: target.run in")
    expect(page.locator("tr[data-metric=psnr]")).to_contain_text("dB")
    expect(page.get_by_test_id("errors").locator("svg")).to_be_visible()
    expect(page.locator(".insp canvas")).to_have_count(0)


def test_values_that_cannot_be_read_are_not_called_not_finite(page, comparisons, tmp_path, guilty):
    for name in ("guilty.cmp", "target.run", "reference.run"):
        shutil.copytree(comparisons / name, tmp_path / name)
    for file in (tmp_path / "target.run").glob("*.safetensors"):
        os.truncate(file, file.stat().st_size // 3)
    served = start("view", str(tmp_path / "guilty.cmp"))
    try:
        open_page(page, served, row=guilty.row("linear_9"))
        expect(page.locator(".insp").get_by_role("alert")).to_contain_text("record it again")
        expect(page.get_by_test_id("values")).to_contain_text("The values cannot be read.")
        expect(page.locator("tr[data-metric=psnr]")).to_contain_text("dB")
    finally:
        stop(served)


def test_previous_and_next_step_through_the_list(page, served, guilty):
    pick(page, served, guilty, "linear_9")
    place = page.get_by_test_id("place")
    before = int(place.inner_text().split()[0])
    page.get_by_role("button", name="Next sync point").click()
    expect(place).to_have_text(re.compile(f"^{before + 1} of"))
    page.get_by_role("button", name="Previous sync point").click()
    expect(place).to_have_text(re.compile(f"^{before} of"))
