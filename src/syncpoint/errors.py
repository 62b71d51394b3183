"""Classes of the errors and warnings that this package raises, exit codes, `describe_error`
(message of an exception), and SystemExit of a model as CaptureError.

Each error says in one line what was expected, what was found and how to fix it, and carries the
exit code of the command. Any other exception that escapes is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.foreign_text import make_visible

EXIT_CLOSE = 0
"""No verdict is large."""
EXIT_DIVERGED = 1
"""The two runs diverge: a large, amplified, non-finite, damaged, unreadable or shape verdict."""
EXIT_FAILED = 2
"""The command failed."""
EXIT_UNCOVERED = 3
"""Too little was compared for a verdict."""
EXIT_INTERRUPTED = 130
"""Stopped by Ctrl-C, the exit code that shells use."""
_MAX_MESSAGE_CHARS = 2000
"""Maximum length of a message; what it quotes may have any length."""


def _one_line(text: str) -> str:
    return make_visible(" ".join(text.split()), _MAX_MESSAGE_CHARS)


class SyncpointError(Exception):
    """Base class. `problem` is a sentence that says what is wrong, `cure` says what to do about it.

    Both may quote untrusted names and file contents and are stored unchanged; the message escapes
    them, so that it can be shown anywhere. `expected` and `found` are kept for older programs:
    `found` is the problem, and `expected` is empty.
    """

    exit_code = EXIT_FAILED

    expected = ""

    def __init__(self, problem: str, *, cure: str = "") -> None:
        self.problem = problem
        self.cure = cure
        super().__init__(problem)  # pickle calls the class with these arguments

    @property
    def found(self) -> str:
        """Same as `problem`."""
        return self.problem

    @property
    def detail(self) -> str:
        """The message without the cure."""
        return _one_line(self.problem)

    def __str__(self) -> str:
        return _one_line(self.problem + (f"; {self.cure}" if self.cure else ""))


class InputError(SyncpointError):
    """Something that the user named cannot be used: a path, an option, inputs of a wrong shape."""


class WriteError(InputError):
    """A file or folder cannot be written: disk full, permission denied, or the name is taken."""

    def __init__(self, path: object, reason: str, cure: str) -> None:
        super().__init__(f"cannot write {path}: {reason}", cure=cure)
        self.path = str(path)
        self.reason = reason
        self.args = (self.path, reason, cure)


class NoShape(InputError):
    """Inputs cannot be generated because their shape is not known."""

    def __init__(self, problem: str, example: str) -> None:
        super().__init__(problem, cure=f"add --shape {example}")
        self.example = example
        """An example for `--shape`: `x=1,3,224,224`."""
        self.args = (problem, example)


class FormatError(SyncpointError):
    """The content of a file does not follow its format."""


class DamagedError(FormatError):
    """The bytes of a file do not match their checksum."""

    where = ""
    """The path of the file."""


class MissingExtra(SyncpointError):
    """A runtime or format needs a package that is not installed."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs the package {package}, which is not installed",
            cure=f"run: pip install 'syncpoint[{extra}]'",
        )
        self.args = (package, extra, what)


class CaptureError(SyncpointError):
    """The model failed while it was captured."""


@contextmanager
def contain_exit() -> Iterator[None]:
    """Turn SystemExit into a CaptureError: a model that ends Python did not run to its end, and
    its exit code must not become the exit code of the command."""
    try:
        yield
    except SystemExit as error:
        location = _innermost_location(error)
        raise CaptureError(
            f"the model raised SystemExit({error.code!r})"
            + (f" at {location}" if location else "")
            + " before it finished",
            cure="remove the call to sys.exit, exit or quit",
        ) from error


def _innermost_location(error: BaseException) -> str:
    """`file:line` of the innermost Python frame of an exception."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class Unsupported(SyncpointError):
    """This version does not support what was asked for; the cure names a workaround."""


class SyncpointWarning(UserWarning):
    """A problem that does not stop the command."""

    def __str__(self) -> str:
        return _one_line(super().__str__())


def describe_error(error: BaseException) -> str:
    """The message of an exception in one line; its type if it has no message."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return text or type(error).__name__
