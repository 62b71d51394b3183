"""A supervised command: its exit code is its own or 2, and one line says how it ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from syncpoint.supervision import report_to_supervisor
from syncpoint.supervision.scratch_folder import scratch_folder
from syncpoint.supervision.supervisor import supervise
"""


def run(body, *, timeout=60, **options):
    """Run `body` as the command of a supervised process."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    code = f"{PRELUDE}\ndef command():\n{lines}\n\nsys.exit(supervise(command))\n"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, **options
    )


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_the_exit_code_of_a_command_that_finishes_is_its_own(code):
    done = run(f"print('out'); print('err', file=sys.stderr)\nreturn {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_process_that_ends_itself_has_failed_whatever_its_exit_code(code):
    done = run(f"with report_to_supervisor.activity('capturing net'):\n    os._exit({code})")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"syncpoint: the process ended with exit code {code} before it had")
    assert "while capturing net" in line


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE", "SIGBUS", "SIGILL"])
def test_a_native_crash_is_one_line_and_its_stack_is_in_a_file(name, tmp_path):
    done = run(
        f"os.kill(os.getpid(), signal.{name})\ntime.sleep(10)",
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert name in line
    (details,) = tmp_path.glob("syncpoint-crash-*.txt")
    assert str(details) in line
    assert "most recent call first" in details.read_text()


def test_a_killed_process_is_one_line():
    done = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == 2
    assert "killed (SIGKILL)" in done.stderr and done.stderr.count("\n") == 1


def test_a_crash_after_the_work_is_done_changes_nothing():
    body = "import atexit\natexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))\nreturn 1"
    done = run(body)
    assert (done.returncode, done.stderr) == (1, "")


def test_cleanup_runs_after_the_work_is_done(tmp_path):
    done = run(
        "import atexit\nfolder = scratch_folder()\n"
        f"Path({str(tmp_path / 'name')!r}).write_text(folder.name)\n"
        f"atexit.register(Path({str(tmp_path / 'ran')!r}).touch)\nreturn 0"
    )
    assert done.returncode == 0
    assert (tmp_path / "ran").exists()
    assert not Path((tmp_path / "name").read_text()).exists()


def test_temporary_folders_of_a_process_that_crashed_are_removed(tmp_path):
    run(
        "folder = scratch_folder()\n"
        f"Path({str(tmp_path / 'name')!r}).write_text(folder.name)\nos._exit(0)"
    )
    assert not Path((tmp_path / "name").read_text()).exists()


def test_what_was_recorded_before_a_crash_is_named(tmp_path):
    activity = f"report_to_supervisor.activity('capturing net', Path({str(tmp_path)!r}))"
    body = f"with {activity}:\n    os._exit(0)"
    assert "nothing was recorded before that" in run(body).stderr
    (tmp_path / "tensors-00000.partial").touch()
    assert f"what was recorded before is in {tmp_path}" in run(body).stderr


def test_the_activity_is_the_innermost_that_has_not_ended():
    body = (
        "with report_to_supervisor.activity('outer'):\n"
        "    with report_to_supervisor.activity('inner'):\n        pass\n"
        "    os._exit(0)"
    )
    line = run(body).stderr
    assert "while outer" in line and "inner" not in line


def test_a_process_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    body = (
        "import subprocess\nreport_to_supervisor.set_limits(1.0, None)\n"
        f"child = subprocess.Popen(['sleep', '600'])\nPath({str(tmp_path / 'pid')!r}).write_text("
        "str(child.pid))\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    )
    done = run(body)
    assert done.returncode == 2
    assert "not finished after 1 s (--timeout)" in done.stderr and done.stderr.count("\n") == 1
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_memory_of_the_process_and_its_children_counts():
    body = (
        "import subprocess\nreport_to_supervisor.set_limits(None, 300 << 20)\n"
        "eat = 'import time; a = bytearray(b\"x\" * (200 << 20)); time.sleep(600)'\n"
        "for _ in range(2): subprocess.Popen([sys.executable, '-c', eat])\ntime.sleep(600)"
    )
    done = run(body)
    assert done.returncode == 2
    assert "above 300 MiB (--memory)" in done.stderr


def test_a_process_below_its_limits_is_left_alone():
    assert (
        run("report_to_supervisor.set_limits(60.0, 8 << 30)\ntime.sleep(0.3)\nreturn 3").returncode
        == 3
    )


def test_a_process_that_a_model_forks_cannot_report_for_the_command():
    body = (
        "child = os.fork()\nif child == 0:\n    report_to_supervisor.finish(0)\n    os._exit(0)\n"
        "os.waitpid(child, 0)\nos._exit(0)"
    )
    assert run(body).returncode == 2


def test_what_native_code_and_python_printed_comes_out():
    body = "import ctypes\nprint('python')\nctypes.CDLL(None).puts(b'native')\nreturn 0"
    assert sorted(run(body).stdout.split()) == ["native", "python"]


def _take_signals():
    """As a shell starts a command, whatever the tests themselves were started with (nohup)."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def started(body):
    code = f"{PRELUDE}\ndef command():\n{body}\n\nsys.exit(supervise(command))\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_take_signals,
    )
    return process, int(process.stdout.readline())


WAITS = """
    try:
        print(os.getpid(), flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        time.sleep(0.5)
        return 130
"""


@pytest.mark.parametrize("whole_group", [False, True])
def test_an_interrupt_reaches_the_command_once(whole_group):
    process, child = started(WAITS)
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    assert not is_alive(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_command_ends_its_parent_likewise(number):
    process, child = started(WAITS)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-number, "")
    assert not is_alive(child)


def test_the_command_dies_with_its_parent():
    process, child = started(WAITS)
    process.kill()
    process.communicate(timeout=30)
    for _ in range(300):
        if not is_alive(child):
            return
        time.sleep(0.1)
    pytest.fail("the command outlived its parent")


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
