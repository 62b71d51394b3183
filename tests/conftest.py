"""What all tests share: how long the generators of hypothesis search.

`HYPOTHESIS_PROFILE=fuzz` searches twenty times as long, `thorough` three times; `SYNCPOINT_FUZZ=3`
triples any of them.
"""

import os

import pytest
from hypothesis import settings

from helpers.paths import TESTS
from syncpoint import plugins

FACTOR = int(os.environ.get("SYNCPOINT_FUZZ", "1"))

settings.register_profile("default", deadline=None, max_examples=100 * FACTOR)
settings.register_profile("thorough", deadline=None, max_examples=300 * FACTOR)
settings.register_profile("fuzz", deadline=None, max_examples=2000 * FACTOR)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


SLOWEST_FILES = (
    "integration/cli/test_documents.py",
    "integration/inductor/test_capture.py",
    "integration/onnx/test_matching.py",
    "integration/analysis/test_analyze.py",
    "unit/metrics/test_instruction_set.py",
    "unit/metrics/test_ulp.py",
    "unit/diagnosis/variants/test_any_op.py",
)
"""Files of a minute and more. Workers take whole files, so a long one at the end would leave all
but one of them idle."""


def pytest_collection_modifyitems(items):
    """Slow files come first. What drives a browser comes last: its driver leaves an event loop
    running in this thread, in which no test of ours could run one of its own."""
    slow = {TESTS / name for name in SLOWEST_FILES}
    assert all(path.is_file() for path in slow), "SLOWEST_FILES names a file that was moved"
    items.sort(key=lambda item: ("browser" in item.path.parts, item.path not in slow))


@pytest.fixture
def add_plugins(monkeypatch):
    """Pretend that packages declare these entry points of a seam, and no others."""
    changed = []

    def add(seam, *entries):
        usual = plugins.installed_entry_points
        monkeypatch.setattr(
            plugins,
            "installed_entry_points",
            lambda group: list(entries) if group == seam.group else usual(group),
        )
        seam.forget_plugins()
        changed.append(seam)

    yield add
    for seam in changed:
        seam.forget_plugins()
