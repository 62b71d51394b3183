"""A worker process as the server sees it: start it, read its events and output lines, limit it,
stop it with all descendants."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from syncpoint.errors import CaptureError
from syncpoint.foreign_text import make_visible, strip_colours
from syncpoint.supervision.ending_messages import describe_end, describe_memory, describe_timeout
from syncpoint.supervision.process_tree import memory_of_tree

STOP_SECONDS = 3.0
"""Time that a process has to end by itself when it is cancelled."""
_MAX_EVENT_BYTES = 1 << 20
_MAX_LINE_CHARS = 400
_MAX_LINES_PER_READ = 200
"""Lines of one read that are passed on: the last ones."""
_FLUSH_SECONDS = 0.3
"""Time after which a line without an end is shown as far as it goes."""
_POLL_SECONDS = 0.1
"""Time between two checks of the limits."""


@dataclass(frozen=True)
class ProcessLimits:
    """What a worker may use before it is stopped."""

    seconds: float | None = None
    memory: int | None = None
    """Resident bytes of the process and all that it started."""


@dataclass(frozen=True)
class OutputLine:
    """A line that was printed."""

    text: str
    replaces_last: bool = False
    """Whether it replaces the line before, of which it is a later state: a progress bar that is
    drawn again, or a line that has become longer."""


class OutputLines:
    """Splits a stream of bytes into lines of limited length."""

    def __init__(self) -> None:
        self._line = b""
        self._passed_on = ""
        """The earlier state of this line that has been passed on."""

    @property
    def has_unfinished_line(self) -> bool:
        """Whether there is more in the line than has been passed on."""
        return self._text() not in ("", self._passed_on)

    def add_bytes(self, piece: bytes) -> list[OutputLine]:
        """Add bytes; return the lines that they complete."""
        lines = []
        for part in re.split(rb"(\r\n|\n|\r)", piece):
            if part in (b"\n", b"\r\n", b"\r"):
                lines += self.flush()
                self._line = b""
                if part != b"\r":
                    self._passed_on = ""
            else:
                # Only what can be shown is kept; a character takes at most 4 bytes.
                self._line = (self._line + part)[: 4 * _MAX_LINE_CHARS]
        return lines

    def flush(self) -> list[OutputLine]:
        """Return the line that has not ended yet, if it has changed."""
        if not self.has_unfinished_line:
            return []
        line = OutputLine(self._text(), replaces_last=bool(self._passed_on))
        self._passed_on = line.text
        return [line]

    def _text(self) -> str:
        plain = strip_colours(self._line.decode("utf-8", "replace")).strip()
        return make_visible(plain[:_MAX_LINE_CHARS])[:_MAX_LINE_CHARS]


class WorkerProcess:
    """One worker. It ends with its parent, because its stdin is then closed."""

    def __init__(self, order: Mapping[str, Any], limits: ProcessLimits | None = None) -> None:
        self._limits = limits or ProcessLimits()
        self._exceeded = ""
        self._process = subprocess.Popen(
            # -P: a file of the current folder must not replace a module of the standard library.
            [sys.executable, "-P", "-m", "syncpoint.workers.comparison_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # What a model prints is shown while it runs, not when its buffer is full.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._ended = threading.Event()
        threading.Thread(target=self._kill_descendants, daemon=True).start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """The number of the process, and of its process group."""
        return self._process.pid

    def read_events(self) -> Iterator[dict[str, Any]]:
        """Yield the events it sends, until it ends; lines that are not events are skipped."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(_MAX_EVENT_BYTES):
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def read_output(self) -> Iterator[list[OutputLine]]:
        """Yield what the models print, as it comes."""
        assert self._process.stderr is not None
        handle = self._process.stderr.fileno()
        lines = OutputLines()
        while True:
            if lines.has_unfinished_line and not select.select([handle], [], [], _FLUSH_SECONDS)[0]:
                yield lines.flush()
            piece = os.read(handle, 1 << 16)
            if new_lines := lines.add_bytes(piece) if piece else lines.flush():
                yield new_lines[-_MAX_LINES_PER_READ:]
            if not piece:
                return

    def run_to_end(self, seconds: float) -> dict[str, Any]:
        """Wait until it has ended, and return its last event; stop it after so many seconds."""
        timer = threading.Timer(seconds, self.stop)
        timer.start()
        # Read what the models print, so that its pipe does not fill up.
        threading.Thread(target=lambda: deque(self.read_output(), 0), daemon=True).start()
        last_event: dict[str, Any] = {}
        for event in self.read_events():
            last_event = event
        self.wait()
        timer.cancel()
        return last_event

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        self._ended.wait()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return code

    def stop(self) -> None:
        """Stop it and all processes it started: by SIGINT, then by SIGKILL."""
        if self._ended.is_set():
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGINT)
        if not self._ended.wait(STOP_SECONDS):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def describe_failure(self) -> CaptureError:
        """Return why it ended without an event that says so, once it has ended."""
        cure = "read the last lines of the log"
        if self._exceeded:
            return CaptureError(
                f"running the models failed: {self._exceeded}", cure=f"raise this limit, or {cure}"
            )
        event, cause = describe_end(self._process.returncode)
        problem = f"running the models failed: {event}"
        return CaptureError(problem, cure=f"{cause}; {cure}")

    def _kill_descendants(self) -> None:
        """When the process has ended, kill the processes that it started and left running.

        It is not reaped before that, so that no other process group can get its number.
        """
        if self._limits != ProcessLimits():
            self._watch_limits()
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._ended.set()

    def _watch_limits(self) -> None:
        """Kill the process if it uses more than its limits; return when it has ended."""
        started = time.monotonic()
        seconds, memory = self._limits.seconds, self._limits.memory
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self.pid, ended) is None:
            if seconds is not None and time.monotonic() - started > seconds:
                self._exceeded = describe_timeout(seconds)
            elif memory is not None and (used := memory_of_tree(self.pid)) > memory:
                self._exceeded = describe_memory(used, memory)
            if self._exceeded:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                return
            time.sleep(_POLL_SECONDS)
