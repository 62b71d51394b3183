"""A comparison that is killed or interrupted goes on with --resume, to the same bits."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import syncpoint as sp
from helpers.model_sources import tanh_stack
from syncpoint.comparison.measuring import measure_rows as measuring
from syncpoint.comparison.storage.file_names import JSON_NAME, PROGRESS_LOG, TABLE_NAME
from syncpoint.errors import FormatError, InputError
from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.journal import MAGIC, encode_frame, read_journal
from syncpoint.run.storage.writer import RunWriter

KILLS = min(int(os.environ.get("SYNCPOINT_KILLS", "5")), 50)
OPS = 120

MODEL = tanh_stack(8)


def record(path, scale):
    rng = np.random.default_rng(0)
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        x = recorder.op(Op(OpKey("x"), "input"))
        recorder.tensor(x, np.ones(4, np.float32), role=Role.MODEL_INPUT, name="x")
        edge = Edge(x, role=Role.MODEL_INPUT)
        for i in range(OPS):
            value = rng.standard_normal((40, 100)).astype(np.float32)
            value[0, 0] = np.inf if i % 7 == 0 else 0
            key = recorder.op(Op(OpKey(f"op{i}"), "T", (edge,)))
            recorder.tensor(key, value * np.float32(1 + scale * i))
            edge = Edge(key)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two runs, a model, and the comparisons that nobody interrupted."""
    folder = tmp_path_factory.mktemp("resume")
    record(folder / "t.run", 1e-5)
    record(folder / "r.run", 0)
    (folder / "net.py").write_text(MODEL)
    np.savez(folder / "x.npz", x=np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16))
    sp.compare(folder / "t.run", folder / "r.run", out=folder / "straight.cmp")
    return folder


@pytest.fixture
def in_steps(monkeypatch):
    """Batches of a few pairs, so that there is something between nothing and all."""
    monkeypatch.setattr(measuring, "_MAX_BATCH_PAIRS", 10)


def assert_same(path, straight):
    assert_frame_equal(
        pl.read_parquet(path / TABLE_NAME),
        pl.read_parquet(straight / TABLE_NAME),
        rel_tol=0,
        abs_tol=0,
    )
    about = [json.loads((p / JSON_NAME).read_text()) for p in (path, straight)]
    for said in about:
        said.pop("created")
        said.pop("checksum")
        for side in ("target", "reference"):
            said[side].pop("path")
    assert about[0] == about[1]
    assert not (path / PROGRESS_LOG).exists() and not (path / "run.lock").exists()


def interrupt_after(calls, error=KeyboardInterrupt):
    """A progress callback that is not called more often than this."""
    left = iter(range(calls))

    def progress(done, total):
        if next(left, None) is None:
            raise error

    return progress


def interrupted(place, out, calls=3, **options):
    with pytest.raises(KeyboardInterrupt):
        sp.compare(
            place / "t.run", place / "r.run", out=out, progress=interrupt_after(calls), **options
        )


def frames(path):
    return [kind for kind, _ in read_journal(path / PROGRESS_LOG).frames]


def test_what_was_measured_is_not_measured_again(place, tmp_path, in_steps, monkeypatch):
    out = tmp_path / "a.cmp"
    interrupted(place, out)
    assert frames(out) == ["asked", "runs", *["measured"] * 4]
    seen = []
    real = measuring._measure_batch
    monkeypatch.setattr(
        measuring,
        "_measure_batch",
        lambda sides, batch, *rest: seen.extend(batch) or real(sides, batch, *rest),
    )
    sp.compare(place / "t.run", place / "r.run", out=out, resume=True)
    assert len(seen) == OPS + 1 - 40
    assert_same(out, place / "straight.cmp")


def test_rows_of_a_version_that_did_not_verify_are_measured_again(place, tmp_path, in_steps):
    out = tmp_path / "a.cmp"
    interrupted(place, out)
    older = MAGIC
    for kind, body in read_journal(out / PROGRESS_LOG).frames:
        if kind == "measured":
            del body["verified"]
            body["rows"][0][3] = None  # a number that nobody checked
        older += encode_frame(kind, body)
    (out / PROGRESS_LOG).write_bytes(older)
    sp.compare(place / "t.run", place / "r.run", out=out, resume=True)
    assert_same(out, place / "straight.cmp")


def test_it_can_be_interrupted_again_and_again(place, tmp_path, in_steps):
    out = tmp_path / "a.cmp"
    for _ in range(3):
        interrupted(place, out, 2, resume=(out / PROGRESS_LOG).exists())
    sp.compare(place / "t.run", place / "r.run", out=out, resume=True, threads=1)
    assert_same(out, place / "straight.cmp")


def test_a_log_cut_anywhere_gives_the_same_result(place, tmp_path, in_steps):
    out = tmp_path / "a.cmp"
    interrupted(place, out)
    data = (out / PROGRESS_LOG).read_bytes()
    for cut in (1, 5000, len(data) - 1500, len(data) - 100):
        again = tmp_path / f"{cut}.cmp"
        again.mkdir()
        (again / PROGRESS_LOG).write_bytes(data[:-cut])
        sp.compare(place / "t.run", place / "r.run", out=again, resume=True)
        assert_same(again, place / "straight.cmp")


def test_without_resume_an_unfinished_comparison_is_an_error_that_names_it(
    place, tmp_path, in_steps
):
    out = tmp_path / "a.cmp"
    interrupted(place, out)
    with pytest.raises(InputError, match="interrupted; add --resume"):
        sp.compare(place / "t.run", place / "r.run", out=out)
    with pytest.raises(InputError, match=r"interrupted .*; continue it with: .*--resume"):
        sp.open_comparison(out)
    assert frames(out)[-1] == "measured"


def test_other_runs_or_options_are_refused(place, tmp_path, in_steps):
    out = tmp_path / "a.cmp"
    interrupted(place, out)
    changes = {
        "was started with reference = ": ({}, "t.run"),
        "was started with limits = ": ({"preset": "f16"}, "r.run"),
        "was started with map = ": ({"ignore": "op3"}, "r.run"),
        "was started with introduced = ": ({"introduced": "off"}, "r.run"),
    }
    for message, (options, reference) in changes.items():
        with pytest.raises(InputError, match=message) as raised:
            sp.compare(place / "t.run", place / reference, out=out, resume=True, **options)
        assert "\n" not in str(raised.value)
    sp.compare(place / "t.run", place / "r.run", out=out, resume=True)
    assert_same(out, place / "straight.cmp")


def test_a_run_that_was_recorded_anew_is_refused(place, tmp_path, in_steps):
    for name in ("t.run", "r.run"):
        shutil.copytree(place / name, tmp_path / name)
    interrupted(tmp_path, tmp_path / "a.cmp")
    shutil.rmtree(tmp_path / "t.run")
    record(tmp_path / "t.run", 1e-3)
    with pytest.raises(InputError, match="the target run has changed since"):
        sp.compare(tmp_path / "t.run", tmp_path / "r.run", out=tmp_path / "a.cmp", resume=True)


def test_a_dump_that_was_written_anew_is_refused(tmp_path, in_steps):
    arrays = {f"op{i}": np.full(100, i, np.float32) for i in range(50)}
    for name in "tr":
        np.savez(tmp_path / f"{name}.npz", **arrays)
    both = (tmp_path / "t.npz", tmp_path / "r.npz")
    with pytest.raises(KeyboardInterrupt):
        sp.compare(*both, out=tmp_path / "a.cmp", progress=interrupt_after(2))
    np.savez(tmp_path / "r.npz", **arrays | {"op9": np.zeros(100, np.float32)})
    with pytest.raises(InputError, match="was started with file of the reference = "):
        sp.compare(*both, out=tmp_path / "a.cmp", resume=True)


def test_a_finished_or_absent_comparison_with_resume(place, tmp_path):
    both = (place / "t.run", place / "r.run")
    with pytest.raises(
        InputError, match=r"already contains a finished comparison.* syncpoint report"
    ):
        sp.compare(*both, out=place / "straight.cmp", resume=True)
    with pytest.raises(InputError, match="resume needs the folder of the comparison"):
        sp.compare(*both, resume=True)
    sp.compare(*both, out=tmp_path / "new.cmp", resume=True)
    assert_same(tmp_path / "new.cmp", place / "straight.cmp")


def test_a_mistake_leaves_nothing_to_resume(place, tmp_path):
    with pytest.raises(InputError):
        sp.compare(place / "t.run", tmp_path / "none.run", out=tmp_path / "a.cmp")
    assert not (tmp_path / "a.cmp").exists()


def test_a_folder_with_other_files_is_left_alone(place, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="do not belong to a comparison"):
        sp.compare(place / "t.run", place / "r.run", out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("kind", ["asked", "runs", "measured", "introduced", "other"])
@pytest.mark.parametrize("body", [None, 5, [], {}, {"rows": [[1]], "columns": []}, [[1, 2, 3]]])
def test_a_log_of_another_structure_is_one_line(place, tmp_path, kind, body):
    from syncpoint.run.storage.journal import MAGIC, encode_frame

    out = tmp_path / "a.cmp"
    interrupted(place, out, 0)
    first = read_journal(out / PROGRESS_LOG).frames[0]
    head = MAGIC if kind == "asked" else MAGIC + encode_frame(*first)
    (out / PROGRESS_LOG).write_bytes(head + encode_frame(kind, body))
    try:
        sp.compare(place / "t.run", place / "r.run", out=out, resume=True)
    except (InputError, FormatError) as error:
        assert "\n" not in str(error)
    else:
        assert_same(out, place / "straight.cmp")


# Real processes.

CHILD = """
import sys, time
from syncpoint.comparison.measuring import measure_rows as measuring
from syncpoint.comparison.introduced_error import local_calculation
from syncpoint.cli import main
measuring._BATCH_PAIRS = 4
real = measuring._measure_batch
measuring._measure_batch = lambda *a: (time.sleep(0.02), real(*a))[1]
group = local_calculation.LocalCalculation._evaluate_group
local_calculation.LocalCalculation._evaluate_group = lambda *a: (time.sleep(0.02), group(*a))[1]
main()
"""


def started(place, out, *words):
    arguments = ["compare", *words, "-o", str(out), "-q"]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, size, process):
    while process.poll() is None and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.005)


def ended(process):
    out, err = process.communicate()
    assert "Traceback" not in err
    return out, err


def test_killed_comparisons_go_on_to_the_straight_result(place, tmp_path):
    moments = random.Random(0)
    for number in range(KILLS):
        out = tmp_path / f"{number}.cmp"
        process = started(place, out, "t.run", "r.run")
        wait_for(out / PROGRESS_LOG, moments.choice([0, 200, 10_000, 30_000]), process)
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        ended(process)
        if (out / PROGRESS_LOG).exists() or not (out / JSON_NAME).exists():
            process = started(place, out, "t.run", "r.run", "--resume")
            ended(process)
            assert process.returncode in (0, 1)
        assert_same(out, place / "straight.cmp")


def test_ctrl_c_says_how_to_go_on(place, tmp_path):
    out = tmp_path / "a.cmp"
    process = started(place, out, "t.run", "r.run")
    wait_for(out / PROGRESS_LOG, 5000, process)
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert process.returncode == 130
    assert len(err.splitlines()) == 1 and "--resume" in err
    process = started(place, out, "t.run", "r.run")
    _, err = ended(process)
    assert process.returncode == 2 and "--resume" in err and len(err.splitlines()) == 1
    ended(started(place, out, "t.run", "r.run", "--resume"))
    assert_same(out, place / "straight.cmp")


def test_models_captured_on_the_way_are_captured_once(place, tmp_path, monkeypatch):
    """Interrupted while introduced error is being found: both runs are there already."""
    monkeypatch.chdir(place)
    straight, out = tmp_path / "straight.cmp", tmp_path / "a.cmp"
    one = {"threads": "1"}
    sp.compare(
        "net.py:shipped", "net.py:reference", inputs="x.npz", out=straight, store=straight,
        target_options=one, reference_options=one,
    )  # fmt: skip
    words = ("net.py:shipped", "net.py:reference", "--inputs", "x.npz")
    words += ("--target-set", "threads=1", "--reference-set", "threads=1")
    process = started(place, out, *words)
    while process.poll() is None:
        if (out / PROGRESS_LOG).exists() and frames(out).count("introduced") >= 3:
            break
        time.sleep(0.01)
    process.kill()
    ended(process)
    written = [out / f"{side}.run" / "run.json" for side in ("target", "reference")]
    times = [path.stat().st_mtime_ns for path in written]
    process = started(place, out, *words, "--resume")
    ended(process)
    assert process.returncode == 1
    assert times == [path.stat().st_mtime_ns for path in written]
    assert_same(out, straight)
