"""What the command line can do, the Python interface can."""

import subprocess
import sys

import numpy as np
import pytest

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.msprobe_dumps import real
from helpers.small_runs import run
from syncpoint import errors
from syncpoint.ascend.msprobe.write_table import write_msprobe_csv


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    values = {name: rng.random((4, 8)).astype(np.float32) for name in "abc"}
    np.savez(tmp_path / "reference.npz", **values)
    np.savez(tmp_path / "target.npz", **{**values, "b": values["b"] * np.float32(1.0001)})
    return tmp_path / "target.npz", tmp_path / "reference.npz"


def test_errors_are_public_and_the_package_imports_none_of_its_rooms():
    for name in (
        *("SyncpointError", "InputError", "WriteError", "FormatError", "DamagedError"),
        *("MissingExtra", "CaptureError", "Unsupported", "SyncpointWarning"),
    ):
        assert getattr(sp, name) is getattr(errors, name)
        assert name in sp.__all__
    code = (
        "import sys, syncpoint\n"
        "print(*(m for m in sys.modules if m.startswith('syncpoint.')))\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["syncpoint.version", "False"]


def test_a_comparison_is_judged_and_printed_as_the_command_line_does(paths):
    comparison = sp.compare(*paths)
    assert comparison.exit_code() == 0
    coarse = comparison.judged_by("exact")
    assert coarse.exit_code() == 1 and coarse.verdict == "large"
    assert coarse.exit_code(fail_on="moderate") == 1
    assert comparison.exit_code(min_coverage=1.0) == 0
    assert coarse.headline in coarse.to_text()
    assert str(comparison) == comparison.to_text()
    assert "rmse" in comparison.to_text(metric="rmse", sort="operation", rows=1).lower()
    with pytest.raises(sp.InputError, match="leave one out"):
        comparison.judged_by("f16", "limits.yaml")


def test_a_diagnosis_is_saved_into_a_comparison(paths, tmp_path):
    sp.compare(*paths, out=tmp_path / "a.cmp", diagnose=False)
    assert sp.open_comparison(tmp_path / "a.cmp").diagnosis is None
    assert sp.diagnose(tmp_path / "a.cmp").save_diagnosis(tmp_path / "a.cmp")
    assert sp.open_comparison(tmp_path / "a.cmp").diagnosis is not None


def test_the_texts_of_a_comparison_are_those_of_the_command_line(paths, tmp_path):
    comparison = sp.compare(*paths, preset="exact", out=tmp_path / "a.cmp")
    words = ("compare", *paths, "--preset", "exact", "-q")
    assert syncpoint(*words, cwd=tmp_path, code=1).stdout == f"{comparison.quiet_text()}\n"
    assert comparison.quiet_text().splitlines()[-1] == comparison.headline
    printed = syncpoint("diagnose", "a.cmp", cwd=tmp_path, code=1).stdout
    assert sp.diagnose(tmp_path / "a.cmp").diagnosis_text() == printed
    assert "not diagnosed" in sp.compare(*paths, diagnose=False).diagnosis_text()


def test_a_quiet_text_says_which_inputs_differ_before_the_verdict():
    runs = [run(("a", "", "", ("x",), np.ones(4)), inputs=[("x", np.full(4, x))]) for x in (1, 2)]
    comparison = sp.compare(*runs)
    first, *_, last = comparison.quiet_text().splitlines()
    assert "x" in first and "differ" in first
    assert last == comparison.headline


@pytest.mark.parametrize("at_hand", [True, False])
def test_the_tables_of_msprobe(tmp_path, at_hand):
    sides = [real(f"tensor_{side}") / "dump.json" for side in ("target", "reference")]
    runs = [sp.open_run(side) for side in sides]
    expected = write_msprobe_csv(*runs, tmp_path / "expected.csv").read_bytes()
    comparison = sp.compare(*(runs if at_hand else sides), diagnose=False)
    assert comparison.to_msprobe_csv(tmp_path / "a.csv").read_bytes() == expected
    assert comparison.to_msprobe_xlsx(tmp_path / "a.xlsx").read_bytes().startswith(b"PK")
    sp.write_msprobe_tables(*sides, csv=tmp_path / "b.csv", xlsx=tmp_path / "b.xlsx")
    assert (tmp_path / "b.csv").read_bytes() == expected
    assert (tmp_path / "b.xlsx").read_bytes().startswith(b"PK")


def test_the_tables_of_msprobe_need_its_dumps(paths, tmp_path):
    with pytest.raises(sp.InputError, match="two dumps of msProbe"):
        sp.compare(*paths).to_msprobe_csv(tmp_path / "a.csv")


def test_convert_writes_another_format(paths, tmp_path):
    done = sp.convert(paths[0], tmp_path / "a.safetensors", to="safetensors")
    assert (done.path, done.tensors, done.left_out) == (tmp_path / "a.safetensors", 3, 0)
    assert sp.compare(done.path, paths[0]).verdict == "close"
    with pytest.raises(sp.InputError, match="exists"):
        sp.convert(sp.open_run(paths[0]), done.path, to="npz")


def test_doctor_lists_runtimes_and_formats():
    installed = sp.doctor()
    assert installed.version == sp.__version__ and installed.kernel
    torch = next(runtime for runtime in installed.runtimes if runtime.name == "torch")
    assert torch.version and "dtype" in [option.name for option in torch.options]
    assert torch.cure == "pip install 'syncpoint[torch]'"
    written = {dump.name: dump.is_written for dump in installed.formats}
    assert written["npz"] and not all(written.values())


def test_verify_keeps_its_result_as_json(paths, tmp_path):
    import json

    done = sp.verify(paths[0])
    assert json.loads(done.to_json(tmp_path / "v.json").read_text()) == done.as_dict()


def test_a_session_needs_the_packages_of_the_server(monkeypatch):
    from syncpoint.server import run_server as serving

    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    with pytest.raises(sp.MissingExtra, match="web"):
        sp.session()
