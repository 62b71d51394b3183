"""The closed set of errors this package raises on purpose.

Each says what was expected, what was found and what cures it, in one line, and carries the exit
code of the command that meets it. Everything else that escapes is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.foreign_text import make_visible

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
_MAX_MESSAGE_CHARS = 2000
"""Characters of a message; what it quotes may be of any length."""


def _one_line(text: str) -> str:
    return make_visible(" ".join(text.split()), _MAX_MESSAGE_CHARS)


class SyncpointError(Exception):
    """Base of all. `problem` is a sentence that says what is wrong, `cure` what to do about it.

    Both may quote names and files of others and are kept as they are; the message has them in a
    form that can be shown anywhere. `SyncpointError(expected, found, cure)` is the older form: its
    problem reads "expected ...; found ...".
    """

    exit_code = EXIT_FAILED

    def __init__(
        self, problem: str, found: str | None = None, older_cure: str = "", *, cure: str = ""
    ) -> None:
        self.expected = "" if found is None else problem
        self.problem = problem if found is None else f"expected {problem}; found {found}"
        self.found = problem if found is None else found
        self.cure = cure or older_cure
        super().__init__(self.problem)  # what pickle calls the class with

    @property
    def detail(self) -> str:
        """The message without the cure."""
        return _one_line(self.problem)

    def __str__(self) -> str:
        return _one_line(self.problem + (f"; {self.cure}" if self.cure else ""))


class InputError(SyncpointError):
    """What the user named cannot be used: a path, an option, inputs that do not fit."""


class WriteError(InputError):
    """A file or folder cannot be written: no space, no permission, or something in the way."""

    def __init__(self, path: object, reason: str, cure: str) -> None:
        super().__init__(f"cannot write {path}: {reason}", cure=cure)
        self.path = str(path)
        self.reason = reason
        self.args = (self.path, reason, cure)


class NoShape(InputError):
    """Inputs were to be made up, and nothing says in which shape."""

    def __init__(self, expected: str, found: str, example: str) -> None:
        super().__init__(expected, found, f"give --shape {example}")
        self.example = example
        """A shape as the user may give it: `x=1,3,224,224`."""
        self.args = (expected, found, example)


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
            f"{what} needs the package {package}, which is not installed",
            cure=f"run: pip install 'syncpoint[{extra}]'",
        )
        self.args = (package, extra, what)


class CaptureError(SyncpointError):
    """The model itself failed while it was being captured."""


@contextmanager
def contain_exit() -> Iterator[None]:
    """Turn SystemExit into a CaptureError: a model that ends Python has not been run to its end,
    and the exit code it chose would pass for ours."""
    try:
        yield
    except SystemExit as error:
        place = _raised_in(error)
        raise CaptureError(
            "the model to run to its end",
            f"SystemExit({error.code!r})" + (f" raised at {place}" if place else ""),
            "remove the call of sys.exit, exit or quit",
        ) from error


def _raised_in(error: BaseException) -> str:
    """`file:line` of the innermost Python frame of an exception."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class Unsupported(SyncpointError):
    """A thing that exists but that this version cannot do; the cure names the way around."""


class SyncpointWarning(UserWarning):
    """Something odd that does not stop the work."""

    def __str__(self) -> str:
        return _one_line(super().__str__())


def describe_error(error: BaseException) -> str:
    """What an exception says, fit for one line of an error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return text or type(error).__name__
