"""A comparison is served from this process, and shown, without being saved."""

import asyncio
import copy
import pickle
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from syncpoint.comparison.storage import comparison_folder
from syncpoint.page.html_report import collect_answers
from syncpoint.page.open_comparison import OpenComparison, ResultInMemory
from syncpoint.page.overview import build_overview
from syncpoint.page.tensor_values import read_values
from syncpoint.server import run_server as serving
from syncpoint.server.access_guard import HEADER


def small_net(scale=1.0):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval()
    with torch.no_grad():
        net[2].weight *= scale
    return net


@pytest.fixture(scope="module")
def runs():
    return [sp.capture(small_net(scale), (torch.ones(2, 8),)) for scale in (2.0, 1.0)]


@pytest.fixture(scope="module")
def comparison(runs):
    return sp.compare(*runs)


@pytest.fixture
def unsaved(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is saved to be shown")

    monkeypatch.setattr(comparison_folder, "save", refuse)


def get(address, path=""):
    """What the server answers to the page, which has the token of its address."""
    base, _, token = address.partition("?token=")
    request = urllib.request.Request(base.rpartition("/c/")[0] + path, headers={HEADER: token})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex((serving.HOST, port)) == 0


def port_of(view):
    return int(view.address.split(":")[2].split("/")[0])


def test_a_comparison_in_memory_is_shown_like_a_saved_one(comparison, runs, tmp_path):
    in_memory = OpenComparison(ResultInMemory(comparison, "pair"))
    saved = OpenComparison(comparison.save(tmp_path / "pair.cmp"))
    differ = {"id", "target", "reference"}  # where the runs are, told from another folder
    mine, theirs = (build_overview(one).model_dump(exclude=differ) for one in (in_memory, saved))
    assert mine == theirs
    assert in_memory.table.frame.equals(saved.table.frame)
    assert build_overview(OpenComparison(ResultInMemory(comparison, "pair"), "f16")).limits == "f16"


def test_runs_at_hand_are_not_opened_again(comparison, runs):
    source = ResultInMemory(
        comparison, "pair", dict(zip(("target", "reference"), runs, strict=True))
    )
    opened = OpenComparison(source)
    assert opened.run("target") is runs[0]
    assert opened.why_run_missing("reference") == ""
    assert read_values(opened, 0) is not None


def test_a_report_is_written_without_saving(comparison, tmp_path, unsaved):
    first = comparison.to_html(tmp_path / "a.html").read_text()
    assert "<title>a · Syncpoint</title>" in first
    assert comparison.to_html(tmp_path / "a.html").read_text() == first
    assert collect_answers(OpenComparison(ResultInMemory(comparison, "a")))["heatmaps"]


def test_a_report_of_runs_that_are_gone_says_so(tmp_path):
    for side in ("target", "reference"):
        np.savez(tmp_path / f"{side}.npz", a=np.ones(4, np.float32))
    comparison = sp.compare(tmp_path / "target.npz", tmp_path / "reference.npz")
    (tmp_path / "target.npz").unlink()
    opened = OpenComparison(ResultInMemory(comparison, "pair"))
    assert "target.npz" in opened.why_run_missing("target")
    assert opened.why_run_missing("reference") == ""


def test_a_comparison_holds_no_run_and_can_be_copied(comparison):
    for other in (pickle.loads(pickle.dumps(comparison)), copy.copy(comparison)):
        assert str(other) == str(comparison)
        assert other.run_references.alive() == {}
    assert comparison.run_references.alive().keys() == {"target", "reference"}
    alone = sp.compare(small_net(), small_net(), inputs=(torch.ones(2, 8),), diagnose=False)
    assert alone.verdict == "close"


def test_view_serves_until_it_is_stopped(comparison, unsaved):
    view = comparison.view(browser=False)
    try:
        assert repr(view) == f"<ServedComparison {view.address}>"
        name = view.address.partition("/c/")[2].partition("?")[0]
        assert '"verdict":"large"' in get(view.address, f"/api/comparisons/{name}/overview")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(
                view.address.partition("/c/")[0] + f"/api/comparisons/{name}/overview"
            )
    finally:
        view.stop()
    assert not is_listening(port_of(view))
    view.stop()


def test_a_saved_comparison_is_served_without_loading_its_rows(comparison, tmp_path, monkeypatch):
    from syncpoint.page import open_comparison

    path = comparison.save(tmp_path / "pair.cmp")

    def refuse(*_):
        raise AssertionError("all rows are loaded")

    monkeypatch.setattr(open_comparison, "load", refuse)
    view = sp.view(str(path), browser=False)
    try:
        name = view.address.partition("/c/")[2].partition("?")[0]
        assert '"verdict":"large"' in get(view.address, f"/api/comparisons/{name}/overview")
    finally:
        view.stop()
    assert not is_listening(port_of(view))


def test_what_is_no_comparison_is_not_served(tmp_path):
    with pytest.raises(sp.InputError, match="no such file or folder"):
        sp.view(tmp_path / "absent.cmp", browser=False)


def test_view_has_a_loop_of_its_own(comparison):
    async def in_a_notebook():
        view = comparison.view(browser=False)
        name = view.address.partition("/c/")[2].partition("?")[0]
        try:
            return await asyncio.to_thread(get, view.address, f"/api/comparisons/{name}/overview")
        finally:
            view.stop()

    assert "verdict" in asyncio.run(in_a_notebook())


def test_a_port_that_is_in_use_is_an_input_error(comparison):
    with serving.bind_socket(0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(sp.InputError, match=f"cannot listen on port {port}"):
            comparison.view(port=port, browser=False)


def test_the_server_s_packages_may_be_missing(comparison, monkeypatch):
    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    with pytest.raises(sp.MissingExtra, match="web"):
        comparison.view(browser=False)


def test_the_browser_is_opened_unless_told_otherwise(comparison, monkeypatch):
    import webbrowser

    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    view = comparison.view()
    view.stop()
    assert addresses == [view.address]


def test_a_view_ends_with_the_interpreter(tmp_path):
    for side in ("target", "reference"):
        np.savez(tmp_path / f"{side}.npz", a=np.ones(4, np.float32))
    code = (
        "import syncpoint as sp\n"
        "print(sp.compare('target.npz', 'reference.npz').view(browser=False).address)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == ""
    assert not is_listening(int(done.stdout.split(":")[2].split("/")[0]))
