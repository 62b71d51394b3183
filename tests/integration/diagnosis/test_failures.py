"""A diagnosis that fails, runs out of memory or is killed costs the comparison nothing."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import syncpoint as sp
from syncpoint.cli.app import app
from syncpoint.comparison.storage.file_names import PROGRESS_LOG
from syncpoint.diagnosis import diagnose
from syncpoint.diagnosis.findings_by_cause.weights import Weights
from syncpoint.errors import InputError
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.server.output_folders import is_worth_keeping

FAULTS = [
    (RuntimeError("a bug\nof ours"), "RuntimeError: a bug"),
    (MemoryError(), "out of memory"),
    (IndexError("list index out of range"), "IndexError: list index out of range"),
    (ZeroDivisionError(), "ZeroDivisionError"),
]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Two dumps of which one tensor is 1.5 times what it should be."""
    folder = tmp_path_factory.mktemp("dumps")
    rng = np.random.default_rng(0)
    tensors = {f"op{i}": rng.standard_normal((8, 16)).astype(np.float32) for i in range(6)}
    np.savez(folder / "reference.npz", **tensors)
    np.savez(folder / "target.npz", **tensors | {"op3": 1.5 * tensors["op3"]})
    return folder / "target.npz", folder / "reference.npz"


def raising(error):
    def look(self, case):
        raise error

    return look


def called(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.mark.parametrize(("error", "words"), FAULTS)
def test_a_cause_that_fails_is_a_line_and_the_others_still_speak(dumps, monkeypatch, error, words):
    monkeypatch.setattr(Weights, "look", raising(error))
    found = sp.compare(*dumps)
    (line,) = found.diagnosis.troubles
    assert line.startswith("diagnosis failed: ") and words in line and "\n" not in line
    assert found.findings, "the causes after it were asked too"
    assert found.exit_code() == sp.compare(*dumps, diagnose=False).exit_code() == 1


@pytest.mark.parametrize(("error", "words"), FAULTS)
def test_a_diagnosis_that_fails_as_a_whole_is_a_line_of_every_report(
    dumps, tmp_path, monkeypatch, error, words
):
    def fail(case):
        raise error

    monkeypatch.setattr(diagnose, "_run_causes", fail)
    out = tmp_path / "a.cmp"
    done = called("compare", *dumps, "-o", out, "--json", tmp_path / "a.json")
    assert done.exit_code == 1
    assert f"diagnosis failed: {words}" in done.output and "op3" in done.output
    (line,) = json.loads((tmp_path / "a.json").read_text())["diagnosis"]["troubles"]
    saved = sp.open_comparison(out)
    assert saved.diagnosis.troubles == (line,) and not saved.findings
    assert line in saved._repr_html_()
    assert line in [one.text for one in build_overview(OpenComparison(out)).trust]
    assert not (out / PROGRESS_LOG).exists()


def test_diagnose_ends_with_the_comparisons_exit_code_when_it_fails(dumps, tmp_path, monkeypatch):
    out = tmp_path / "a.cmp"
    before = sp.compare(*dumps, out=out)
    monkeypatch.setattr(Weights, "look", raising(MemoryError()))
    done = called("diagnose", out)
    assert done.exit_code == 1
    assert "diagnosis failed: the weights are not the same: out of memory" in done.output
    assert "the saved diagnosis is kept, because the new one failed" in done.output
    assert sp.open_comparison(out).diagnosis == before.diagnosis


def test_a_diagnosis_after_one_that_failed_is_kept(dumps, tmp_path, monkeypatch):
    out = tmp_path / "a.cmp"
    with monkeypatch.context() as patched:
        patched.setattr(Weights, "look", raising(MemoryError()))
        sp.compare(*dumps, out=out)
    assert called("diagnose", out).exit_code == 1
    assert sp.open_comparison(out).diagnosis.troubles == ()


# Killed while it looks for causes.

CHILD = """
import sys, time
from pathlib import Path
import syncpoint as sp
from syncpoint.diagnosis.findings_by_cause.weights import Weights

target, reference, out, mark = sys.argv[1:]

def look(self, case):
    Path(mark).touch()
    time.sleep(60)

Weights.look = look
sp.compare(target, reference, out=out)
"""


@pytest.fixture
def killed(dumps, tmp_path):
    out, mark = tmp_path / "a.cmp", tmp_path / "mark"
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, *map(str, (*dumps, out, mark))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not mark.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9
    return out


def test_a_comparison_killed_in_its_diagnosis_opens_and_says_so(dumps, killed):
    straight = sp.compare(*dumps)
    found = sp.open_comparison(killed)
    assert found.diagnosis is None
    assert [row.numbers for row in found.rows] == [row.numbers for row in straight.rows]
    done = called("report", killed)
    assert done.exit_code == 1 and "not diagnosed" in done.output
    assert "not diagnosed" in found._repr_html_()
    assert any(
        "not diagnosed" in line.text for line in build_overview(OpenComparison(killed)).trust
    )
    assert is_worth_keeping(killed), "a session must not clear it away"


def test_resume_finishes_the_diagnosis_and_then_there_is_nothing_left(dumps, killed):
    with pytest.raises(InputError, match="--resume to finish it"):
        sp.compare(*dumps, out=killed)
    found = sp.compare(*dumps, out=killed, resume=True)
    assert found.diagnosis == sp.compare(*dumps).diagnosis
    assert sp.open_comparison(killed).diagnosis == found.diagnosis
    assert not (killed / PROGRESS_LOG).exists()
    with pytest.raises(InputError, match=r"contains a finished comparison.*syncpoint report"):
        sp.compare(*dumps, out=killed, resume=True)
