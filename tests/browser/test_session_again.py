"""A session that is left and come back to: other tabs, reloads, a server that was started again."""

import os
import re
import signal
import time
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

from helpers.session_server import Server, write_dumps, write_models

SLOW = 60_000


@pytest.fixture
def folder(tmp_path):
    write_dumps(tmp_path)
    write_models(tmp_path)
    return tmp_path


def test_an_interrupted_comparison_is_gone_on_with_after_a_restart(page, folder):
    server = Server(folder)
    spec = {
        "target": {"path": "net.py:waiting"},
        "reference": {"path": "net.py:reference"},
        "inputs": "net.py:inputs",
    }
    _, job = server.ask("/jobs", spec)
    server.until(job["id"], says="waiting for go")
    server.process.kill()
    server.process.wait(10)
    (folder / "go").touch()

    server = Server(folder)
    try:
        page.goto(server.address)
        past = page.get_by_role("region", name="Past comparisons")
        line = past.get_by_role("row").nth(1)
        for text in ("net_waiting_against_net_reference", "net.py:waiting", "net.py:reference"):
            expect(line).to_contain_text(text)
        expect(line).to_contain_text("interrupted")
        line.get_by_role("button", name="Resume").click()
        expect(page.locator(".job[data-state=done]")).to_be_visible(timeout=SLOW)
        expect(past.get_by_role("row")).to_have_count(2)
        expect(line).to_contain_text("close")
        expect(line).to_contain_text("today")
        line.get_by_role("link", name="net_waiting_against_net_reference").click()
        expect(page.get_by_role("banner")).to_contain_text("net.py:waiting")
    finally:
        server.stop()


def hold_the_answer(page) -> None:
    """Let the server have the request for a comparison, and the page never its answer."""

    def handle(route) -> None:
        if route.request.method == "POST":
            route.fetch()
        else:
            route.continue_()

    page.route("**/api/session/jobs", handle)


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_tab_opens_its_comparison_though_it_never_had_the_answer(page, folder, reloaded):
    """Events may come before the answer to the request, and a reload loses the answer."""
    server = Server(folder)
    try:
        page.goto(server.address)
        hold_the_answer(page)
        page.locator("#target-path").fill("net.py:waiting")
        page.locator("#reference-path").fill("net.py:reference")
        page.get_by_role("button", name="File", exact=True).click()
        page.locator("#input-file").fill("net.py:inputs")
        expect(page.get_by_text("net.py defines waiting.")).to_be_visible()
        page.keyboard.press("Control+Enter")
        expect(page.locator(".job[data-state=running]")).to_be_visible()
        if reloaded:
            page.reload()
            expect(page.locator(".job[data-state=running]")).to_be_visible()
        (folder / "go").touch()
        page.wait_for_url(re.compile("/c/[0-9a-f]{12}"), timeout=SLOW)
    finally:
        server.stop()


def test_what_is_damaged_is_listed_with_its_cure(page, folder):
    server = Server(folder)
    try:
        _, job = server.ask(
            "/jobs", {"target": {"path": "target.npz"}, "reference": {"path": "reference.npz"}}
        )
        server.until(job["id"], "done")
        page.goto(server.address)
        past = page.get_by_role("region", name="Past comparisons")
        link = past.get_by_role("link", name="target_against_reference")
        expect(link).to_be_visible()
        listed = link.get_attribute("href")
        (made,) = (folder / "comparisons").glob("*.cmp")
        os.truncate(made / "syncpoints.parquet", 100)
        # What was whole when it was listed says what is wrong once it is opened.
        page.goto(urljoin(server.address, listed))
        broken = page.get_by_role("alert")
        expect(broken).to_contain_text("syncpoints.parquet is damaged")
        expect(broken).to_contain_text("compare the two runs again")
        expect(page.get_by_role("link", name="Syncpoint")).to_have_attribute("href", "/")
        broken.get_by_role("link", name="All comparisons").click()
        why = past.locator(".why")
        expect(why).to_contain_text("syncpoints.parquet is damaged: 100 bytes instead of")
        expect(link).to_have_count(0)
    finally:
        server.stop()


def filled(page):
    """What the form shows."""
    return (
        page.locator("#target-path").input_value(),
        page.locator("#reference-path").input_value(),
        page.locator("#input-file").input_value(),
        page.get_by_label("Metric").input_value(),
    )


@pytest.mark.parametrize("storage", ["free", "blocked"])
def test_a_second_tab_and_a_reload_show_what_was_filled_in(browser, folder, storage):
    server = Server(folder)
    context = browser.new_context()
    if storage == "blocked":
        context.add_init_script(
            "for (const name of ['sessionStorage', 'localStorage']) Object.defineProperty(window,"
            " name, { get() { throw new DOMException('blocked', 'SecurityError'); } });"
        )
    try:
        first = context.new_page()
        first.goto(server.address)
        first.locator("#target-path").fill("net.py:shipped")
        first.locator("#reference-path").fill("net.py:reference")
        first.get_by_role("button", name="File", exact=True).click()
        first.locator("#input-file").fill("net.py:inputs")
        first.get_by_label("Metric").select_option("rmse")
        wanted = ("net.py:shipped", "net.py:reference", "net.py:inputs", "rmse")
        expect(first.get_by_role("button", name="Copy as command")).to_be_enabled()

        second = context.new_page()
        second.goto(server.address)
        expect(second.locator("#input-file")).to_have_value("net.py:inputs")
        assert filled(second) == wanted
        second.reload()
        expect(second.locator("#input-file")).to_have_value("net.py:inputs")
        assert filled(second) == wanted

        # What is typed in one is soon seen in the other, and neither undoes it.
        second.locator("#target-path").fill("net.py:reference")
        expect(first.locator("#target-path")).to_have_value("net.py:reference")
        first.locator("#input-file").fill("reference.npz")
        expect(second.locator("#input-file")).to_have_value("reference.npz")
        first.wait_for_timeout(600)
        wanted = ("net.py:reference", "net.py:reference", "reference.npz", "rmse")
        assert filled(first) == filled(second) == wanted
    finally:
        context.close()
        server.stop()


def test_what_the_command_line_names_wins_over_what_was_there(page, folder):
    (folder / "comparisons").mkdir()
    server = Server(folder)
    page.goto(server.address)
    page.locator("#target-path").fill("target.npz")
    page.locator("#reference-path").fill("reference.npz")
    expect(page.get_by_role("button", name="Copy as command")).to_be_enabled()
    page.wait_for_timeout(500)
    server.stop()
    server = Server(folder)
    page.goto(server.address)
    expect(page.locator("#target-path")).to_have_value("target.npz")
    server.stop()
    server = Server(folder, "net.py:shipped")
    page.goto(server.address)
    expect(page.locator("#target-path")).to_have_value("net.py:shipped")
    expect(page.locator("#reference-path")).to_have_value("")
    server.stop()


DEEP = """
import torch
from torch import nn


def deep(scale=1.0):
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(150)]).eval()
    with torch.no_grad():
        net[70].weight *= scale
    return net


def off():
    return deep(3.0)
"""
DEEP_JOB = {
    "target": {"path": "deep.py:off"},
    "reference": {"path": "deep.py:deep"},
    "inputs": "net.py:inputs",
}


def worker_of(server):
    """The process that the server makes a comparison in."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    tasks = children.parent.parent.glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def test_the_diagnosis_is_a_stage_while_it_runs(page, folder):
    (folder / "deep.py").write_text(DEEP)
    server = Server(folder)

    def diagnosis(job):
        stages = server.ask(f"/jobs/{job['id']}")[1]["stages"]
        return {one["stage"]: one["state"] for one in stages}.get("diagnosis")

    try:
        page.goto(server.address)
        _, job = server.ask("/jobs", DEEP_JOB)
        stages = page.locator(".job").first.get_by_role("list", name="Stages")
        expect(stages.locator("[data-stage=diagnosis]")).to_have_text("Diagnosiswaiting")
        end = time.monotonic() + 60
        while diagnosis(job) == "waits" and time.monotonic() < end:
            time.sleep(0.01)
        (pid,) = worker_of(server)
        os.kill(pid, signal.SIGSTOP)
        expect(stages.locator("[data-stage=introduced]")).to_have_attribute("data-state", "done")
        expect(stages.locator("[data-stage=diagnosis]")).to_have_text("Diagnosisrunning")
        os.kill(pid, signal.SIGCONT)
        done = server.until(job["id"], "done")
        assert re.search(r"\d+ finding", " ".join(line["text"] for line in done["log"]))
    finally:
        server.stop()


def test_what_is_measured_can_be_opened_before_the_end_and_after_a_cancel(page, folder):
    (folder / "deep.py").write_text(DEEP)
    server = Server(folder)
    try:
        page.goto(server.address)
        _, job = server.ask("/jobs", DEEP_JOB)
        end = time.monotonic() + 60
        while not server.ask(f"/jobs/{job['id']}")[1]["counts"] and time.monotonic() < end:
            time.sleep(0.01)
        (pid,) = worker_of(server)
        os.kill(pid, signal.SIGSTOP)  # it stays in the middle for as long as we look
        card = page.locator(".job[data-state=running]")
        expect(card.get_by_role("img", name=re.compile("so far, lowest PSNR"))).to_be_visible()
        card.get_by_role("button", name="Open what is finished").click()
        expect(page.get_by_role("status").filter(has_text="Not complete")).to_be_visible(
            timeout=SLOW
        )
        expect(page.get_by_role("banner")).to_contain_text("no verdict")
        os.kill(pid, signal.SIGCONT)
        server.ask(f"/jobs/{job['id']}/cancel", post=True)
        assert server.until(job["id"], "cancelled", "done")["state"] == "cancelled"

        page.goto(server.address)
        past = page.get_by_role("region", name="Past comparisons")
        for place in (page.locator(".job[data-state=cancelled]"), past):
            expect(place.get_by_role("button", name="Open what is finished")).to_be_visible()
        past.get_by_role("button", name="Open what is finished").click()
        expect(page.get_by_role("status").filter(has_text="Not complete")).to_be_visible(
            timeout=SLOW
        )
    finally:
        server.stop()
