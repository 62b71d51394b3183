"""Run a command in a child process, watch its time, memory and signals, report how it ended and
what recording it leaves.

A model is code: it may crash, exit, hang or use up all memory. In a child process this ends only
the child, and the command still ends with one line and a reliable exit code: a child that did not
report its own exit code has failed.

The child is forked before anything but the standard library is loaded, so it costs a few
milliseconds and no thread or lock is copied. It stays in the process group of its parent: in
`syncpoint ... | less` both belong to the pipeline, and Ctrl-C and Ctrl-Z reach both.
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
"""Environment variable; 0 runs commands without a child process, for debuggers and profilers."""
_POLL_S = 0.1
"""Seconds between two checks of the limits."""
_ACKNOWLEDGE_S = 0.5
"""Seconds after which an interrupt that the child has not acknowledged is sent to it."""
_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)


def can_supervise() -> bool:
    """Whether a child can be forked safely: no package that starts threads is loaded yet."""
    loaded = any(name in sys.modules for name in ("numpy", "polars", "torch"))
    return hasattr(os, "fork") and not loaded and os.environ.get(SWITCH) != "0"


def supervise(command: Callable[[], int]) -> int:
    """Run `command`, which returns an exit code, in a child process and return that code."""
    control_end, control = os.pipe()
    stack_end, stack = os.pipe()
    parent = os.getpid()
    signals = _SignalCollector()
    child = os.fork()
    if child:
        os.close(control)
        os.close(stack)
        return _Supervisor(child, control_end, stack_end, signals).wait()
    for pipe in (control_end, stack_end):
        os.close(pipe)
    # Interrupts are blocked until the child has its own handler: Python's prints a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signals.restore()
    _run_child(command, parent, control, stack)


def _run_child(command: Callable[[], int], parent: int, control: int, stack: int) -> NoReturn:
    """Run the command in the child. It ends with os._exit: no caller may continue in two processes,
    and native libraries that crash in their cleanup must not run it."""
    import atexit
    import faulthandler

    from syncpoint.supervision import report_to_supervisor
    from syncpoint.supervision.process_tree import die_with_parent

    report_to_supervisor.connect(control)
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
        except KeyboardInterrupt:  # outside of the command's own handling
            code = EXIT_INTERRUPTED
        code = _flush(code)
        report_to_supervisor.finish(code)
        atexit._run_exitfuncs()
        _flush(code)
    finally:
        os._exit(code)


def _flush(code: int) -> int:
    """Flush all output; EXIT_FAILED if that fails. The parent trusts the returned code."""
    with suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).fflush(None)  # what native code printed
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader has exited, as `head` does
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = EXIT_FAILED
    return code


def _interrupt(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt and acknowledge it to the parent: Ctrl-C in a terminal reaches both
    processes, but the parent must forward a signal that only it received."""
    from syncpoint.supervision import report_to_supervisor

    report_to_supervisor.acknowledge_interrupt()
    raise KeyboardInterrupt


class _SignalCollector:
    """Collects the signals that the parent receives while it waits, to forward them."""

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
        """Wait for a signal, for a message in the pipe `control`, or for `seconds`."""
        pipes = [self._wake_end] if control is None else [self._wake_end, control]
        ready, _, _ = select.select(pipes, [], [], seconds)
        if self._wake_end in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_end, 4096)

    def restore(self) -> None:
        """Restore the previous signal handlers."""
        signal.set_wakeup_fd(self._wake_before)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for pipe in (self._wake_end, self._wake):
            os.close(pipe)


class _Supervisor:
    """One child process and what it has reported."""

    def __init__(self, child: int, control: int, stack: int, signals: _SignalCollector) -> None:
        self._child = child
        self._control: int | None = control
        self._stack = stack
        self._signals = signals
        self._began = time.monotonic()
        self._unread = b""
        self._forwarded: set[int] = set()
        self._interrupted: float | None = None
        """When an interrupt came that the child has not acknowledged."""
        self._acknowledged = float("-inf")
        """When the child last acknowledged an interrupt; either of the two may come first."""
        self._scratch: list[str] = []
        self._timeout: float | None = None
        self._memory: int | None = None
        self._activity = ""
        self._recording = ""
        self._finished: int | None = None
        os.set_blocking(control, False)
        os.set_blocking(stack, False)

    def wait(self) -> int:
        """Wait for the child to end; return the exit code of the command."""
        from syncpoint.supervision import process_tree

        process_tree.adopt_orphans()
        exceeded = ""
        while True:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid:
                break
            self._signals.pause(self._control, self._pause_seconds())
            self._read_control()
            self._forward()
            exceeded = exceeded or self._describe_exceeded_limit()
            if exceeded:
                process_tree.kill_tree(self._child)
        self._read_control()
        if self._finished is not None:
            self._signals.restore()
            return self._finished
        # Signals are still collected: a second Ctrl-C must not interrupt what follows.
        process_tree.kill_tree(self._child)
        self._remove_scratch()
        code = os.waitstatus_to_exitcode(status)
        if -code in self._forwarded and not exceeded:
            # The child ended by the signal that was sent to this process: end by it too.
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        self._report_end(code, exceeded)
        self._signals.restore()
        return EXIT_FAILED

    def _pause_seconds(self) -> float | None:
        """Maximum seconds until the next check; None to wait until something happens."""
        is_limited = self._timeout is not None or self._memory is not None
        return _POLL_S if is_limited or self._interrupted is not None else None

    def _forward(self) -> None:
        """Forward the signals that this process received."""
        now = time.monotonic()
        while self._signals.received:
            number = self._signals.received.pop(0)
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
            self._handle_message(line)

    def _handle_message(self, line: bytes) -> None:
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

    def _describe_exceeded_limit(self) -> str:
        """Describe the limit that the command exceeds; "" if it exceeds none."""
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

    def _report_end(self, code: int, exceeded: str) -> None:
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
            parts.append(_describe_recording(self._recording))
        sys.stderr.write(f"syncpoint: {make_visible('; '.join(part for part in parts if part))}\n")

    def _read_stack(self) -> str:
        """Read the Python stack that the child wrote when it crashed in native code."""
        stack = b""
        with suppress(BlockingIOError):
            while piece := os.read(self._stack, 1 << 16):
                stack += piece
        return stack.decode("utf-8", "replace")


def _describe_recording(folder: str) -> str:
    """Say whether a run that was being written holds tensors, judged by its files alone."""
    with suppress(OSError), os.scandir(folder) as entries:
        if any(entry.name.startswith("tensors-") for entry in entries):
            return f"what was recorded before is in {folder}"
    return "nothing was recorded before that"
