"""A thread that does things in order behind a queue bounded by bytes.

The model must not wait for the disk, nor may a fast model fill the memory while the disk lags.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from syncpoint.errors import InputError, SyncpointError, describe_error

IN_FLIGHT = 256 << 20
"""Bytes that may wait; a single larger tensor is let through alone."""
_BATCH = 16 << 20
_OVERHEAD = 1 << 10
"""What an action weighs beside its values; bounds a flood of ops as well."""
_IDLE_SECONDS = 0.5


class WriteQueue:
    """Runs actions one after another in a thread of its own.

    After an action failed the rest is dropped, and its error is raised by every later call.
    """

    def __init__(self, idle: Callable[[], None], *, in_flight: int = IN_FLIGHT) -> None:
        """`idle` is called when nothing has come for a while."""
        self._idle = idle
        self._limit = in_flight
        self._actions: deque[tuple[Callable[[], object], int]] = deque()
        self._bytes = 0
        self._busy = False
        self._closed = False
        self._error: SyncpointError | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, action: Callable[[], object], nbytes: int = 0) -> None:
        """Have `action` done, which holds `nbytes`; waits while too many are in flight."""
        with self._changed:
            if self._closed:
                raise InputError("a recorder that is still open", "one that has finished")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="syncpoint-recorder", daemon=True
                )
                self._thread.start()
            nbytes += _OVERHEAD
            while self._bytes and self._bytes + nbytes > self._limit and not self._error:
                self._changed.wait()
            self._check()
            self._actions.append((action, nbytes))
            self._bytes += nbytes
            if not self._busy:
                self._changed.notify_all()

    def check(self) -> None:
        """Raise the error of a failed action, if there is one."""
        with self._changed:
            self._check()

    def drain(self) -> None:
        """Wait until all is done."""
        with self._changed:
            while (self._actions or self._busy) and not self._error:
                self._changed.wait()
            self._check()

    def finish(self) -> None:
        """Wait until all is done and end the thread; harmless when repeated."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        done, unflushed = 0, False
        while True:
            with self._changed:
                self._bytes -= done
                self._busy = False
                self._changed.notify_all()
                if not self._actions and not self._closed:
                    self._changed.wait(_IDLE_SECONDS if unflushed else None)
                if not self._actions and self._closed:
                    return
                batch, done = self._take()
                self._busy = True
            try:
                if batch:
                    while batch:
                        batch.popleft()()
                    unflushed = True
                elif unflushed:
                    self._idle()
                    unflushed = False
            except BaseException as error:  # whatever it is must reach the caller
                batch.clear()
                self._fail(error)
                return

    def _take(self) -> tuple[deque[Callable[[], object]], int]:
        """What waits, up to some bytes: a lock for each op would cost more than the op."""
        batch: deque[Callable[[], object]] = deque()
        taken = 0
        while self._actions and taken < _BATCH:
            action, nbytes = self._actions.popleft()
            batch.append(action)
            taken += nbytes
        return batch, taken

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, SyncpointError):
            wrapped = SyncpointError("to write what was recorded", describe_error(error))
            wrapped.__cause__ = error
            error = wrapped
        with self._changed:
            self._error = error
            self._actions.clear()
            self._bytes = 0
            self._changed.notify_all()
