"""Folders with models and runs for sessions, and a real server over them."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from helpers.model_sources import tanh_stack

MODEL = (
    tanh_stack(4)
    + """
import os
import signal
import subprocess
import sys
import time


def raising():
    raise RuntimeError("no weights here")


def crashing():
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hanging():
    child = subprocess.Popen(["sleep", "300"])
    print("waiting with", child.pid, flush=True)
    time.sleep(300)


def waiting():
    print("waiting for go")
    while not os.path.exists("go"):
        time.sleep(0.05)
    return Net().eval()


def inputs():
    return (torch.ones(2, 16),)
"""
)


def write_dumps(folder: Path) -> None:
    """Two dumps that compare in a moment: `b` of the target is off."""
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    np.savez(folder / "reference.npz", a=x, b=2 * x)
    np.savez(folder / "target.npz", a=x, b=3 * x)


def write_models(folder: Path) -> None:
    (folder / "net.py").write_text(MODEL)


class Server:
    """A session in a process of its own, spoken to as a page does."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", "from syncpoint.cli import main; main()", "session"),
                *(*words, "--port", "0", "--no-browser"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        self.address = self.process.stdout.readline().strip()
        self.base, _, self.token = self.address.partition("/?token=")

    def ask(self, path: str, body: object = None, post: bool = False, **headers: str):
        """Status and answer."""
        data = json.dumps(body).encode() if body is not None else (b"" if post else None)
        said = {"x-syncpoint-token": self.token, "content-type": "application/json", **headers}
        request = urllib.request.Request(f"{self.base}/api/session{path}", data, said)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            return error.code, json.loads(text) if text.startswith("{") else text

    def until(self, job: str, *states: str, says: str = "", within: float = 60) -> dict:
        """The job once it is in one of the states, or has printed `says`."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            _, found = self.ask(f"/jobs/{job}")
            if found["state"] in states or (says and any(says in x["text"] for x in found["log"])):
                return found
            time.sleep(0.1)
        raise AssertionError(f"{job} is {found['state']} after {within} s: {found}")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def gone(pid: int, within: float = 10) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False
