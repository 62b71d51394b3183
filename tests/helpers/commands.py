"""Run a command of syncpoint: in this process, on pipes or terminals, or in a new process."""

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

from syncpoint.cli import main

SYNCPOINT = [sys.executable, "-c", "from syncpoint.cli import main; main()"]


class Output(io.TextIOWrapper):
    """A stream as Python gives one to a program: what cannot be encoded is an error."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def bytes(self) -> bytes:
        return self.buffer.getvalue()  # type: ignore[attr-defined]


def run_command(*words, cwd, terminal=False) -> CompletedProcess:
    """Exit code and the bytes of both outputs; a traceback fails."""
    out, err = Output(terminal), Output(terminal)
    environment = dict(os.environ)
    if terminal:
        os.environ.update(TERM="xterm-256color", COLUMNS="110")
        os.environ.pop("NO_COLOR", None)
    try:
        code = _call_main(words, cwd, out, err)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    assert b"Traceback" not in err.bytes, err.bytes.decode()
    return CompletedProcess(words, code, out.bytes, err.bytes)


def syncpoint(*arguments, cwd, code=None, env=None, process=False):
    """Run a command: in this process, which has torch loaded already, or in one of its own."""
    words = list(map(str, arguments))
    if process or env:
        found = subprocess.run(
            [*SYNCPOINT, *words],
            cwd=cwd,
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            timeout=300,
        )
    else:
        out, err = io.StringIO(), io.StringIO()
        exit_code = _call_main(words, cwd, out, err)
        found = CompletedProcess(words, exit_code, out.getvalue(), err.getvalue())
    assert "Traceback" not in found.stderr, found.stderr
    if code is not None:
        assert found.returncode == code, (found.returncode, found.stdout, found.stderr)
    return found


def _call_main(words, cwd, out, err) -> int:
    """The exit code of `syncpoint` with these words in this process, writing to these streams."""
    before = sys.argv
    sys.argv = ["syncpoint", *map(str, words)]
    try:
        with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        return stop.code or 0
    finally:
        sys.argv = before
    return 0
