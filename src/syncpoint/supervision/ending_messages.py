"""Texts for a process that ended too early: crash, signal, timeout, memory limit."""

from __future__ import annotations

import signal

_SIGNALS = {
    "SIGSEGV": "a segmentation fault, SIGSEGV",
    "SIGBUS": "a bus error, SIGBUS",
    "SIGFPE": "an arithmetic fault, SIGFPE",
    "SIGILL": "an illegal instruction, SIGILL",
    "SIGABRT": "an abort, SIGABRT",
}


def describe_end(code: int) -> tuple[str, str]:
    """Describe what happened and the likely cause. `code` is an exit code as `subprocess` reports
    it: negative for a signal."""
    if code >= 0:
        return (
            f"the process ended with exit code {code} before it had finished",
            "the model or a library ended it (os._exit or exit); remove that call",
        )
    name = signal_name(-code)
    if name in _SIGNALS:
        return (
            f"the process crashed ({_SIGNALS[name]})",
            "the model, its runtime or another native library is at fault",
        )
    if name == "SIGKILL":
        return (
            "the process was killed (SIGKILL)",
            "usually because memory ran out; use less memory, or set --memory to stop earlier",
        )
    return f"the process was ended by {name}", "a user or a limit of the system stopped it"


def describe_timeout(seconds: float) -> str:
    """Describe that the time limit was exceeded."""
    return f"not finished after {seconds:g} s (--timeout)"


def describe_memory(used: int, limit: int) -> str:
    """Describe that the memory limit was exceeded."""
    return f"{_gib(used)} of memory used, above {_gib(limit)} (--memory)"


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _gib(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
