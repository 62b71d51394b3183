"""A real server, a real browser, and real comparisons to look at.

The browser is Debian's Chromium; nothing is downloaded.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import browser_server
from helpers.page_checks import RUNS, Looked, known_of, place_of

WIDE = {"width": 1440, "height": 900}


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("expected Debian's chromium on the path, found none: apt-get install chromium")
    return {**browser_type_launch_args, "executable_path": found, "args": ["--no-sandbox"]}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args):
    return {**browser_context_args, "viewport": WIDE, "reduced_motion": "reduce"}


@pytest.fixture
def page(page):
    """A page that fails its test where a script of ours fails."""
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(10_000)
    yield page
    assert not errors, errors


@pytest.fixture(scope="session")
def comparisons(tmp_path_factory) -> Path:
    """The folder of all kinds of comparisons."""
    folder = tmp_path_factory.mktemp("comparisons")
    browser_server.make(folder)
    return folder


@pytest.fixture(scope="session")
def served(comparisons) -> Callable[[str], browser_server.Served]:
    """Serve one of the comparisons by its name; each is started once."""
    running: dict[str, browser_server.Served] = {}

    def serve(name: str) -> browser_server.Served:
        if name not in running:
            running[name] = browser_server.start("view", str(place_of(comparisons, name)))
        return running[name]

    yield serve
    for one in running.values():
        browser_server.stop(one)


@pytest.fixture(scope="module", params=list(RUNS))
def one_page(request, browser, browser_context_args, comparisons, served):
    """A page for each kind of comparison, opened once for the tests of a file."""
    kind = request.param
    context = browser.new_context(**browser_context_args)
    page = context.new_page()
    page.set_default_timeout(10_000)
    made = Looked(page, kind, known_of(comparisons, kind), served(kind).address)
    browser_server.open_page(page, served(kind))
    yield made
    context.close()


@pytest.fixture
def looked(one_page):
    """The page of a kind; whatever goes wrong in it unseen fails the test."""
    yield one_page
    wrong, one_page.wrong[:] = list(one_page.wrong), []
    assert wrong == []
