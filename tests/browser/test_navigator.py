"""The navigator in a real browser: what is shown, in which order, and what the keys do."""

import re

import pytest
from playwright.sync_api import expect

from helpers import browser_server
from helpers.browser_server import open_page

KINDS = ("guilty", "clean", "statistics", "digest", "missing", "plain", "fused")


def names(page) -> list[str]:
    return page.locator(".row .a > .cut").all_inner_texts()


def scores(page) -> list[float]:
    texts = page.locator(".row .score").all_inner_texts()
    found = [re.match(r"[−\d.]+", text.strip()) for text in texts]
    return [float(one[0].replace("−", "-")) for one in found if one and one[0] != "−"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_comparison_opens_with_its_rows_and_its_sentence(page, served, kind):
    open_page(page, served(kind))
    expect(page.locator(".hero .big")).not_to_be_empty()
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    shown = page.locator(".cell.verdict b").inner_text()
    assert shown == ("close" if kind == "clean" else "large")


def test_the_guilty_op_and_its_followers_are_told_apart(page, served):
    open_page(page, served("guilty"), text="linear_9")
    row = page.locator(".row", has_text="linear_9")
    expect(row).to_have_class(re.compile("guilty"))
    expect(row.locator(".tag.guilty")).to_have_text("guilty")
    expect(row.locator("svg.g")).to_have_attribute("aria-label", "large")
    page.locator("#filter").fill("add_4")
    row = page.locator(".row", has_text="add_4")
    expect(row).to_have_class(re.compile("inh"))
    expect(row.locator("svg.g")).to_have_attribute("aria-label", re.compile("inherited"))


def test_another_metric_changes_order_and_scores(page, served):
    open_page(page, served("guilty"))
    before, score = names(page), page.locator(".row .score").nth(8)
    shown = score.inner_text()
    page.keyboard.press("m")
    expect(page.locator("#metric")).to_have_value("sqnr")
    expect(score).not_to_have_text(shown)
    shown = score.inner_text()
    page.select_option("#metric", "max_abs")
    expect(score).not_to_have_text(shown)
    assert names(page) != before
    assert "metric=max_abs" in page.url
    finite = scores(page)[5:12]
    assert finite == sorted(finite, reverse=True)


def test_dots_follow_the_chosen_metric(page, served):
    """By the share of equal elements nothing of an f16 run is close; by psnr most of it is."""
    open_page(page, served("guilty"), sort="operation")
    close = page.get_by_role("button", name=re.compile("^close: "))
    psnr = close.inner_text()
    page.select_option("#metric", "max_rel")
    page.wait_for_timeout(300)
    page.select_option("#metric", "psnr")
    expect(close).to_have_text(psnr)


def test_sorting_goes_both_ways(page, served):
    open_page(page, served("guilty"))
    similarity = page.get_by_role("button", name=re.compile("Similarity"))
    first = scores(page)[4:20]
    assert first == sorted(first)
    similarity.click()
    expect(page.locator(".row").first.locator("svg.g")).not_to_have_attribute("aria-label", "large")
    assert "descending=1" in page.url
    page.get_by_role("button", name="Operation").click()
    expect(page.locator(".row .a").first).to_contain_text("image")
    assert names(page)[1:4] == ["conv2d", "relu", "conv2d_1"]


def test_filters_by_text_type_and_verdict_add_up_and_can_be_cleared(page, served):
    open_page(page, served("guilty"))
    matching = page.get_by_test_id("matching")
    everything = matching.inner_text()
    page.keyboard.press("/")
    page.keyboard.type("blocks.1")
    expect(matching).not_to_have_text(everything)
    page.get_by_label("Op type").select_option("aten.linear.default")
    expect(matching).to_have_text("6")
    page.get_by_role("button", name=re.compile("^large: ")).click()
    expect(matching).to_have_text("1")
    page.get_by_role("button", name=re.compile("^moderate: ")).click()
    page.get_by_role("button", name=re.compile("^large: ")).click()
    expect(page.get_by_text("No sync point matches.")).to_be_visible()
    page.get_by_role("button", name="Clear filter").click()
    expect(matching).to_have_text(everything)


def test_arrow_keys_step_and_every_pane_follows(page, served):
    open_page(page, served("guilty"), sort="operation")
    page.keyboard.press("ArrowDown")
    expect(page.locator("[aria-selected=true]").first).to_contain_text("image")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("conv2d")
    expect(page.get_by_role("complementary", name="Inspector")).to_be_visible()
    assert re.search(r"row=\d+", page.url)
    page.keyboard.press("ArrowUp")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("image")
    page.keyboard.press("Escape")
    expect(page.locator(".row[aria-selected=true]")).to_have_count(0)
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()


@pytest.mark.parametrize("key", ["ArrowDown", "Enter"])
def test_from_the_filter_a_key_leads_to_the_first_row_that_it_leaves(page, served, key):
    open_page(page, served("guilty"), sort="operation")
    page.keyboard.press("g")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("linear_9")
    page.keyboard.press("/")
    page.keyboard.type("gelu")
    page.keyboard.press(key)
    chosen = page.locator(".row[aria-selected=true] .a > .cut")
    expect(chosen).to_have_text("gelu")
    expect(page.get_by_role("tree", name="Sync points")).to_be_focused()
    expect(page.locator("#filter")).to_have_value("gelu")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_have_text("gelu_1")


def test_escape_clears_brush_filters_and_selection_one_after_the_other(page, served):
    open_page(page, served("guilty"), sort="operation", row=47, module="blocks.1", brush="20-60")
    matching, chosen = page.get_by_test_id("matching"), page.locator(".row[aria-selected=true]")
    expect(chosen).to_contain_text("linear_9")
    before = int(matching.inner_text())
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=re.compile("^ops "))).to_have_count(0)
    expect(page.get_by_role("button", name="in blocks.1 ×")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="in blocks.1 ×")).to_have_count(0)
    expect(matching).not_to_have_text(str(before))
    assert "module" not in page.url and "row=47" in page.url
    expect(chosen).to_contain_text("linear_9")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()


def test_g_goes_from_one_guilty_op_to_the_next(page, served):
    open_page(page, served("guilty"))
    page.keyboard.press("g")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("linear_9")
    page.keyboard.press("g")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("log")
    page.keyboard.press("g")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("linear_9")


def test_g_visits_an_op_without_counterpart_where_nan_begins(page, tmp_path):
    """A softmax that is written out overflows in its exp, which the reference does not have."""
    import torch

    import syncpoint as sp
    from helpers import browser_server

    class Net(torch.nn.Module):
        def __init__(self, written):
            super().__init__()
            self.written = written

        def forward(self, x):
            x = torch.relu(x * 40)
            if not self.written:
                return torch.softmax(x, -1) * 2
            powers = torch.exp(x)
            return powers / powers.sum(-1, keepdim=True) * 2

    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    half = {"dtype": "f16"}
    sp.compare(Net(True), Net(False), inputs=(x,), target_options=half, out=tmp_path / "exp.cmp")
    own = browser_server.start("view", str(tmp_path / "exp.cmp"))
    try:
        open_page(page, own)
        page.wait_for_load_state("networkidle")
        page.keyboard.press("g")
        said = page.get_by_test_id("alone")
        expect(said).to_contain_text("no counterpart")
        expect(said).to_contain_text("exp overflows float16")
        page.keyboard.press("g")
        chosen = page.locator(".row[aria-selected=true]")
        expect(chosen).to_contain_text("mul_1")
        page.keyboard.press("g")
        expect(said).to_contain_text("exp overflows float16")
        expect(chosen).to_have_count(0)
    finally:
        browser_server.stop(own)


def test_groups_roll_up_the_worst_and_open_and_close(page, served):
    open_page(page, served("guilty"), sort="operation")
    page.get_by_label("Group by module").click()
    groups = page.locator(".list .grp")
    expect(groups.first).to_contain_text("inputs")
    block = groups.filter(has_text="blocks.1")
    expect(block.locator("svg.g")).to_have_attribute("aria-label", "large")
    expect(groups.filter(has_text="blocks.0").locator("svg.g")).to_have_attribute(
        "aria-label", "close"
    )
    block.click()
    expect(block).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".row").first).to_contain_text("layer_norm_2")
    page.keyboard.press("ArrowLeft")
    expect(block).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("g")
    expect(page.locator(".row[aria-selected=true]")).to_contain_text("linear_9")


def test_grouping_opens_the_group_of_what_is_selected_and_scrolls_to_it(page, served):
    page.set_viewport_size({"width": 1440, "height": 600})
    open_page(page, served("guilty"), sort="operation", row=47)
    page.get_by_label("Group by module").click()
    block = page.locator(".list .grp[aria-expanded=true]")
    chosen = page.locator(".row[aria-selected=true]")
    expect(chosen).to_contain_text("linear_9")
    expect(chosen).to_be_in_viewport()
    page.wait_for_url(re.compile("open=blocks.1"))
    # Closed by hand it stays so.
    page.locator(".list").evaluate("list => list.scrollTop = 0")
    block.filter(has_text="blocks.1").click()
    expect(block).to_have_count(0)


def test_a_key_held_down_ends_where_the_address_says(page, served):
    """Browsers drop what is written to the address too often."""
    open_page(page, served("guilty"), sort="operation")
    page.evaluate(
        """() => {
            const list = document.querySelector('.list');
            const key = name => list.dispatchEvent(new KeyboardEvent('keydown', {
                key: name, bubbles: true }));
            for (let at = 0; at < 400; at++) key(at % 2 ? 'ArrowUp' : 'ArrowDown');
            for (let at = 0; at < 7; at++) key('ArrowDown');
        }"""
    )
    chosen = page.locator(".row[aria-selected=true]")
    expect(chosen).to_be_visible()
    row = chosen.get_attribute("data-row")
    page.wait_for_url(re.compile(rf"#row={row}&"))
    page.reload()
    expect(chosen).to_have_attribute("data-row", row)


def test_steps_while_the_list_is_on_its_way_are_taken_in_the_new_one(page, served):
    open_page(page, served("guilty"), sort="operation")
    rows = page.locator(".list .row")
    page.locator(".list").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".row[aria-selected=true]")).to_be_visible()
    first = rows.first.get_attribute("data-row")

    page.evaluate(
        """() => {
            const plain = window.fetch;
            window.fetch = async (...asked) => {
                if (String(asked[0]).includes('/rows')) await new Promise(r => setTimeout(r, 400));
                return plain(...asked);
            };
        }"""
    )
    page.get_by_role("button", name=re.compile("^Operation")).click()
    page.locator(".list").focus()
    page.keyboard.press("ArrowUp")
    # In the turned order the first op is the last line, and the one above it the second op.
    second = page.evaluate(
        """async () => {
            const at = location.pathname.replace('/c/', '/api/comparisons/');
            const answer = await fetch(`${at}/rows?sort=operation&limit=2`);
            return String((await answer.json()).items[1].row);
        }"""
    )
    chosen = page.locator(".row[aria-selected=true]")
    expect(chosen).to_have_attribute("data-row", second)
    assert first != second


def test_the_address_holds_what_is_seen(page, served, context):
    open_page(page, served("guilty"), sort="operation", text="linear")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.locator(".row[aria-selected=true] .a > .cut").inner_text()
    page.reload()
    expect(page.locator(".row[aria-selected=true] .a > .cut")).to_have_text(chosen)
    expect(page.locator("#filter")).to_have_value("linear")
    other = context.new_page()
    # The token is in a cookie by now: a second tab needs only the address without it.
    other.goto(re.sub(r"\?token=[^#]*", "", page.url))
    expect(other.locator(".row[aria-selected=true] .a > .cut")).to_have_text(chosen)


def test_unmatched_tensors_are_listed_with_their_reason(page, served):
    open_page(page, served("plain"))
    page.get_by_role("button", name=re.compile("Unmatched")).click()
    expect(page.locator(".unr").first).to_contain_text("extra")
    expect(page.locator(".unr .chip").first).to_have_text("no counterpart")


@pytest.mark.parametrize("op", ["mul", "reorder"])
def test_an_unmatched_tensor_that_is_clicked_says_why(page, served, op):
    open_page(page, served("fused"), row=0)
    page.get_by_role("button", name=re.compile("^Unmatched")).click()
    line = page.locator(".unr", has=page.get_by_text(re.compile(rf"^{op}( reference)?\s*$")))
    line.first.click()
    expect(line.first).to_have_attribute("aria-pressed", "true")
    said = page.get_by_test_id("alone")
    expect(said).to_contain_text("no counterpart")
    expect(said).to_contain_text("No verdict.")
    words = page.locator("#structure-words")
    if op == "mul":
        # It was folded into another op, which the graphs bring into view.
        expect(said).to_contain_text("Folded into matmul")
        expect(words).to_have_text("mul of the reference: no counterpart")
        page.wait_for_function(
            "() => document.querySelector('.structure canvas').shown()"
            ".some(one => one.selected && one.name === 'matmul')"
        )
    else:
        expect(said).to_contain_text("It does not count against coverage.")
        expect(words).to_contain_text("has no op in the graphs")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    expect(words).to_have_text("")


@pytest.mark.parametrize("width", [1280, 1440])
@pytest.mark.parametrize("metric", ["psnr", "cosine", "max_abs"])
def test_no_score_is_cut_off(page, served, metric, width):
    page.set_viewport_size({"width": width, "height": 800})
    open_page(page, served("guilty"), metric=metric)
    rows = page.locator(".list .row[data-row]")
    expect(rows.first).to_be_visible()
    outside = """rows => rows.filter(row => {
        const text = document.createRange();
        text.selectNodeContents(row.querySelector('.score'));
        return text.getBoundingClientRect().right > row.getBoundingClientRect().right;
    }).map(row => row.innerText)"""
    assert rows.evaluate_all(outside) == []


def test_names_that_do_not_fit_lose_their_beginning(page, served):
    page.set_viewport_size({"width": 1280, "height": 800})
    open_page(page, served("guilty"), metric="cosine")
    name = page.locator(".row .a .start", has_text="blocks.1.attn.proj.bias").first
    # The end of the text is inside of its box, its beginning is not.
    left, right = name.evaluate(
        """box => {
            const [a, b] = [box, box.firstElementChild].map(one => one.getBoundingClientRect());
            return [b.left - a.left, b.right - a.right];
        }"""
    )
    assert left < 0
    assert abs(right) < 1


def test_another_preset_judges_again(page, served):
    open_page(page, served("guilty"))
    before = page.get_by_role("button", name=re.compile("^close: ")).inner_text()
    page.select_option("#preset", "f32")
    expect(page.get_by_role("button", name=re.compile("^close: "))).not_to_have_text(before)
    assert "limits=f32" in page.url


def test_what_is_on_screen_stays_when_the_server_is_gone(page, comparisons):

    own = browser_server.start("view", str(comparisons / "clean.cmp"))
    try:
        open_page(page, own)
        shown = names(page)
    finally:
        browser_server.stop(own)
    page.keyboard.press("m")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    left = names(page)
    # The list is as much shorter as the notice is high.
    assert len(shown) - 4 <= len(left) <= len(shown) and left == shown[: len(left)]


def test_what_could_not_be_shown_is_there_once_the_server_answers_again(page, served):
    open_page(page, served("guilty"), sort="operation")
    asked = "**/api/**"
    page.route(asked, lambda route: route.abort())
    row = page.locator("[role=treeitem][data-row]").nth(4)
    row.click()
    source, inspector = (
        page.get_by_role("region", name="Source"),
        page.get_by_role("complementary", name="Inspector"),
    )
    for pane, said in ((source, "The source cannot"), (inspector, "This sync point cannot")):
        expect(pane).to_contain_text(said)
        expect(pane.get_by_role("button", name="Try now")).to_be_visible()
    expect(page.locator(".gone")).to_contain_text("does not answer")
    page.unroute(asked)
    source.get_by_role("button", name="Try now").click()
    expect(page.get_by_test_id("source")).to_be_visible()
    expect(inspector).to_contain_text(row.locator(".a .cut").inner_text())
    expect(page.locator(".gone")).to_have_count(0)


def test_where_nothing_is_paired_the_unmatched_are_listed(page, tmp_path):
    import numpy as np

    import syncpoint as sp

    x = np.ones((3, 4), np.float32)
    np.savez(tmp_path / "left.npz", alpha=x)
    np.savez(tmp_path / "right.npz", gamma=x[:2] * 5)
    sp.compare(tmp_path / "left.npz", tmp_path / "right.npz", out=tmp_path / "nothing.cmp")
    own = browser_server.start("view", str(tmp_path / "nothing.cmp"))
    try:
        page.goto(own.address)
        expect(page.locator(".listbox")).to_contain_text("No sync point")
        listed = page.get_by_label("Unmatched tensors")
        expect(listed).to_contain_text("alpha")
        expect(listed).to_contain_text("gamma")
        expect(page.get_by_role("region", name="Overview")).to_contain_text("found a partner")
    finally:
        browser_server.stop(own)


def test_groups_of_digests_say_whether_bytes_are_equal(page, served):
    open_page(page, served("digest"), sort="operation", grouped=1)
    score = page.locator(".list .grp", has_text="blocks.0").locator(".score")
    expect(score).to_have_text("=")
    expect(page.locator(".list .grp", has_text="blocks.2").locator(".score")).to_have_text("≠")


def test_names_are_text_and_never_markup(page, tmp_path):
    import numpy as np

    import syncpoint as sp

    evil = "<img src=x onerror=alert(1)>"
    x = np.ones((2, 2), np.float32)
    np.savez(tmp_path / "a.npz", **{evil: x, "</script><b>": x})
    np.savez(tmp_path / "b.npz", **{evil: x * 2, "</script><b>": x})
    sp.compare(tmp_path / "b.npz", tmp_path / "a.npz", out=tmp_path / "evil.cmp")
    own = browser_server.start("view", str(tmp_path / "evil.cmp"))
    try:
        dialogs = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        open_page(page, own)
        assert evil in names(page)
        page.locator(".row").first.click()
        page.wait_for_timeout(300)
        assert not dialogs
        assert page.locator("img").count() == 0
    finally:
        browser_server.stop(own)


def test_what_statistics_bound_is_shown_as_a_bound_worst_first(page, served):
    open_page(page, served("statistics"))
    texts = page.locator(".row .score").all_inner_texts()
    found = [float(t[1:].replace("−", "-")) for t in texts if t.startswith("≤")]
    assert len(found) > 5 and found == sorted(found)
    expect(page.locator(".drift .head")).to_contain_text("at most (statistics)")


def test_digests_are_told_apart_in_words(page, served):
    open_page(page, served("digest"))
    assert set(page.locator(".row .score").all_inner_texts()) == {"different bytes"}
    page.get_by_role("button", name=re.compile("^close")).click()
    expect(page.locator(".row .score", has_text="equal bytes").first).to_be_visible()


def test_it_says_what_the_counts_are_by(page, served):
    open_page(page, served("guilty"))
    said = page.get_by_test_id("counts-by")
    expect(said).to_have_text("counts by PSNR alone; the verdict above by all limits")
    page.locator("#metric").select_option("cosine")
    expect(said).to_contain_text("counts by Cosine")
    for metric in ("exact", "within_1e3"):
        page.locator("#metric").select_option(metric)
        title = page.locator(f"#metric option[value={metric}]").inner_text()
        expect(said).to_have_text(f"{title} has no limits: counts by the verdict")
    page.locator("#metric").select_option("max_abs")
    expect(said).to_contain_text("counts by Max Absolute Error alone")
    page.get_by_label("Group by module").click()
    expect(page.locator(".list .grp").first).to_be_visible()
    expect(said).to_contain_text("counts by Max Absolute Error alone")
    page.locator("#metric").select_option("max_rel")
    expect(said).to_contain_text("where it has limits, else by the verdict")


@pytest.mark.parametrize(
    ("role", "name"),
    [("model-input", "image"), ("model-output", "out[0]"), ("parameter", "proj.bias")],
)
def test_inputs_outputs_and_parameters_can_be_asked_for(page, served, role, name):
    open_page(page, served("guilty"))
    page.get_by_label("Op type").select_option(role)
    expect(page.locator(".row .a > .cut", has_text=name).first).to_be_visible()
    expect(page.locator(".row", has_text="linear_9 ")).to_have_count(0)


def test_without_a_session_there_are_no_other_comparisons_to_lead_to(page, served):
    open_page(page, served("guilty"))
    expect(page.locator(".brand")).to_contain_text("Syncpoint")
    expect(page.get_by_role("link", name="Syncpoint")).to_have_count(0)
    # A session may have had the same address before.
    page.evaluate("localStorage.setItem('syncpoint.session', '1')")
    page.reload()
    page.wait_for_function("() => localStorage.getItem('syncpoint.session') === '0'")
    expect(page.get_by_role("link", name="Syncpoint")).to_have_count(0)
