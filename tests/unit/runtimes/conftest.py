"""Fixtures of the tests of runtimes."""

import sys

import pytest


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """An empty current folder; modules that a test imports from it are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
