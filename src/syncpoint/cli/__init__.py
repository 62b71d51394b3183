"""The command line: one file per command, thin: parse, call the API, print."""

from __future__ import annotations

import os
import sys

from syncpoint.errors import EXIT_FAILED, EXIT_INTERRUPTED, SyncpointError
from syncpoint.foreign_text import visible

after_interrupt = "what was finished stays usable"
"""What to say to somebody who interrupts the command; a command may know better."""


def main() -> None:
    """Entry point: errors become one line and an exit code."""
    from syncpoint.cli.app import app
    from syncpoint.cli.output import tolerate_encodings

    tolerate_encodings()
    try:
        # Where the shell does not expand patterns, nobody does: a name may contain a bracket.
        app(windows_expand_args=False)
    except SyncpointError as error:
        sys.stderr.write(f"syncpoint: {error}\n")
        sys.exit(error.exit_code)
    except SystemExit as stop:
        if stop.code == EXIT_INTERRUPTED:
            _say_interrupted()
        raise
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(EXIT_INTERRUPTED)


def _say_interrupted() -> None:
    sys.stderr.write(f"syncpoint: interrupted; {visible(after_interrupt)}\n")
