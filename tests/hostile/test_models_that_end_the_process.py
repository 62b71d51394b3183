"""A model that exits, crashes or hangs: one line, exit code 2, and what was recorded stays."""

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader

import pytest

import syncpoint as sp
from syncpoint.errors import CaptureError

MODEL = """
import ctypes, os, sys, time
import torch


class Net(torch.nn.Module):
    def __init__(self, how=""):
        super().__init__()
        self.how = how
        self.calls = 0

    def forward(self, x):
        x = torch.relu(x)
        self.calls += 1
        if self.how == "SystemExit":
            raise SystemExit(0)
        if self.how == "exit":
            sys.exit("done")
        if self.how == "os._exit":
            os._exit(0)
        if self.how == "crash":
            ctypes.string_at(0)
        if self.how == "hang":
            time.sleep(600)
        if self.how == "late" and self.calls > 2:
            os._exit(0)
        return torch.tanh(x)


def reference(): return Net()
def system_exit(): return Net("SystemExit")
def os_exit(): return Net("os._exit")
def crash(): return Net("crash")
def hang(): return Net("hang")
def inputs(): return (torch.ones(2, 3),)
def bad_inputs(): raise SystemExit(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ends")
    (folder / "net.py").write_text(MODEL)
    return folder


def syncpoint(folder, *words):
    command = [sys.executable, "-c", "from syncpoint.cli import main; main()", *map(str, words)]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def the_line(done):
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("syncpoint: "))
    assert "Traceback" not in done.stderr
    return line


def test_a_comparison_with_a_model_that_ends_python_is_no_pass(folder):
    words = ("compare", "net.py:system_exit", "net.py:reference", "--inputs", "net.py:inputs")
    line = the_line(syncpoint(folder, *words))
    assert "the model raised SystemExit(0) at" in line and "net.py" in line


def test_a_comparison_with_a_model_that_ends_the_process_is_no_pass(folder):
    words = ("compare", "net.py:os_exit", "net.py:reference", "--inputs", "net.py:inputs")
    line = the_line(syncpoint(folder, *words, "-o", "ended.cmp", "--json", "out.json"))
    assert "exit code 0 before it had finished while capturing net.py:os_exit" in line
    assert not (folder / "out.json").exists()
    assert not [path for path in folder.glob("syncpoint-*") if path.is_dir()]
    assert sp.open_run(folder / "ended.cmp" / "reference.run").info.complete


def test_a_crash_of_a_model_names_the_run_and_a_file_with_the_stack(folder):
    words = ("capture", "net.py:crash", "--inputs", "net.py:inputs", "-o", "crash.run")
    line = the_line(syncpoint(folder, *words))
    assert "SIGSEGV" in line and "nothing was recorded before that" in line
    assert not sp.open_run(folder / "crash.run").info.complete
    (details,) = folder.glob("syncpoint-crash-*.txt")
    assert str(details) in line and "in forward" in details.read_text()


def test_a_model_that_hangs_is_ended_by_the_time_limit(folder):
    words = ("capture", "net.py:hang", "--inputs", "net.py:inputs", "-o", "hang.run")
    line = the_line(syncpoint(folder, *words, "--timeout", "6"))
    assert "not finished after 6 s (--timeout)" in line


@pytest.mark.parametrize("how", ["SystemExit", "exit"])
def test_the_python_api_raises_a_capture_error(folder, how):
    # Other tests have modules of this name.
    net = SourceFileLoader("ends_net", str(folder / "net.py")).load_module()
    with pytest.raises(CaptureError, match="before it finished"):
        sp.capture(net.Net(how), net.inputs())
    with pytest.raises(CaptureError, match="before it finished"):
        sp.compare(net.Net(how), net.Net(), inputs=net.inputs())
    with pytest.raises(CaptureError, match="before it finished"):
        sp.capture(net.Net(), f"{folder / 'net.py'}:bad_inputs")


CRASHES = """
import sys
from types import ModuleType
from syncpoint.cli import main

def open_run(path):
    raise {error}

sys.modules["syncpoint.api"] = api = ModuleType("api")
api.open_run = open_run
main()
"""


def crashing(error, folder, supervise="1"):
    return subprocess.run(
        [sys.executable, "-c", CRASHES.format(error=error), "inspect", "a.cmp"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "SYNCPOINT_SUPERVISE": supervise},
    )


@pytest.mark.parametrize("supervise", "01")
@pytest.mark.parametrize(
    "error",
    [
        *("EOFError()", "OSError(32, 'pipe')", "BaseException('panic')", "RecursionError()"),
        *("SystemExit(1)", "SystemExit(0)", "UnicodeDecodeError('utf-8', b'', 0, 1, 'bad')"),
    ],
)
def test_an_error_that_nobody_expected_is_one_line_and_never_exit_code_1(
    tmp_path, error, supervise
):
    done = crashing(error, tmp_path, supervise)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.count("\n") <= 1, done.stderr
    assert "Traceback" not in done.stderr


def test_the_details_of_an_error_that_nobody_expected_are_in_a_file(tmp_path):
    done = crashing("IndexError('list index\\n out of range')", tmp_path)
    assert "internal error (IndexError: list index out of range)" in done.stderr
    (details,) = tmp_path.glob("syncpoint-crash-*.txt")
    assert str(details) in done.stderr and "in open_run" in details.read_text()


def test_memory_that_runs_out_is_said_plainly(tmp_path):
    done = crashing("MemoryError()", tmp_path)
    assert done.returncode == 2 and "out of memory" in done.stderr


def test_limits_need_a_supervisor(folder):
    done = subprocess.run(
        [sys.executable, "-c", "from syncpoint.cli import main; main()", "capture",
         "net.py:reference", "-o", "a.run", "--timeout", "5"],
        cwd=folder, capture_output=True, text=True,
        env={**os.environ, "SYNCPOINT_SUPERVISE": "0"},
    )  # fmt: skip
    assert done.returncode == 2 and "SYNCPOINT_SUPERVISE" in done.stderr


def test_a_reader_that_goes_away_is_no_divergence_and_no_fault_of_a_model(folder):
    command = [sys.executable, "-c", "from syncpoint.cli import main; main()", "doctor"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 2 and errors == ""


def test_a_report_whose_reader_goes_away_says_nothing(tmp_path):
    import numpy as np

    values = {f"op{i}": np.arange(4.0) + i for i in range(400)}
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", **values)
    command = [sys.executable, "-c", "from syncpoint.cli import main; main()", "compare"]
    with subprocess.Popen(
        [*command, "a.npz", "b.npz", "--rows", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 2 and errors == ""
