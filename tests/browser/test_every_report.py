"""Reports in one file: of every kind of comparison, and of a net of 500 ops."""

import re

import pytest
from playwright.sync_api import expect

import syncpoint as sp
from helpers.browser_server import settled
from helpers.comparison_oracle import Known
from helpers.page_actions import (
    check_group_toggle,
    check_module_filter,
    check_module_in_both_graphs,
    check_source_line_click,
    check_type_filter,
)
from helpers.page_checks import DRAWN, DRIFT, RUNS, Looked, check_cursor, known_of, row_with
from models import deep
from syncpoint.page.html_report import MAX_PREVIEWS, collect_answers
from syncpoint.page.open_comparison import OpenComparison

MOST = 5_000_000
HELD = """async () => {
    const held = document.getElementById('report-data').textContent.trim();
    const packed = Uint8Array.from(atob(held), letter => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
    return Object.keys((await new Response(stream).json()).heatmaps).map(Number);
}"""
"""The sync points whose tensors a report holds."""


def opened(page, path, known: Known, kind: str) -> Looked:
    """A report from its file, without network."""
    page.context.set_offline(True)
    looked = Looked(page, kind, known, path.as_uri())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    settled(page)
    looked.asked = asked
    return looked


def nothing_went_wrong(looked: Looked) -> None:
    assert looked.wrong == []
    assert [url for url in looked.asked if not url.startswith(("blob:", "data:"))] == [
        looked.address
    ]


@pytest.fixture(scope="module", params=list(RUNS))
def written(request, comparisons, tmp_path_factory):
    """What is known of one kind of comparison, and its report."""
    known = known_of(comparisons, request.param)
    folder = tmp_path_factory.mktemp("report")
    return request.param, known, sp.open_comparison(known.path).to_html(folder / "report.html")


@pytest.fixture
def report(written, page):
    """The report of one kind of comparison, looked at."""
    kind, known, path = written
    looked = opened(page, path, known, kind)
    yield looked
    nothing_went_wrong(looked)


def test_everything_can_be_done_in_a_report(report):
    page, known = report.page, report.known
    report.lists(known.similarity("psnr"))
    report.nothing_blank()
    page.select_option("#metric", "max_abs")
    report.lists(known.similarity("max_abs"), "max_abs")
    page.get_by_role("button", name=re.compile("^Similarity")).click()
    report.lists(known.similarity("max_abs")[::-1], "max_abs")
    page.get_by_role("button", name=re.compile("^Operation")).click()
    report.lists(known.execution, "max_abs")
    page.locator("#filter").fill("1")
    found = known.having("1")
    report.lists([row for row in known.execution if row in found], "max_abs")
    report.go(sort="operation")
    chip = page.get_by_role("button", name=re.compile("^close: "))
    chip.click()
    report.lists([row for row in known.execution if known.name(row, "psnr") == "close"])
    report.go(sort="operation")
    report.lists(known.execution)
    for row in known.execution[:3]:
        page.keyboard.press("ArrowDown")
        report.chosen(row)
    report.nothing_blank()
    page.keyboard.press("Escape")
    box = page.locator(DRIFT).bounding_box()
    across = [page.locator(DRIFT).evaluate("(c, at) => c.xOf(at)", at) for at in (2, 8)]
    page.mouse.move(across[0], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(across[1], box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    report.lists(known.drawn[2:9])


@pytest.mark.parametrize(
    "act",
    [
        check_type_filter,
        check_module_filter,
        check_group_toggle,
        check_module_in_both_graphs,
        check_source_line_click,
    ],
    ids=["types", "modules", "groups", "graphs", "source"],
)
def test_what_is_done_with_a_server_can_be_done_in_a_report(report, act):
    act(report)


def test_what_a_report_holds_of_tensors_and_source_is_right(report):
    page, known, kind = report.page, report.known, report.kind
    at = next(one for one in known.similarity("psnr") if known.rows[one]["target_role"] == "output")
    if kind in ("guilty", "fused", "sourceless"):
        at = row_with(known)
    report.go(row=at)
    expect(page.locator(".insp .pair b").first).to_have_text(known.rows[at]["target_op"])
    if kind in ("sourceless", "missing"):
        expect(page.get_by_test_id("nosource")).to_be_visible()
    else:
        expect(page.locator(".cm-line.sel")).to_be_visible()
    if kind in ("statistics", "missing"):
        expect(page.get_by_test_id("missing")).to_be_visible()
        expect(page.locator(".insp canvas")).to_have_count(0)
        return
    page.get_by_test_id("readout").wait_for()
    expect(page.get_by_test_id("one-slice")).to_contain_text("a report holds one")
    seen = {check_cursor(report, at)}
    picture = page.get_by_role("img", name=re.compile("^Target,"))
    picture.hover(position={"x": 20, "y": 30})
    page.evaluate(DRAWN)
    seen.add(check_cursor(report, at))
    assert len(seen) == 2


def test_tensors_that_are_not_in_the_report_are_named_with_the_cure(report):
    page, known = report.page, report.known
    held = page.evaluate(HELD)
    rest = [at for at, row in enumerate(known.rows) if at not in held and row["basis"] == "values"]
    if report.kind in ("statistics", "missing"):
        assert set(held) <= {at for at, row in enumerate(known.rows) if row["basis"] == "values"}
        return
    report.go(row=rest[0])
    said = page.get_by_test_id("tensors").get_by_role("alert")
    expect(said).to_contain_text("only those of the worst and the first that diverge")
    expect(said).to_contain_text("open the comparison with: syncpoint view")


# ---- a net of 500 ops ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deep")
    for name, net in (("target", deep.broken()), ("reference", deep.model())):
        sp.capture(net, (deep.inputs(),), out=folder / f"{name}.run", capture="dispatch")
    sp.compare(folder / "target.run", folder / "reference.run", out=folder / "deep.cmp")
    runs = {side: folder / f"{side}.run" for side in ("target", "reference")}
    path = sp.open_comparison(folder / "deep.cmp").to_html(folder / "deep.html")
    return Known(folder / "deep.cmp", runs), path


def test_500_ops_fit_into_five_million_bytes(large):
    known, path = large
    ops = {row["target_op"] for row in known.rows if row["target_role"] == "output"}
    assert len(ops) >= 500
    assert path.stat().st_size <= MOST
    held = collect_answers(OpenComparison(known.path))
    for metric in ("psnr", "max_abs", "cosine"):
        assert len(held["metrics"][metric]["states"]["levels"]) == len(known.rows)
    assert len(held["details"]) == len(known.rows)
    comparison = sp.open_comparison(known.path)
    first = comparison.rows.index(comparison.first_divergence[0])
    # Where the runs part comes first, and in full; the worst by far follow.
    assert first == known.row("addmm_41")
    assert held["heatmaps"][str(first)]["rows"] == deep.WIDTH
    worst = [str(at) for at in known.similarity("psnr")[: MAX_PREVIEWS // 2]]
    assert set(worst) <= set(held["heatmaps"])
    assert len(held["heatmaps"]) == len(held["distributions"]) == MAX_PREVIEWS
    for side in ("target", "reference"):
        assert held["graphs"][side]
        assert any("torch.sin(x)" in file["text"] for file in held["files"] if file["side"] == side)


def test_500_ops_are_looked_at_from_a_file(page, large):
    known, path = large
    looked = opened(page, path, known, "deep")
    looked.lists(known.similarity("psnr"))
    page.keyboard.press("g")
    looked.chosen(known.row("addmm_41"))
    check_cursor(looked, known.row("addmm_41"))
    expect(page.locator(".cm-line.sel")).to_contain_text("self.down(y * x)")
    # One of the coarser pictures: each cell shows one element of its patch, and says which.
    held = collect_answers(OpenComparison(known.path))["heatmaps"]
    coarse = next(int(row) for row, one in held.items() if one["patch"] == [2, 2])
    looked.go(row=coarse)
    expect(page.get_by_test_id("readout")).to_contain_text("2 × 2 a cell, its worst shown")
    check_cursor(looked, coarse)
    nothing_went_wrong(looked)
