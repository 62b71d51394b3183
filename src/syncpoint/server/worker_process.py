"""A worker as its parent sees it: a process group that is started, listened to, and ended whole."""

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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from syncpoint.errors import CaptureError
from syncpoint.foreign_text import make_visible, strip_colours
from syncpoint.supervision.ending_messages import describe_end, describe_memory, describe_timeout
from syncpoint.supervision.process_tree import memory_of_tree

PATIENCE = 3.0
"""Seconds that a process is given to end by itself when it is cancelled."""
_LONGEST_EVENT = 1 << 20
_LONGEST_LINE = 400
_MOST_AT_ONCE = 200
"""Lines of one piece that are passed on; of more, the last."""
_UNFINISHED = 0.3
"""Seconds after which a line without an end is shown as far as it goes."""
_POLL_S = 0.1
"""Seconds between two looks at the limits."""


@dataclass(frozen=True)
class ProcessLimits:
    """What a worker may use before it is ended."""

    seconds: float | None = None
    memory: int | None = None
    """Resident bytes of the process and all that it started."""


@dataclass(frozen=True)
class Printed:
    """A line that was printed."""

    text: str
    over: bool = False
    """Whether it takes the place of the line before, of which it is a later state: a bar that is
    drawn again, or a line that has gone on."""


class OutputLines:
    """Cuts a stream of bytes in lines of bounded length, whatever is sent."""

    def __init__(self) -> None:
        self._line = b""
        self._told = ""
        """The earlier state of this line that has been passed on."""

    @property
    def unfinished(self) -> bool:
        """Whether there is more in the line than has been passed on."""
        return self._text() not in ("", self._told)

    def take(self, piece: bytes) -> list[Printed]:
        """The lines that a piece ends."""
        found = []
        for part in re.split(rb"(\r\n|\n|\r)", piece):
            if part in (b"\n", b"\r\n", b"\r"):
                found += self.so_far()
                self._line = b""
                if part != b"\r":
                    self._told = ""
            else:
                # Beyond what is shown of a line nothing is kept; a letter takes 4 bytes at most.
                self._line = (self._line + part)[: 4 * _LONGEST_LINE]
        return found

    def so_far(self) -> list[Printed]:
        """The line that has not ended yet, if there is news in it."""
        if not self.unfinished:
            return []
        found = Printed(self._text(), over=bool(self._told))
        self._told = found.text
        return [found]

    def _text(self) -> str:
        plain = strip_colours(self._line.decode("utf-8", "replace")).strip()
        return make_visible(plain[:_LONGEST_LINE])[:_LONGEST_LINE]


class Process:
    """One worker. It ends with its parent, whose end of its stdin is then closed."""

    def __init__(self, order: Mapping[str, Any], limits: ProcessLimits | None = None) -> None:
        self._limits = limits or ProcessLimits()
        self._exceeded = ""
        self._process = subprocess.Popen(
            # -P: a file of the current folder must not stand in for a module of Python's own.
            [sys.executable, "-P", "-m", "syncpoint.workers.comparison_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # What a model prints is wanted while it runs, not when its buffer is full.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
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

    def printed(self) -> Iterator[list[Printed]]:
        """What the models print, as it comes."""
        assert self._process.stderr is not None
        handle = self._process.stderr.fileno()
        lines = OutputLines()
        while True:
            if lines.unfinished and not select.select([handle], [], [], _UNFINISHED)[0]:
                yield lines.so_far()
            piece = os.read(handle, 1 << 16)
            if found := lines.take(piece) if piece else lines.so_far():
                yield found[-_MOST_AT_ONCE:]
            if not piece:
                return

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

    def failure(self) -> CaptureError:
        """Why it ended without a word, once it has ended."""
        cure = "read the last lines of the log"
        if self._exceeded:
            return CaptureError(f"the models did not run to their end: {self._exceeded}", cure=cure)
        event, cause = describe_end(self._process.returncode)
        problem = f"the models did not run to their end: {event}"
        return CaptureError(problem, cure=f"{cause}; {cure}")

    def _take_along(self) -> None:
        """When the process has ended, end what it started and left running.

        It is not reaped before that, so that its number can belong to no other group.
        """
        if self._limits != ProcessLimits():
            self._watch_limits()
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._over.set()

    def _watch_limits(self) -> None:
        """End the process if it uses more than its limits; return when it has ended."""
        began = time.monotonic()
        seconds, memory = self._limits.seconds, self._limits.memory
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self.pid, ended) is None:
            if seconds is not None and time.monotonic() - began > seconds:
                self._exceeded = describe_timeout(seconds)
            elif memory is not None and (used := memory_of_tree(self.pid)) > memory:
                self._exceeded = describe_memory(used, memory)
            if self._exceeded:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                return
            time.sleep(_POLL_S)
