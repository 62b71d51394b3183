"""What a person does on the page and must see: the same with a server and in a report file."""

import re
from collections import Counter
from pathlib import Path

from playwright.sync_api import expect

from helpers.page_checks import DRAWN

STRUCTURE = ".structure canvas"
SCROLL = """(scroller, line) => {
    const height = scroller.querySelector('.cm-line').getBoundingClientRect().height;
    scroller.scrollTop = (line - 4) * height;
}"""


def least_similar(known) -> int:
    """A computed sync point that is off, with a module where there are any."""
    rows = [at for at in known.similarity("psnr") if known.rows[at]["target_role"] == "output"]
    return next((at for at in rows if known.rows[at]["target_module"]), rows[0])


def check_type_filter(looked):
    page, known = looked.go(sort="operation"), looked.known
    offered = page.get_by_label("Op type").locator("option")
    types = Counter(row["target_type"] for row in known.rows)
    if looked.kind == "sourceless":
        # Dumps know no types: there is nothing to choose, and the choice says so.
        assert set(types) == {""}
        expect(offered).to_have_text(["All types"])
        return
    kind = max((one for one in types if one not in ("parameter", "model-input")), key=types.get)
    page.get_by_label("Op type").select_option(kind)
    looked.lists([row for row in known.execution if row in known.typed(kind)])
    page.get_by_label("Op type").select_option("")
    looked.lists(known.execution)


def check_module_filter(looked):
    page, known = looked.go(sort="operation"), looked.known
    if looked.kind == "sourceless":
        assert not any(row["target_module"] or row["reference_module"] for row in known.rows)
        page = looked.go(sort="operation", row=0)
        expect(page.get_by_test_id("nosource")).to_be_visible()
        expect(
            page.get_by_role("navigation", name="Module path").get_by_role("button")
        ).to_have_count(0)
        return
    inside = [row for row in known.execution if row in known.within("blocks.1.attn")]
    page = looked.go(sort="operation", row=inside[0])
    path = page.get_by_role("navigation", name="Module path")
    path.get_by_role("button", name="attn", exact=True).click()
    looked.lists(inside)
    page.get_by_role("button", name="in blocks.1.attn").click()
    expect(page.get_by_test_id("matching")).to_have_text(str(len(known.rows)))


def check_group_toggle(looked):
    page, known = looked.go(sort="operation", grouped=1), looked.known
    groups = page.locator(".list .grp")
    if looked.kind == "sourceless":
        group, inside = groups.filter(has_text="(top level)"), known.execution
    else:
        group, inside = groups.filter(has_text="stem"), known.within("stem")
    expect(group).to_have_attribute("aria-expanded", "false")
    group.click()
    expect(group).to_have_attribute("aria-expanded", "true")
    rows = page.locator(".list .row")
    expect(rows.first).to_have_attribute("data-row", str(inside[0]))
    group.click()
    expect(rows).to_have_count(0)


def check_module_in_both_graphs(looked):
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
        expect(page.locator(".structure .missing")).to_contain_text("Neither run is available")
    stem = drawn("target")["stem"]
    page.mouse.click(stem["x"], stem["y"])


def check_source_line_click(looked):
    known = looked.known
    at = least_similar(known)
    page = looked.go(row=at)
    if looked.kind in ("sourceless", "missing"):
        why = {"sourceless": "Neither run has a source stack", "missing": "is not available"}
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
