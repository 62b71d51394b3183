"""The report in one file: from file://, without network, with the same answers as the server."""

import json
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

import syncpoint as sp
from helpers.browser_server import settled
from syncpoint.page.html_report import collect_answers
from syncpoint.page.open_comparison import OpenComparison, comparison_id
from syncpoint.server.app import create_app
from syncpoint.server.comparison_library import Library

KINDS = ("guilty", "clean", "statistics", "digest", "missing", "plain", "fused")


@pytest.fixture(scope="module")
def reports(comparisons, tmp_path_factory):
    """Each comparison as one file."""
    folder = tmp_path_factory.mktemp("reports")
    for kind in KINDS:
        place = comparisons / ("elsewhere" if kind == "missing" else ".") / f"{kind}.cmp"
        sp.open_comparison(place).to_html(folder / f"{kind}.html")
    return folder


@pytest.fixture
def offline(page):
    """A page that may ask for nothing but the file itself."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)
    yield page
    outside = [url for url in asked if not url.startswith(("file://", "blob:", "data:"))]
    assert not outside, outside
    assert len([url for url in asked if url.startswith("file://")]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_it_opens_from_a_file_alone(offline, reports, kind):
    offline.goto(f"file://{reports}/{kind}.html")
    expect(offline.locator(".hero .big")).not_to_be_empty()
    expect(offline.locator("[role=treeitem]").first).to_be_visible()
    offline.keyboard.press("ArrowDown")
    expect(offline.get_by_role("complementary", name="Inspector")).to_be_visible()
    expect(offline.locator(".structure canvas")).to_be_visible()


def test_it_shows_the_guilty_op_with_its_tensors_and_its_line(offline, reports):
    offline.goto(f"file://{reports}/guilty.html")
    settled(offline)
    offline.keyboard.press("g")
    expect(offline.locator(".row[aria-selected=true]")).to_contain_text("linear_9")
    inspector = offline.get_by_role("complementary", name="Inspector")
    expect(inspector).to_contain_text("The error is made here")
    expect(inspector.locator("canvas").first).to_be_visible()
    expect(inspector).to_contain_text("Worst elements")
    expect(offline.get_by_text("return self.proj(x)").first).to_be_visible()


def test_it_is_small(reports):
    for kind in KINDS:
        assert (reports / f"{kind}.html").stat().st_size < 5_000_000


def test_another_metric_sorts_and_filters_without_a_server(offline, reports):
    offline.goto(f"file://{reports}/guilty.html")
    offline.locator("[role=treeitem]").first.wait_for()
    offline.select_option("#metric", "max_abs")
    offline.get_by_label("Group by module").click()
    offline.get_by_role("button", name=re.compile("Operation")).click()
    expect(offline.locator(".list .grp").first).to_contain_text("inputs")
    offline.locator("#filter").fill("blocks.2")
    expect(offline.locator(".list .grp")).to_have_count(2)


QUERIES = [
    {},
    {"sort": "operation"},
    {"metric": "max_abs", "descending": True},
    {"metric": "cosine", "text": "LINEAR"},
    {"levels": ["large", "inherited"]},
    {"levels": ["close"], "types": ["aten.linear.default"]},
    {"module": "blocks.1"},
    {"start": 5, "stop": 20, "sort": "operation"},
    {"grouped": True, "sort": "operation", "open": ["blocks.1"]},
    {"grouped": True, "metric": "rel_l2"},
]


@pytest.mark.parametrize("kind", ["guilty", "fused", "statistics"])
def test_its_answers_are_those_of_the_server(page, comparisons, reports, kind):
    """Asked the same, the report says what the server says."""
    path = comparisons / f"{kind}.cmp"
    client = TestClient(create_app(Library([path])))
    page.goto(f"file://{reports}/{kind}.html")
    page.locator("[role=treeitem]").first.wait_for()
    blank = {"metric": "psnr", "sort": "similarity", "descending": False, "text": "", "types": []}
    blank |= {"module": "", "levels": [], "start": 0, "stop": 0, "grouped": False, "open": []}
    for query in QUERIES:
        asked = {**blank, **query}
        params = {k: v for k, v in asked.items() if k not in ("types", "levels")}
        params |= {"type": asked["types"], "level": asked["levels"], "limit": 1000}
        answer = client.get(f"/api/comparisons/{comparison_id(path)}/rows", params=params).json()
        found = page.evaluate("query => syncpoint.source.rows(query, 0, 1000)", asked)
        assert rounded(found) == rounded(answer), query
        row = next((one["row"] for one in answer["items"] if one["kind"] == "row"), None)
        if row is not None:
            place = client.get(
                f"/api/comparisons/{comparison_id(path)}/rows/{row}/place", params=params
            ).json()
            assert page.evaluate("([q, r]) => syncpoint.source.place(q, r)", [asked, row]) == place


def rounded(value):
    """Scores in a report are single precision."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4e}") if isinstance(value, float | int) else value


def test_hostile_names_stay_inside_the_data(page, tmp_path):
    import numpy as np

    evil = "</script><script>alert(1)</script><!--"
    x = np.ones((2, 2), np.float32)
    np.savez(tmp_path / "a.npz", **{evil: x})
    np.savez(tmp_path / "b.npz", **{evil: x * 2})
    comparison = sp.compare(tmp_path / "b.npz", tmp_path / "a.npz")
    path = comparison.to_html(tmp_path / f"{evil.replace('/', '')}.html")
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    expect(page.locator(".row").first).to_contain_text(evil)
    page.wait_for_timeout(300)
    assert not dialogs


def test_every_number_of_the_comparison_is_in_it(comparisons):
    held = collect_answers(OpenComparison(comparisons / "guilty.cmp"))
    comparison = sp.open_comparison(comparisons / "guilty.cmp")
    json.dumps(held, allow_nan=False)
    assert len(held["details"]) == len(comparison.rows)
    for at, row in enumerate(comparison.rows):
        said = {one["id"]: one["value"] for one in held["details"][str(at)]["metrics"]}
        assert said["mae"] == pytest.approx(row.numbers["mae"])
    first = comparison.rows.index(comparison.first_divergence[0])
    assert str(first) in held["heatmaps"]


def test_a_notebook_shows_the_picture_first(comparisons):
    shown = sp.open_comparison(comparisons / "guilty.cmp")._repr_html_()
    assert shown.index("<svg") < shown.index("large:")
    assert "linear_9" in shown
    assert "<script" not in shown
    assert sp.open_comparison(comparisons / "clean.cmp")._repr_html_()
    assert sp.open_comparison(comparisons / "digest.cmp")._repr_html_()


def test_its_keys_are_those_that_work_in_it(offline, reports):
    offline.goto(f"file://{reports}/guilty.html")
    settled(offline)
    offline.keyboard.press("?")
    keys = offline.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("next guilty")
    expect(keys).not_to_contain_text("slice")


def test_a_name_that_hides_text_is_shown_escaped_and_found_as_it_is(offline, tmp_path):
    name = "u\u202eesolc\u200b"
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    np.savez(tmp_path / "t.npz", **{name: x})
    np.savez(tmp_path / "r.npz", **{name: -x})
    made = sp.compare(tmp_path / "t.npz", tmp_path / "r.npz", diagnose=False)
    made.to_html(tmp_path / "a.html")
    offline.goto((tmp_path / "a.html").as_uri())
    settled(offline)
    shown = offline.locator("body").inner_text()
    assert "u\\u202eesolc\\u200b" in shown
    assert "\u202e" not in shown and "\u200b" not in shown
