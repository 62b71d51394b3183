"""A worker as the server sees it: a process group that is started, listened to, and ended whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from syncpoint.page.schema import Problem

PATIENCE = 3.0
"""Seconds that a process is given to end by itself when it is cancelled."""
_LONGEST_EVENT = 1 << 20
_LONGEST_LINE = 400


class Process:
    """One worker. It ends with the server, whose end of its stdin is then closed."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            # -P: a file of the current folder must not stand in for a module of Python's own.
            [sys.executable, "-P", "-m", "syncpoint.server.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._over = threading.Event()
        threading.Thread(target=self._take_along, daemon=True).start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    def events(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends; what is no event is passed over."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(_LONGEST_EVENT):
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def printed(self) -> Iterator[str]:
        """What the models print, line by line, each cut where it is long."""
        assert self._process.stderr is not None
        while line := self._process.stderr.readline(1 << 16):
            text = line.decode("utf-8", "replace").strip()[:_LONGEST_LINE]
            if text:
                yield text

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        self._over.wait()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return code

    def end(self) -> None:
        """End it and all that it started: politely, then not."""
        if self._over.is_set():
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGINT)
        if not self._over.wait(PATIENCE):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _take_along(self) -> None:
        """When the process has ended, end what it started and left running.

        It is not reaped before that, so that its number can belong to no other group.
        """
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._over.set()


def how_it_ended(code: int) -> Problem:
    """Words for a worker that ended without a word."""
    expected = "the models to run to their end"
    if code < 0:
        with suppress(ValueError):
            return Problem(
                expected=expected,
                found=f"the process was ended by {signal.Signals(-code).name}",
                cure="a model or a runtime crashed, or memory ran out; the log has its last words",
            )
    return Problem(
        expected=expected,
        found=f"the process ended with {code} before the comparison was made",
        cure="the log has its last words",
    )
