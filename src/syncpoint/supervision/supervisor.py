"""The parent of a command: starts it in a child process, watches it, and tells how it ended.

A model is code: it may crash, exit, hang or eat all memory. In a child process it does so alone,
and the command still ends with one line and an exit code that means what it says: a child that
did not report its own exit code has failed.

The child is forked before anything but the standard library is loaded, so it costs a few
milliseconds and no thread or lock is copied. It stays in the process group of its parent: in
`syncpoint ... | less` both belong to the pipeline, and Ctrl-C and Ctrl-Z reach all of it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from syncpoint.errors import EXIT_FAILED, EXIT_INTERRUPTED

SWITCH = "SYNCPOINT_SUPERVISE"
"""Environment variable; 0 runs commands in the process itself, for debuggers and profilers."""
_POLL_S = 0.1
"""Seconds between two looks at the limits."""
_ACKNOWLEDGE_S = 0.5
"""Seconds after which an interrupt that the child has not told of is passed on to it."""
_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)


def can_supervise() -> bool:
    """Whether a child can be forked safely: nothing that starts threads is loaded yet."""
    loaded = any(name in sys.modules for name in ("numpy", "polars", "torch"))
    return hasattr(os, "fork") and not loaded and os.environ.get(SWITCH) != "0"


def supervise(command: Callable[[], int]) -> int:
    """Run `command`, which returns its exit code, in a child process; return the exit code."""
    control_end, control = os.pipe()
    stack_end, stack = os.pipe()
    parent = os.getpid()
    waiting = _Waiting()
    child = os.fork()
    if child:
        os.close(control)
        os.close(stack)
        return _Supervisor(child, control_end, stack_end, waiting).wait()
    for pipe in (control_end, stack_end):
        os.close(pipe)
    # Until the child has its own handler, an interrupt waits: Python's would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    waiting.restore()
    _run_child(command, parent, control, stack)


def _run_child(command: Callable[[], int], parent: int, control: int, stack: int) -> NoReturn:
    """The child's whole life. It leaves by os._exit, so that no caller goes on twice and native
    libraries that crash in their own cleanup cannot."""
    import atexit
    import faulthandler

    from syncpoint.supervision import child_channel
    from syncpoint.supervision.process_tree import die_with_parent

    child_channel.connect(control)
    die_with_parent(parent)
    if not faulthandler.is_enabled():
        faulthandler.enable(stack)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    code = EXIT_FAILED
    try:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            code = command()
        except KeyboardInterrupt:  # before the command could deal with it, or in its last lines
            code = EXIT_INTERRUPTED
        code = _flush(code)
        child_channel.finish(code)
        atexit._run_exitfuncs()
        _flush(code)
    finally:
        os._exit(code)


def _flush(code: int) -> int:
    """Bring out all that was printed: the parent trusts the reported code from here on."""
    with suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).fflush(None)  # what native code printed
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader went away, as `head` does
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = EXIT_FAILED
    return code


def _interrupt(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt, and tell the parent: Ctrl-C in a terminal reaches both processes,
    a signal that was sent to the parent alone is for the child too."""
    from syncpoint.supervision import child_channel

    child_channel.acknowledge_interrupt()
    raise KeyboardInterrupt


class _Waiting:
    """The parent's signals while it waits: collected, to be passed on, instead of ending it."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._wake_end, self._wake = os.pipe()
        for pipe in (self._wake_end, self._wake):
            os.set_blocking(pipe, False)
        self._before: dict[int, Any] = {}
        for number in (*_FORWARDED, signal.SIGCHLD):
            handler = signal.getsignal(number)
            if number == signal.SIGCHLD or handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._receive)
        self._wake_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def _receive(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self.received.append(number)

    def pause(self, control: int | None, seconds: float | None) -> None:
        """Wait for a signal, for something in the pipe `control`, or for the time to pass."""
        pipes = [self._wake_end] if control is None else [self._wake_end, control]
        ready, _, _ = select.select(pipes, [], [], seconds)
        if self._wake_end in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_end, 4096)

    def restore(self) -> None:
        """Put the handlers back as they were."""
        signal.set_wakeup_fd(self._wake_before)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for pipe in (self._wake_end, self._wake):
            os.close(pipe)


class _Supervisor:
    """One child and what it has told about itself."""

    def __init__(self, child: int, control: int, stack: int, waiting: _Waiting) -> None:
        self._child = child
        self._control: int | None = control
        self._stack = stack
        self._waiting = waiting
        self._began = time.monotonic()
        self._unread = b""
        self._forwarded: set[int] = set()
        self._interrupted: float | None = None
        """When an interrupt came that the child has not told of."""
        self._acknowledged = float("-inf")
        """When the child last told of an interrupt; either of the two may come first."""
        self._scratch: list[str] = []
        self._timeout: float | None = None
        self._memory: int | None = None
        self._activity = ""
        self._recording = ""
        self._finished: int | None = None
        os.set_blocking(control, False)
        os.set_blocking(stack, False)

    def wait(self) -> int:
        """The exit code of the command, once the child has ended."""
        from syncpoint.supervision import process_tree

        process_tree.adopt_orphans()
        exceeded = ""
        while True:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid:
                break
            self._waiting.pause(self._control, self._pause())
            self._read_control()
            self._forward()
            exceeded = exceeded or self._exceeded()
            if exceeded:
                process_tree.kill_tree(self._child)
        self._read_control()
        if self._finished is not None:
            self._waiting.restore()
            return self._finished
        # Signals are still collected: a second Ctrl-C must not interrupt what follows.
        process_tree.kill_tree(self._child)
        self._remove_scratch()
        code = os.waitstatus_to_exitcode(status)
        if -code in self._forwarded and not exceeded:
            # Ended by the signal that was sent to this process: end likewise.
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        self._tell(code, exceeded)
        self._waiting.restore()
        return EXIT_FAILED

    def _pause(self) -> float | None:
        """Seconds to wait at most before the next look; None for as long as nothing happens."""
        is_limited = self._timeout is not None or self._memory is not None
        return _POLL_S if is_limited or self._interrupted is not None else None

    def _forward(self) -> None:
        """Pass on the signals that this process received."""
        now = time.monotonic()
        while self._waiting.received:
            number = self._waiting.received.pop(0)
            if number == signal.SIGINT:
                if now - self._acknowledged > _ACKNOWLEDGE_S:
                    self._interrupted = now
            else:
                self._send(number)
        if self._interrupted is not None and now - self._interrupted > _ACKNOWLEDGE_S:
            self._interrupted = None
            self._send(signal.SIGINT)

    def _send(self, number: int) -> None:
        self._forwarded.add(number)
        with suppress(ProcessLookupError):
            os.kill(self._child, number)

    def _read_control(self) -> None:
        if self._control is None:
            return
        with suppress(BlockingIOError):
            while piece := os.read(self._control, 1 << 16):
                self._unread += piece
            os.close(self._control)
            self._control = None
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        import json

        message = json.loads(line)
        if "timeout" in message:
            self._timeout, self._memory = message["timeout"], message["memory"]
        elif "activity" in message:
            self._activity, self._recording = message["activity"], message["recording"]
        elif "scratch" in message:
            self._scratch.append(message["scratch"])
        elif "interrupted" in message:
            self._interrupted = None
            self._acknowledged = time.monotonic()
        elif "finished" in message:
            self._finished = message["finished"]

    def _exceeded(self) -> str:
        """What limit the command has gone beyond, in words; empty for none."""
        from syncpoint.supervision.ending_messages import describe_memory, describe_timeout
        from syncpoint.supervision.process_tree import memory_of_tree

        if self._timeout is not None and time.monotonic() - self._began > self._timeout:
            return describe_timeout(self._timeout)
        if self._memory is not None:
            used = memory_of_tree(self._child)
            if used > self._memory:
                return describe_memory(used, self._memory)
        return ""

    def _remove_scratch(self) -> None:
        if self._scratch:
            import shutil

            for folder in self._scratch:
                shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, code: int, exceeded: str) -> None:
        from syncpoint.foreign_text import make_visible
        from syncpoint.supervision.crash_file import write_crash_file
        from syncpoint.supervision.ending_messages import describe_end

        event, cause = (exceeded, "") if exceeded else describe_end(code)
        if self._activity:
            event += f" while {self._activity}"
        parts = [event, cause]
        if not exceeded and (stack := self._read_stack()):
            details = write_crash_file(event, stack)
            parts.append(f"details are in {details}" if details else "")
        if self._recording:
            parts.append(_what_was_recorded(self._recording))
        sys.stderr.write(f"syncpoint: {make_visible('; '.join(part for part in parts if part))}\n")

    def _read_stack(self) -> str:
        """The Python stack that the child left when a native crash ended it."""
        stack = b""
        with suppress(BlockingIOError):
            while piece := os.read(self._stack, 1 << 16):
                stack += piece
        return stack.decode("utf-8", "replace")


def _what_was_recorded(folder: str) -> str:
    """What a run that was being written holds, told by its files alone."""
    with suppress(OSError), os.scandir(folder) as entries:
        if any(entry.name.startswith("tensors-") for entry in entries):
            return f"what was recorded before is in {folder}"
    return "nothing was recorded before that"
