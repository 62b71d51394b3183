"""The address of a comparison, and where Back leads in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from helpers.browser_server import open_page
from helpers.session_server import Server, write_dumps

PAUSE = 900
"""Milliseconds after which a choice is one of its own."""


def chosen(page):
    return page.locator(".row[aria-selected=true] .a > .cut")


def entries(page) -> int:
    return page.evaluate("history.length")


def test_back_leads_to_the_op_looked_at_before_with_the_filters_of_then(page, served):
    open_page(page, served("guilty"), sort="operation")
    rows = page.locator(".list .row[data-row]")
    rows.nth(2).click()
    expect(chosen(page)).to_have_text("relu")
    page.locator("#filter").fill("gelu")
    expect(rows.first).to_contain_text("gelu")
    page.wait_for_timeout(PAUSE)
    rows.first.click()
    expect(chosen(page)).to_have_text("gelu")
    page.locator("#filter").fill("linear")
    page.wait_for_url(re.compile("text=linear"))

    page.go_back()
    expect(page.locator("#filter")).to_have_value("gelu")
    expect(page.get_by_role("complementary", name="Inspector")).to_contain_text("relu")
    page.go_back()
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    expect(page.locator("#filter")).to_have_value("")
    page.go_forward()
    page.go_forward()
    expect(page.locator("#filter")).to_have_value("linear")
    expect(page.get_by_role("complementary", name="Inspector")).to_contain_text("gelu")


def test_after_back_the_next_choice_is_an_entry_again(page, served):
    open_page(page, served("guilty"), sort="operation", row=0)
    rows = page.locator(".list .row[data-row]")
    rows.nth(2).click()
    expect(chosen(page)).to_have_text("relu")
    page.go_back()
    expect(chosen(page)).to_have_text("conv2d")
    rows.first.click()
    expect(chosen(page)).to_have_text("image")
    page.go_back()
    expect(chosen(page)).to_have_text("conv2d")


def test_back_leads_out_of_the_findings_again(page, served):
    open_page(page, served("guilty"), sort="operation", row=0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    page.go_back()
    expect(chosen(page)).to_have_text("conv2d")


def test_a_key_held_down_is_one_entry(page, served):
    open_page(page, served("guilty"), sort="operation", row=0)
    before = entries(page)
    page.locator(".list").focus()
    for _ in range(12):
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(100)
    expect(chosen(page)).not_to_have_text("conv2d")
    assert entries(page) == before + 1
    page.go_back()
    expect(chosen(page)).to_have_text("conv2d")


def test_filters_metrics_and_slices_are_no_entries(page, served):
    open_page(page, served("guilty"), sort="operation", row=47)
    before = entries(page)
    expect(page.get_by_test_id("readout")).to_be_visible()
    page.keyboard.press("]")
    page.wait_for_url(re.compile("slice="))
    page.keyboard.press("m")
    page.keyboard.press("/")
    page.keyboard.type("linear", delay=50)
    page.wait_for_url(re.compile("text=linear"))
    page.get_by_label("Group by module").click()
    page.wait_for_url(re.compile("grouped=1"))
    assert entries(page) == before


def test_an_unmatched_tensor_is_in_the_address(page, served):
    open_page(page, served("fused"), row=0)
    page.get_by_role("button", name=re.compile("^Unmatched")).click()
    line = page.locator(".unr", has=page.get_by_text(re.compile(r"^mul( reference)?\s*$"))).first
    line.click()
    said = page.get_by_test_id("alone")
    expect(said).to_contain_text("Folded into matmul")
    page.reload()
    expect(said).to_contain_text("Folded into matmul")
    expect(page.locator("#structure-words")).to_have_text("mul of the reference: no counterpart")
    page.wait_for_function(
        "() => document.querySelector('.structure canvas').shown()"
        ".some(one => one.selected && one.name === 'matmul')"
    )
    page.get_by_role("button", name=re.compile("^Unmatched")).click()
    expect(line).to_have_attribute("aria-pressed", "true")
    page.go_back()
    expect(chosen(page)).to_be_visible()
    expect(said).to_have_count(0)
    page.go_forward()
    expect(said).to_contain_text("Folded into matmul")
    page.keyboard.press("Escape")
    expect(said).to_have_count(0)
    page.wait_for_url(lambda url: "alone" not in url)


def test_a_tensor_that_is_not_there_is_dropped_from_the_address(page, served):
    open_page(page, served("fused"), alone="target+output+0+nowhere")
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    page.wait_for_url(lambda url: "alone" not in url)
    # The page that the browser began with, and this one.
    assert entries(page) == 2


@pytest.fixture
def session(tmp_path):
    write_dumps(tmp_path)
    made = Server(tmp_path)
    yield made
    made.stop()


def test_back_leads_from_the_first_op_to_the_session(page, session):
    page.goto(session.address)
    page.locator("#target-path").fill("target.npz")
    page.locator("#reference-path").fill("reference.npz")
    page.get_by_role("button", name="Compare", exact=False).last.click()
    page.wait_for_url(re.compile("/c/[0-9a-f]{12}"), timeout=60_000)
    rows = page.locator(".list .row[data-row]")
    rows.first.click()
    expect(page.get_by_role("complementary", name="Inspector")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("complementary", name="Findings")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("region", name="Configuration A")).to_be_visible()
    expect(page.locator("#target-path")).to_have_value("target.npz")
