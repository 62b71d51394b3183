"""A session as a person has it: a real server, a real browser, real models."""

import re
from contextlib import chdir

import numpy as np
import pytest
from playwright.sync_api import expect

from helpers.session_server import Server, gone, write_dumps, write_models

SLOW = 60_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import torch

    place = tmp_path_factory.mktemp("session")
    write_dumps(place)
    write_models(place)
    np.savez(place / "half.npz", a=np.ones(64, np.float16))
    with chdir(place):
        from models.onnx_files import quiet
        from syncpoint.runtimes.import_path import load_object

        with quiet():
            torch.onnx.export(
                load_object("net.py:shipped")(),
                load_object("net.py:inputs")(),
                "net.onnx",
                dynamo=True,
            )
    return place


@pytest.fixture(scope="module")
def server(folder):
    made = Server(folder)
    yield made
    made.stop()


@pytest.fixture
def opened(page, server):
    """The page of the session; nothing may go wrong in it unseen."""
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(server.address)
    expect(page.get_by_role("region", name="Configuration A")).to_be_visible()
    yield page
    assert wrong == []


def fill(page, target, reference, inputs=""):
    page.locator("#target-path").fill(target)
    page.locator("#reference-path").fill(reference)
    if inputs:
        page.get_by_role("button", name="File", exact=True).click()
        page.locator("#input-file").fill(inputs)


def progress(page, state):
    return page.locator(f".job[data-state={state}]").first


def test_from_two_models_to_the_result_through_a_reload_and_beside_a_second_tab(opened, server):
    opened.get_by_role("button", name="Choose for target path").click()
    picker = opened.get_by_role("dialog")
    picker.get_by_role("button", name=re.compile("net.onnx model")).click()
    side = opened.get_by_role("region", name="Configuration A")
    expect(side.get_by_text(re.compile(r"^opens; \d+ ops, f32, "))).to_be_visible()
    opened.get_by_role("button", name="Choose for reference path").click()
    picker.get_by_role("button", name=re.compile("net.py Python")).click()
    opened.get_by_role("button", name="reference", exact=True).click()
    expect(opened.locator("#reference-path")).to_have_value("net.py:reference")
    expect(opened.get_by_text("net.py defines reference.")).to_be_visible()
    expect(opened.locator("#target-runtime")).to_contain_text("onnxruntime")
    opened.get_by_role("button", name="Original").click()
    opened.get_by_role("button", name="File", exact=True).click()
    opened.locator("#input-file").fill("net.py:inputs")
    line = (
        "syncpoint compare net.onnx net.py:reference --inputs net.py:inputs"
        " --target-set fusion=unfused"
    )
    copy = opened.get_by_role("button", name="Copy as command")
    expect(copy).to_have_attribute("data-command", re.compile(re.escape(line)))
    opened.keyboard.press("Control+Enter")
    expect(progress(opened, "running")).to_be_visible()

    opened.reload()
    expect(opened.locator("#input-file")).to_have_value("net.py:inputs")
    expect(copy).to_have_attribute("data-command", re.compile(re.escape(line)))
    expect(progress(opened, "running")).to_contain_text("net.onnx with net.py:reference")
    second = opened.context.new_page()
    second.goto(f"{server.base}/")
    expect(progress(second, "running")).to_contain_text("Capture reference")

    opened.wait_for_url(re.compile("/c/[0-9a-f]{12}"), timeout=SLOW)
    expect(opened.get_by_role("banner")).to_contain_text("net.onnx", timeout=10_000)
    expect(opened.get_by_role("banner")).to_contain_text("large")
    second.bring_to_front()
    done = progress(second, "done")
    expect(done).to_be_visible(timeout=10_000)
    expect(done.get_by_role("link", name="Open")).to_be_visible()
    past = second.get_by_role("region", name="Past comparisons")
    line = past.get_by_role("row").nth(1)
    for text in ("net_against_net_reference", "net.onnx", "net.py:reference", "large", "today"):
        expect(line).to_contain_text(text)
    past.get_by_role("link", name="net_against_net_reference").first.click()
    second.wait_for_url(re.compile("/c/[0-9a-f]{12}"))
    second.close()


def test_cancelling_leaves_nothing_half(opened, server, folder):
    fill(opened, "net.py:hanging", "net.py:reference", "net.py:inputs")
    # What was typed is looked at first.
    expect(opened.get_by_text("net.py defines hanging.")).to_be_visible()
    expect(opened.get_by_text("net.py defines reference.")).to_be_visible()
    opened.get_by_role("button", name="Compare", exact=False).last.click()
    running = progress(opened, "running")
    expect(running).to_contain_text("waiting with", timeout=SLOW)
    pid = int(re.search(r"waiting with (\d+)", running.inner_text())[1])
    running.get_by_role("button", name="Cancel").click()
    over = progress(opened, "cancelled")
    expect(over).to_be_visible(timeout=10_000)
    assert gone(pid)
    # The reference was captured whole, and can be gone on from; it is no comparison.
    expect(over.get_by_role("button", name="Resume")).to_be_visible()
    (kept,) = (folder / "comparisons").glob("net_hanging*")
    assert not (kept / "comparison.json").exists()
    past = opened.get_by_role("region", name="Past comparisons")
    expect(past).to_contain_text("interrupted")
    over.get_by_role("button", name="Dismiss").click()
    expect(over).to_be_hidden()


def test_a_model_that_raises_is_told_in_words(opened):
    fill(opened, "net.py:raising", "reference.npz", "net.py:inputs")
    expect(opened.get_by_text("net.py defines raising.")).to_be_visible()
    opened.keyboard.press("Control+Enter")
    failed = progress(opened, "failed")
    expect(failed).to_contain_text("no weights here", timeout=SLOW)
    expect(failed).to_contain_text("net.py:raising returned no model")
    # The stage is marked, and the words stand under it.
    expect(failed.locator("[data-state=failed]")).to_have_count(1)
    expect(failed.locator("[data-stage=target]")).to_have_attribute("data-state", "failed")
    expect(failed.get_by_role("img", name="failed")).to_be_visible()
    expect(failed.get_by_role("alert")).to_contain_text("Capture target failed")


def test_a_shape_that_is_missing_is_asked_for_in_words_of_the_form(opened, server):
    server.ask("/form", {})
    opened.reload()
    fill(opened, "net.py:shipped", "net.py:reference")
    expect(opened.get_by_text("net.py defines shipped.")).to_be_visible()
    expect(opened.get_by_text("net.py defines reference.")).to_be_visible()
    opened.get_by_role("button", name="Random", exact=True).click()
    opened.keyboard.press("Control+Enter")
    failed = progress(opened, "failed").get_by_role("alert")
    expect(failed).to_contain_text("fill in Shapes, such as x=1,3,224,224", timeout=SLOW)
    expect(failed).not_to_contain_text("--shape")
    expect(opened.get_by_label("Shapes")).to_be_visible()


def test_a_path_outside_is_refused(opened, server):
    before = server.ask("/jobs")[1]["version"]
    fill(opened, "/etc/passwd", "reference.npz")
    side = opened.get_by_role("region", name="Configuration A")
    expect(side.get_by_role("alert")).to_contain_text("is not a path in the current folder")
    opened.keyboard.press("Control+Enter")
    opened.locator("#target-path").fill("../elsewhere.npz")
    expect(side.get_by_role("alert")).to_contain_text("../elsewhere.npz")
    assert server.ask("/jobs")[1]["version"] == before


def test_roles_that_look_swapped_are_warned_about_and_can_be_swapped(opened):
    fill(opened, "target.npz", "half.npz")
    warning = opened.get_by_text("are they swapped?")
    expect(warning).to_be_visible()
    opened.get_by_role("button", name="Swap them").click()
    expect(opened.locator("#target-path")).to_have_value("half.npz")
    expect(opened.locator("#reference-path")).to_have_value("target.npz")
    expect(warning).to_be_hidden()


def test_the_page_stays_when_the_server_does_not_answer(page, folder):
    own = Server(folder)
    page.goto(own.address)
    page.locator("#target-path").fill("target.npz")
    side = page.get_by_role("region", name="Configuration A")
    expect(side.get_by_text("opens; 2 ops")).to_be_visible()
    own.stop()
    expect(page.locator(".gone")).to_contain_text("does not answer", timeout=10_000)
    expect(page.locator("#target-path")).to_have_value("target.npz")


def test_an_empty_field_is_named_where_it_is_and_nothing_starts(page, server):
    server.ask("/form", {})
    page.goto(server.address)
    sides = [page.get_by_role("region", name=f"Configuration {letter}") for letter in "AB"]
    expect(sides[0]).to_be_visible()
    before = server.ask("/jobs")[1]["version"]
    fill(page, "", "")
    compare = page.get_by_role("button", name="Compare", exact=False).last
    compare.click()
    for side in sides:
        expect(side.get_by_role("alert")).to_contain_text("a model is missing")
    expect(page.locator("#target-path")).to_be_focused()
    fill(page, "net.py:shipped", "net.py:reference")
    for side in sides:
        expect(side.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="File", exact=True).click()
    page.locator("#input-file").fill("  ")
    for press in (compare.click, lambda: page.keyboard.press("Control+Enter")):
        press()
        expect(sides[0].get_by_role("alert")).to_contain_text("the file is missing")
        expect(page.locator("#input-file")).to_be_focused()
        expect(page.locator("#input-file")).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Random", exact=True).click()
    expect(sides[0].get_by_role("alert")).to_be_hidden()
    assert server.ask("/jobs")[1]["version"] == before
