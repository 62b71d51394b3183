"""Each side of a comparison is opened once, with the environment that lies beside it."""

import gc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.msprobe_dumps import real
from helpers.small_runs import run
from syncpoint.dumps import open_dump, registry
from syncpoint.run.storage import open_run as opening


@pytest.fixture
def opened(monkeypatch):
    """How often each path was opened, by any format."""
    counts = Counter()
    plain_find, plain_open = registry.find_format, opening.open_run

    def find(path):
        dump_format = plain_find(path)
        if dump_format is None or dump_format.name == "run":
            return dump_format  # counted where a run folder is opened

        class Counted:
            name = dump_format.name

            def open(self, path):
                counts[path.resolve()] += 1
                return dump_format.open(path)

        return Counted()

    def open_run(path):
        counts[path.resolve()] += 1
        return plain_open(path)

    monkeypatch.setattr(registry, "find_format", find)
    monkeypatch.setattr(open_dump, "find_format", find)
    monkeypatch.setattr(opening, "open_run", open_run)
    return counts


def save_dumps(folder, error=0.5):
    rng = np.random.default_rng(0)
    values = {name: rng.random((4, 8)).astype(np.float32) for name in "abc"}
    np.savez(folder / "reference.npz", **values)
    np.savez(folder / "target.npz", **{**values, "b": values["b"] + np.float32(error)})
    return folder / "target.npz", folder / "reference.npz"


def save_runs(folder):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval()
    sp.capture(net, (torch.ones(2, 8),), out=folder / "reference.run")
    with torch.no_grad():
        net[2].weight *= 2
    sp.capture(net, (torch.ones(2, 8),), out=folder / "target.run")
    return folder / "target.run", folder / "reference.run"


@pytest.mark.parametrize("diagnose", [False, True])
@pytest.mark.parametrize("save", [save_dumps, save_runs])
def test_a_recorded_side_is_opened_once(tmp_path, opened, save, diagnose):
    paths = save(tmp_path)
    opened.clear()
    comparison = sp.compare(*paths, diagnose=diagnose)
    assert comparison.verdict == "large"
    assert (comparison.diagnosis is not None) is diagnose
    assert opened == dict.fromkeys(paths, 1)


def test_a_third_run_and_a_kept_comparison_open_nothing_again(tmp_path, opened):
    target, reference = save_dumps(tmp_path)
    np.savez(tmp_path / "middle.npz", **np.load(reference))
    sp.compare(target, reference, through=tmp_path / "middle.npz", out=tmp_path / "a.cmp")
    assert opened == dict.fromkeys((target, reference, tmp_path / "middle.npz"), 1)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval()


@pytest.mark.parametrize("save", [save_dumps, save_runs])
@pytest.mark.parametrize("side", [0, 1])
def test_a_third_run_that_is_a_side_is_not_opened_again(tmp_path, opened, save, side):
    paths = save(tmp_path)
    opened.clear()
    comparison = sp.compare(*paths, through=str(paths[side]), diagnose=False)
    assert comparison.through.label == paths[side].name
    assert opened == dict.fromkeys(paths, 1)


def test_the_model_of_a_recorded_reference_opens_nothing_again(tmp_path, opened, net):
    paths = save_runs(tmp_path)
    opened.clear()
    comparison = sp.compare(*paths, reference_model=net)
    assert any(row.introduced for row in comparison.rows)
    assert {path: opened[path] for path in paths} == dict.fromkeys(paths, 1)


def test_inputs_that_are_a_side_are_not_opened_again(tmp_path, opened, net):
    _, reference = save_runs(tmp_path)
    opened.clear()
    assert sp.compare(net, reference, inputs=reference).verdict == "close"
    through = sp.compare(net, reference, inputs=reference, through=net, diagnose=False)
    assert through.through is not None
    assert opened[reference] == 2  # once in each comparison


def test_inputs_of_a_run_that_is_no_side_are_read_from_it(tmp_path, net):
    torch.manual_seed(1)
    other = sp.capture(net, (torch.rand(2, 8),), out=tmp_path / "other.run")
    comparison = sp.compare(net, net, inputs=tmp_path / "other.run", keep_runs=True)
    run = comparison.run_references.alive()["target"]
    (recorded,) = (t for t in other.tensors if t.key.role == "model-input")
    np.testing.assert_array_equal(run.values(run.tensor(recorded.key)), other.values(recorded))


def test_a_side_without_inputs_is_refused_as_inputs(tmp_path, net):
    with sp.record(tmp_path / "bare.run") as recording:
        recording.tensor("a", np.ones(3, np.float32))
    with pytest.raises(sp.InputError, match=r"bare\.run has no recorded inputs"):
        sp.compare(net, tmp_path / "bare.run", inputs=tmp_path / "bare.run")


REPORTS = [
    ("--html", "a.html"),
    ("--html", "a.html", "-o", "a.cmp"),
    ("--csv", "a.csv", "--json", "a.json", "--html", "a.html", "--min-coverage", "0.1"),
]


@pytest.mark.parametrize("words", REPORTS)
@pytest.mark.parametrize("save", [save_dumps, save_runs])
def test_the_reports_of_the_command_open_nothing_again(tmp_path, opened, save, words):
    paths = save(tmp_path)
    opened.clear()
    syncpoint("compare", *paths, *words, cwd=tmp_path, code=1)
    assert (tmp_path / "a.html").exists()
    assert opened == dict.fromkeys(paths, 1)


@pytest.mark.parametrize("words", [(), ("--min-coverage", "0.1")])
def test_a_diagnosis_with_a_report_opens_each_side_once(tmp_path, opened, words):
    paths = save_runs(tmp_path)
    sp.compare(*paths, out=tmp_path / "a.cmp", diagnose=False)
    opened.clear()
    syncpoint("diagnose", "a.cmp", "--html", "a.html", *words, cwd=tmp_path, code=1)
    assert opened == dict.fromkeys(paths, 1)


def test_the_tables_of_msprobe_are_written_from_the_runs_of_the_comparison(tmp_path, opened):
    paths = [real(f"tensor_{side}") / "dump.json" for side in ("target", "reference")]
    words = ("--msprobe-csv", "m.csv", "--msprobe-xlsx", "m.xlsx")
    syncpoint("compare", *paths, *words, cwd=tmp_path, code=1)
    assert (tmp_path / "m.csv").exists() and (tmp_path / "m.xlsx").exists()
    assert opened == {path.resolve(): 1 for path in paths}


@pytest.mark.parametrize("words", [["--msprobe-csv", "m.csv"], ["--msprobe-xlsx", "m.xlsx"]])
def test_sides_without_a_table_of_msprobe_are_refused_before_they_are_opened(
    tmp_path, opened, words
):
    paths = save_dumps(tmp_path)
    failed = syncpoint("compare", *paths, *words, cwd=tmp_path, code=2)
    assert "needs two msProbe dumps" in failed.stderr
    failed = syncpoint("compare", "absent.json", paths[1], *words, cwd=tmp_path, code=2)
    assert "absent.json does not exist" in failed.stderr
    assert not opened


def test_a_report_without_a_kept_comparison_saves_none(tmp_path, monkeypatch):
    """It shows the tensors of captured models too, whose runs are gone after the command."""
    from syncpoint.comparison.storage import comparison_folder
    from syncpoint.page import html_report

    def save(*_):
        raise AssertionError("a comparison is saved")

    monkeypatch.setattr(comparison_folder, "save", save)
    pages = []
    monkeypatch.setattr(
        html_report,
        "write_report",
        lambda page, path: pages.append(html_report.collect_answers(page)) or path,
    )
    (tmp_path / "nets.py").write_text(
        "from torch import nn\nimport torch\ntorch.manual_seed(0)\n"
        "target = nn.Sequential(nn.Linear(8, 8), nn.Tanh())\nreference = nn.Sequential(*target)\n"
    )
    words = ("nets.py:target", "nets.py:reference", "--inputs", "random", "--shape", "input=2,8")
    syncpoint("compare", *words, "--html", "a.html", cwd=tmp_path, code=0)
    assert pages[0]["heatmaps"]
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["nets.py"]


def test_a_comparison_keeps_its_runs_only_if_asked(tmp_path, opened):
    paths = save_runs(tmp_path)
    opened.clear()
    comparison = sp.compare(*paths, diagnose=False)
    gc.collect()
    assert comparison.run_references.alive() == {}
    kept = sp.compare(*paths, diagnose=False, keep_runs=True)
    for other in (kept, replace(kept, min_coverage=0.1), kept.judged_by("f16")):
        assert other.run_references.alive().keys() == {"target", "reference"}
    assert sp.diagnose(kept).run_references.alive().keys() == {"target", "reference"}
    assert opened == dict.fromkeys(paths, 2)  # once in each comparison


def test_a_diagnosis_uses_the_runs_that_the_caller_holds(tmp_path, opened):
    paths = save_runs(tmp_path)
    runs = [sp.open_run(path) for path in paths]
    comparison = sp.compare(*runs, diagnose=False)
    opened.clear()
    diagnosed = sp.diagnose(comparison)
    assert diagnosed.diagnosis.absent == {} and diagnosed.findings
    assert not opened
    del runs[1], diagnosed
    gc.collect()
    assert sp.diagnose(comparison).diagnosis.absent == {}
    assert opened == {paths[1]: 1}


def test_a_diagnosis_reads_runs_that_have_no_path():
    rng = np.random.default_rng(0)
    value = rng.random((4, 8)).astype(np.float32)
    target, reference = (
        run(("a", "aten.relu", "", (), value + add)) for add in (np.float32(0.5), np.float32(0))
    )
    comparison = sp.compare(target, reference, diagnose=False)
    assert sp.diagnose(comparison).diagnosis.absent == {}
    del target
    gc.collect()
    assert sp.diagnose(comparison).diagnosis.absent == {"target": "it was not saved"}


def test_a_comparison_sees_the_environment_beside_a_dump(tmp_path):
    target, reference = save_dumps(tmp_path)
    (tmp_path / "target.env.json").write_text('{"cann": "8.0", "threads": 8}')
    comparison = sp.compare(target, reference)
    assert comparison.target["environment"] == {"cann": "8.0", "threads": "8"}
    assert comparison.reference["environment"] == {}


def test_the_diagnosis_sees_the_environment_beside_a_dump(tmp_path):
    """Two dumps that differ slightly, and say why: other threads."""
    target, reference = save_dumps(tmp_path, error=1e-3)
    (tmp_path / "reference.env.json").write_text('{"subnormals": "kept", "torch": "2.0"}')
    (tmp_path / "target.env.json").write_text('{"subnormals": "flushed", "torch": "9.9"}')
    findings = sp.compare(target, reference).findings
    assert any("9.9" in finding.text + finding.title for finding in findings), findings


def test_a_damaged_environment_file_ends_the_comparison(tmp_path):
    target, reference = save_dumps(tmp_path)
    (tmp_path / "target.env.json").write_text('["no object"]')
    with pytest.raises(sp.FormatError, match="plain values"):
        sp.compare(target, reference)
