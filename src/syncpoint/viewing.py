"""Looking at a comparison from Python: the server in a process of its own, ended by whoever
started it or with the interpreter."""

from __future__ import annotations

import atexit
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from syncpoint.errors import CaptureError, InputError


class View:
    """A comparison that is being served."""

    def __init__(self, process: subprocess.Popen[str], address: str, keep: object) -> None:
        self._process = process
        self._keep = keep
        self.address = address
        """What to open in a browser."""
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the server."""
        atexit.unregister(self.stop)
        self._process.terminate()
        self._process.wait()
        self._keep = None

    def __repr__(self) -> str:
        return f"<View {self.address}>"


def view(saved: Path, port: int | None, browser: bool, keep: TemporaryDirectory[str]) -> View:
    """Serve a saved comparison; `keep` lives as long as it is served."""
    code = "from syncpoint.cli import main; main()"
    command = [sys.executable, "-c", code, "view", str(saved)]
    command += [] if port is None else ["--port", str(port)]
    command += [] if browser else ["--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None and process.stderr is not None
    address = process.stdout.readline().strip()
    if not address:
        found = process.stderr.read().strip()
        process.wait()
        raise (InputError if process.returncode == 2 else CaptureError)(
            "a server for the comparison", found.removeprefix("syncpoint: ") or "none"
        )
    return View(process, address, keep)
