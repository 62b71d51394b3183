"""The list of sync points, whatever the comparison is like: its order, its dots, its filters.

Each test runs on values that are not finite, on ops without partner, without source, on statistics
and without the runs; what must be shown is read from the files of the comparison.
"""

import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from helpers.page_actions import check_group_toggle, check_module_filter, check_type_filter

METRICS = ("psnr", "max_abs", "cosine")


def test_it_opens_with_a_sentence_and_its_sync_points(looked):
    page = looked.go()
    looked.lists(looked.known.similarity("psnr"))
    expect(page.locator(".hero .big")).not_to_be_empty()
    expect(page.locator(".cell.verdict b")).to_have_text(looked.known.about["verdict"])
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    looked.nothing_blank()


def test_another_metric_changes_dots_and_order(looked):
    page, known = looked.go(), looked.known
    orders, dots = set(), set()
    for metric in METRICS:
        page.select_option("#metric", metric)
        rows = known.similarity(metric)
        looked.lists(rows, metric)
        orders.add(tuple(rows))
        dots.add(tuple(known.dot(row, metric) for row in known.execution))
    assert len(orders) > 1
    if looked.kind == "statistics":
        # Statistics give one verdict, whatever the metric; the page says that it has no value.
        assert len(dots) == 1
        expect(page.locator(".drift .none")).to_contain_text("No sync point has a value of")
    else:
        assert len(dots) > 1


def test_sorting_goes_both_ways(looked):
    page, known = looked.go(), looked.known
    looked.lists(known.similarity("psnr"))
    page.get_by_role("button", name=re.compile("^Similarity")).click()
    looked.lists(known.similarity("psnr")[::-1])
    page.get_by_role("button", name=re.compile("^Operation")).click()
    looked.lists(known.execution)
    page.get_by_role("button", name=re.compile("^Operation")).click()
    looked.lists(known.execution[::-1])


def test_text_filters(looked):
    text = {"sourceless": "OP1"}.get(looked.kind, "Blocks.1")
    page, found = looked.go(sort="operation"), looked.known.having(text)
    assert 0 < len(found) < len(looked.known.rows)
    page.locator("#filter").fill(text)
    looked.lists([row for row in looked.known.execution if row in found])
    page.locator("#filter").fill("no such op")
    expect(page.get_by_text("No sync point matches.")).to_be_visible()
    expect(page.locator(".empty.over")).to_contain_text(f"{len(looked.known.rows)} are hidden")
    page.get_by_role("button", name="Clear filter").click()
    looked.lists(looked.known.execution)


def test_types_filter(looked):
    check_type_filter(looked)


def test_modules_filter(looked):
    check_module_filter(looked)


@pytest.mark.parametrize("metric", ["psnr", "cosine"])
def test_verdicts_filter(looked, metric):
    page, known = looked.go(sort="operation", metric=metric), looked.known
    names = Counter(known.name(row, metric) for row in known.execution)
    looked.lists(known.execution, metric)
    words = {"none": "no verdict"}
    for name in ("large", "moderate", "inherited", "close", "none"):
        chip = page.get_by_role("button", name=re.compile(f"^{words.get(name, name)}: "))
        expect(chip).to_have_text(str(names[name]))
        chip.click()
        wanted = [row for row in known.execution if known.name(row, metric) == name]
        if wanted:
            looked.lists(wanted, metric)
        else:
            expect(page.get_by_text("No sync point matches.")).to_be_visible()
        chip.click()
    looked.lists(known.execution, metric)


def test_arrow_keys_step(looked):
    page, known = looked.go(sort="operation"), looked.known
    looked.lists(known.execution)
    page.locator(".list").focus()
    for row in known.execution[:6]:
        page.keyboard.press("ArrowDown")
        looked.chosen(row)
        expect(page.locator(".row[aria-selected=true]")).to_have_attribute("data-row", str(row))
    page.keyboard.press("ArrowUp")
    looked.chosen(known.execution[4])
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    assert looked.selected() is None


def test_a_group_opens_and_closes(looked):
    check_group_toggle(looked)


def test_what_stayed_alone_is_listed_with_its_reason(looked):
    page, alone = looked.go(), looked.known.about["unmatched"]
    button = page.get_by_role("button", name=re.compile("^Unmatched"))
    if not alone:
        expect(button).to_contain_text("none")
        expect(button).to_be_disabled()
        return
    counted = [sum(one["side"] == side for one in alone) for side in ("target", "reference")]
    assert looked.kind == "unmatched" or sum(counted)
    button.click()
    listed = page.locator(".unr:not(.dim)")
    expect(listed).to_have_count(min(len(alone), 200))
    said = {one["op"]: one["reason"] for one in alone}
    for line in listed.all()[:10]:
        op, reason = line.locator(".cut").inner_text(), line.locator(".chip").inner_text()
        assert said[op.split()[0]] == reason
    button.click()
