"""A worker that takes too long or too much memory is ended, and says which."""

from collections import deque

import pytest

from syncpoint.server.worker_process import ProcessLimits, WorkerProcess


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (ProcessLimits(seconds=1.0), "not finished after 1 s (--timeout)"),
        (ProcessLimits(memory=20 << 20), "above 20 MiB (--memory)"),
    ],
)
def test_a_worker_beyond_its_limits_is_ended(tmp_path, limits, words):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)\n")
    order = {"model": f"{tmp_path / 'slow.py'}:net", "runtime": "torch", "options": {}}
    process = WorkerProcess({"check": order}, limits)
    deque(process.read_events(), 0)
    assert process.wait() != 0
    assert words in process.describe_failure().problem


def test_a_worker_that_is_ended_from_outside_says_by_what(tmp_path):
    (tmp_path / "slow.py").write_text("import os\nos._exit(0)\n")
    order = {"model": f"{tmp_path / 'slow.py'}:net", "runtime": "torch", "options": {}}
    process = WorkerProcess({"check": order})
    deque(process.read_events(), 0)
    process.wait()
    assert "ended with exit code 0 before it had finished" in process.describe_failure().problem
