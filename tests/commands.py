"""Runs a command of syncpoint in this process, on outputs that are pipes or terminals."""

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

from syncpoint.cli import main


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
    before, code = sys.argv, 0
    environment = dict(os.environ)
    if terminal:
        os.environ.update(TERM="xterm-256color", COLUMNS="110")
        os.environ.pop("NO_COLOR", None)
    sys.argv = ["syncpoint", *map(str, words)]
    try:
        with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(environment)
    assert b"Traceback" not in err.bytes, err.bytes.decode()
    return CompletedProcess(words, code, out.bytes, err.bytes)
