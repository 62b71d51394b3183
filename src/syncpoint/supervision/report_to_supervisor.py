"""Messages that a supervised command sends to its supervisor: limits, current activity, interrupt
received, finished, scratch folders to remove.

Messages are lines of JSON in a pipe. Without a supervisor (the Python API, tests) every function
here does nothing, so callers need not check.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_MAX_TEXT = 300
"""Maximum length of an activity that is sent; names may be long."""


class _Channel:
    """The pipe to the supervisor. Only the supervised process itself sends: a process that a model
    forks inherits the pipe and must not report that the command has finished."""

    def __init__(self) -> None:
        self._pipe: int | None = None
        self._pid = 0
        self.activity = ("", "")

    @property
    def is_open(self) -> bool:
        return self._pipe is not None and self._pid == os.getpid()

    def open(self, pipe: int) -> None:
        self._pipe, self._pid = pipe, os.getpid()

    def send(self, **message: Any) -> None:
        if not self.is_open or self._pipe is None:
            return
        import json

        with suppress(OSError):
            os.write(self._pipe, json.dumps(message).encode() + b"\n")

    def report(self, activity: str, recording: str) -> None:
        self.activity = (activity, recording)
        self.send(activity=activity, recording=recording)


_channel = _Channel()


def connect(pipe: int) -> None:
    """Set the pipe; the supervisor calls this once in the child."""
    _channel.open(pipe)


def is_supervised() -> bool:
    """Whether a supervisor watches this process."""
    return _channel.is_open


def set_limits(timeout: float | None, memory: int | None) -> None:
    """Ask the supervisor to end the command after `timeout` seconds or above `memory` bytes."""
    _channel.send(timeout=timeout, memory=memory)


@contextmanager
def activity(text: str, recording: Path | None = None) -> Iterator[None]:
    """Report what the command does now; the supervisor names it if the process crashes.

    `recording` is a run that is being written and stays readable if the process ends.
    """
    outer = _channel.activity
    _channel.report(text[:_MAX_TEXT], "" if recording is None else str(recording))
    try:
        yield
    finally:
        _channel.report(*outer)


def acknowledge_interrupt() -> None:
    """Report that this process has received an interrupt, so that it is not sent again."""
    _channel.send(interrupted=True)


def finish(code: int) -> None:
    """Report that the command has finished. A process that ends without this has failed, whatever
    its exit code is."""
    _channel.send(finished=code)


def register_scratch_folder(folder: str) -> None:
    """Ask the supervisor to remove this temporary folder if this process cannot."""
    _channel.send(scratch=folder)
