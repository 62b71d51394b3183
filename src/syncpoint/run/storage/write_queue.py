"""A queue, bounded by bytes, whose thread carries out writes in order, so that the model does not
wait for the disk.

The model must not wait for the disk, and a fast model must not fill the memory while the disk is
slow.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from syncpoint.errors import InputError, SyncpointError, describe_error

IN_FLIGHT = 256 << 20
"""Bytes that may wait; a single larger tensor is let through alone."""
_BATCH_BYTES = 16 << 20
_ACTION_BYTES = 1 << 10
"""Bytes that count for an action in addition to its values; bounds the number of ops too."""
_IDLE_SECONDS = 0.5


class WriteQueue:
    """Runs actions one after another in its own thread.

    After an action failed, the others are dropped, and every later call raises its error.
    """

    def __init__(self, idle: Callable[[], None], *, in_flight: int = IN_FLIGHT) -> None:
        """`idle` is called when no action was added for a while."""
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
        """Add `action`, which holds `nbytes`; waits while too many bytes are in flight."""
        with self._changed:
            if self._closed:
                raise InputError(
                    "nothing can be recorded: the recorder has finished",
                    cure="record before it finishes",
                )
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="syncpoint-recorder", daemon=True
                )
                self._thread.start()
            nbytes += _ACTION_BYTES
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
        """Wait until all actions are done."""
        with self._changed:
            while (self._actions or self._busy) and not self._error:
                self._changed.wait()
            self._check()

    def finish(self) -> None:
        """Wait until all actions are done and end the thread; may be called repeatedly."""
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
                batch, done = self._take_batch()
                self._busy = True
            try:
                if batch:
                    while batch:
                        batch.popleft()()
                    unflushed = True
                elif unflushed:
                    self._idle()
                    unflushed = False
            except BaseException as error:  # every error must reach the caller
                batch.clear()
                self._fail(error)
                return

    def _take_batch(self) -> tuple[deque[Callable[[], object]], int]:
        """Take a batch of actions: locking once per op would cost more than the op."""
        batch: deque[Callable[[], object]] = deque()
        batch_bytes = 0
        while self._actions and batch_bytes < _BATCH_BYTES:
            action, nbytes = self._actions.popleft()
            batch.append(action)
            batch_bytes += nbytes
        return batch, batch_bytes

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, SyncpointError):
            wrapped = SyncpointError(f"the recording cannot be written: {describe_error(error)}")
            wrapped.__cause__ = error
            error = wrapped
        with self._changed:
            self._error = error
            self._actions.clear()
            self._bytes = 0
            self._changed.notify_all()
