"""A comparison can be looked at before it is finished, and never passes for a finished one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import syncpoint as sp
from syncpoint.errors import InputError
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.form_request import RequestedComparison
from syncpoint.server.session_schema import SessionSpec
from syncpoint.server.unfinished_view import UnfinishedViews, create_view_folder

SPEC = SessionSpec(target={"path": "target.npz"}, reference={"path": "reference.npz"})


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A comparison of six pairs, the third of them off, that was stopped after some."""
    monkeypatch.chdir(tmp_path)
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    np.savez("reference.npz", **{f"op{at}": (at + 1) * x for at in range(6)})
    np.savez("target.npz", **{f"op{at}": (at + 1 + (at == 2)) * x for at in range(6)})
    monkeypatch.setattr("syncpoint.comparison.measuring.measure_rows._MAX_BATCH_PAIRS", 1)

    def stop_after(count):
        def stop(done, total):
            if done == count:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sp.compare("target.npz", "reference.npz", out="begun.cmp", progress=stop)
        return tmp_path / "begun.cmp"

    return stop_after


@pytest.fixture
def look(tmp_path):
    found = {}

    def add(path):
        found[path.name] = path
        return path.name

    views = UnfinishedViews(add)

    def look(folder):
        views.show(folder, RequestedComparison.of(SPEC, AllowedFolders([tmp_path])))
        return found[folder.name]

    yield look
    views.close()
    assert not any(path.exists() for path in found.values())


@pytest.mark.parametrize("count", [2, 4, 6])
def test_what_is_measured_is_as_in_the_finished_one_and_the_rest_is_open(interrupted, look, count):
    folder = interrupted(count)
    before = (folder / "progress.log").read_bytes()
    glimpse = sp.open_comparison(look(folder))
    assert (folder / "progress.log").read_bytes() == before
    whole = sp.compare("target.npz", "reference.npz", out=folder, resume=True)
    measured = glimpse.table.filter(pl.col("reason") != "not measured yet")
    expected = whole.table.filter(pl.col("target_op").is_in(measured["target_op"].to_list()))
    assert measured.height == count
    for column in ("target_op", "reference_op", "psnr", "max_abs", "evidence", "verdict"):
        assert measured[column].to_list() == expected[column].to_list()
    # Neither close nor large before the end, however much is measured.
    assert glimpse.verdict.value == "none"
    assert glimpse.exit_code() == 3
    assert glimpse.coverage.compared == count
    assert glimpse.coverage.target == count / 6
    assert glimpse.warnings[0] == glimpse.unfinished
    assert glimpse.unfinished.startswith(f"not complete: {count} of 6 sync points are measured")


def test_the_page_says_that_it_is_not_complete(interrupted, look):
    path = look(interrupted(4))
    found = build_overview(OpenComparison(path))
    assert found.unfinished.startswith("not complete: 4 of 6")
    assert found.summary.startswith("Not complete: 4 of 6")
    assert found.verdict == "none"
    assert build_overview(OpenComparison(path, "f16")).verdict == "none"


def test_a_finished_comparison_has_nothing_open(interrupted):
    folder = interrupted(4)
    sp.compare("target.npz", "reference.npz", out=folder, resume=True)
    assert build_overview(OpenComparison(folder)).unfinished == ""


def test_before_anything_is_measured_there_is_nothing_to_look_at(tmp_path, look, interrupted):
    interrupted(2)
    (tmp_path / "empty.cmp").mkdir()
    with pytest.raises(InputError):
        look(tmp_path / "empty.cmp")


def test_runs_that_have_changed_since_are_refused(interrupted, look):
    folder = interrupted(4)
    np.savez("target.npz", op0=np.ones(64, np.float32))
    with pytest.raises(InputError, match="the target run has changed since"):
        look(folder)


def test_looks_of_a_server_that_was_killed_are_cleared_away(tmp_path, monkeypatch):
    """Its lock is gone with it; one that lives, or just begins, keeps what it has."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os, signal; from syncpoint.server.unfinished_view import create_view_folder;"
        "folder, lock = create_view_folder(); (folder / 'kept').mkdir();"
        "print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    died = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    left = Path(died.stdout.strip())
    assert (left / "kept").is_dir()
    alive, lock = create_view_folder()
    assert left.is_dir()  # it may be one that just begins
    long_ago = time.time() - 3600
    for folder in (left, alive):
        os.utime(folder, (long_ago, long_ago))
    _, other = create_view_folder()
    assert alive.is_dir()
    assert not left.exists()
    lock.release()
    other.release()
