"""The command line: one file per command, thin: parse, call the API, print."""

from __future__ import annotations

import os
import sys

from syncpoint.errors import EXIT_FAILED, EXIT_INTERRUPTED, SyncpointError
from syncpoint.foreign_text import make_visible

after_interrupt = "what was finished stays usable"
"""What to say to somebody who interrupts the command; a command may know better."""

_SERVERS = frozenset({"session", "view"})
"""Commands that run no model themselves and end only when they are told to."""
_QUESTIONS = frozenset({"--help", "--version"})
"""Answered by the argument parser alone."""


def main() -> None:
    """Entry point: run the command in a supervised child process, and exit with its code."""
    from syncpoint.supervision.supervisor import can_supervise, supervise

    _open_standard_streams()
    is_alone = _SERVERS.intersection(sys.argv[1:2]) or _QUESTIONS.intersection(sys.argv)
    if can_supervise() and not is_alone:
        sys.exit(supervise(run_command))
    sys.exit(run_command())


def _open_standard_streams() -> None:
    """Lead streams that the caller closed (`2>&-`) to nowhere. Otherwise the next file that is
    opened gets their number, and whatever a library prints goes into it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def run_command() -> int:
    """Run the command of `sys.argv`; errors become one line and an exit code."""
    from syncpoint.cli.app import Escaped, app
    from syncpoint.cli.output import show_warnings_as_lines, tolerate_encodings

    tolerate_encodings()
    show_warnings_as_lines()
    try:
        try:
            # Where the shell does not expand patterns, nobody does: a name may contain a bracket.
            app(windows_expand_args=False)
        except Escaped as escaped:
            raise escaped.__cause__ or escaped from None
    except SyncpointError as error:
        sys.stderr.write(f"syncpoint: {error}\n")
        return error.exit_code
    except SystemExit as stop:
        # Of the argument parser alone: commands raise typer.Exit (see app.py).
        if stop.code == EXIT_INTERRUPTED:
            _say_interrupted()
        return stop.code if isinstance(stop.code, int) else EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        _say_interrupted()
        return EXIT_INTERRUPTED
    except BaseException as error:  # a bug: never exit code 1, which means "diverges"
        return _tell_of_crash(error)
    return 0


def _tell_of_crash(error: BaseException) -> int:
    """Report an exception that nobody expected in one line, with the details in a file."""
    import traceback

    from syncpoint.supervision.crash_file import write_crash_file

    words = make_visible(" ".join(str(error).split())[:200])
    event = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, MemoryError):
        sys.stderr.write(f"syncpoint: memory ran out; free some, or record less ({event})\n")
        return EXIT_FAILED
    details = write_crash_file(event, "".join(traceback.format_exception(error)))
    where = f"; details are in {details}" if details else ""
    sys.stderr.write(
        f"syncpoint: internal error ({event}); this is a bug, please report it{where}\n"
    )
    return EXIT_FAILED


def _say_interrupted() -> None:
    sys.stderr.write(f"syncpoint: interrupted; {make_visible(after_interrupt)}\n")
