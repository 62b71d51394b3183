"""The closed set of errors this package raises on purpose.

Each says what was expected, what was found and what cures it, in one line, and carries the exit
code of the command that meets it. Everything else that escapes is a bug.
"""

from __future__ import annotations

EXIT_CLOSE = 0
"""Nothing large."""
EXIT_DIVERGED = 1
"""The two runs part: a large, amplified, non-finite, damaged, unreadable or shape verdict."""
EXIT_FAILED = 2
"""The command could not do its work."""
EXIT_UNCOVERED = 3
"""Too little was compared to say anything."""
EXIT_INTERRUPTED = 130
"""Stopped by Ctrl-C, as shells have it."""


class SyncpointError(Exception):
    """Base of all; `expected`, `found` and `cure` are the parts of its one-line message."""

    exit_code = EXIT_FAILED

    def __init__(self, expected: str, found: str, cure: str = "") -> None:
        self.expected = expected
        self.found = found
        self.cure = cure
        super().__init__(expected, found, cure)

    def __str__(self) -> str:
        text = f"expected {self.expected}; found {self.found}"
        if self.cure:
            text += f"; {self.cure}"
        return " ".join(text.split())


class InputError(SyncpointError):
    """What the user named cannot be used: a path, an option, inputs that do not fit."""


class NoShape(InputError):
    """Inputs were to be made up, and nothing says in which shape."""


class FormatError(SyncpointError):
    """A file is not what its format says it is."""


class DamagedError(FormatError):
    """The bytes of a file are not those that its checksum was taken of."""

    where = ""
    """The file."""


class MissingExtra(SyncpointError):
    """A runtime or format needs a package that is not installed."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        super().__init__(
            f"the package {package} for {what}",
            "it is not installed",
            f"run: pip install 'syncpoint[{extra}]'",
        )


class CaptureError(SyncpointError):
    """The model itself failed while it was being captured."""


class Unsupported(SyncpointError):
    """A thing that exists but that this version cannot do; the cure names the way around."""


class SyncpointWarning(UserWarning):
    """Something odd that does not stop the work."""
