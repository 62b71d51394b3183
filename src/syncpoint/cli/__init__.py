"""The command line, one thin file per command: parse, call the API, print. `main` turns errors and
crashes into messages and exit codes."""

from __future__ import annotations

import os
import sys

from syncpoint.errors import EXIT_FAILED, EXIT_INTERRUPTED, SyncpointError
from syncpoint.foreign_text import make_visible

after_interrupt = "finished work is kept"
"""Message after Ctrl-C; a command may replace it with a better one."""

_SERVERS = frozenset({"session", "view"})
"""Commands that run no model themselves and serve until Ctrl-C."""
_PARSER_FLAGS = frozenset({"--help", "--version"})
"""Answered by the argument parser alone."""


def main() -> None:
    """Entry point: run the command in a supervised child process, and exit with its code."""
    from syncpoint.supervision.supervisor import can_supervise, supervise

    _open_standard_streams()
    is_alone = _SERVERS.intersection(sys.argv[1:2]) or _PARSER_FLAGS.intersection(sys.argv)
    if can_supervise() and not is_alone:
        sys.exit(supervise(run_command))
    sys.exit(run_command())


def _open_standard_streams() -> None:
    """Connect streams that the caller closed (`2>&-`) to the null device.

    Otherwise the next opened file gets their number, and whatever a library prints goes into it.
    """
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
            # Patterns are not expanded, because a name may contain a bracket.
            app(windows_expand_args=False)
        except Escaped as escaped:
            raise escaped.__cause__ or escaped from None
    except SyncpointError as error:
        sys.stderr.write(f"syncpoint: {error}\n")
        return error.exit_code
    except SystemExit as stop:
        # From the argument parser only: commands raise typer.Exit (see app.py).
        if stop.code == EXIT_INTERRUPTED:
            _report_interrupt()
        return stop.code if isinstance(stop.code, int) else EXIT_FAILED
    except BrokenPipeError:
        # The reader closed the output early, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        _report_interrupt()
        return EXIT_INTERRUPTED
    except BaseException as error:  # a bug: never exit code 1, which means "diverges"
        return _report_crash(error)
    return 0


def _report_crash(error: BaseException) -> int:
    """Report an unexpected exception in one line, with the details in a file."""
    import traceback

    from syncpoint.supervision.crash_file import write_crash_file

    message = make_visible(" ".join(str(error).split())[:200])
    event = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if isinstance(error, MemoryError):
        sys.stderr.write(f"syncpoint: out of memory ({event}); free memory, or record less\n")
        return EXIT_FAILED
    details = write_crash_file(event, "".join(traceback.format_exception(error)))
    where = f"; details are in {details}" if details else ""
    sys.stderr.write(
        f"syncpoint: internal error ({event}); this is a bug, please report it{where}\n"
    )
    return EXIT_FAILED


def _report_interrupt() -> None:
    sys.stderr.write(f"syncpoint: interrupted; {make_visible(after_interrupt)}\n")
