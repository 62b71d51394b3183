"""The command line: one file per command, thin: parse, call the API, print."""

from __future__ import annotations

import os
import sys

from syncpoint.errors import EXIT_FAILED, EXIT_INTERRUPTED, SyncpointError

_INTERRUPTION = "syncpoint: interrupted; what was finished stays usable\n"


def main() -> None:
    """Entry point: errors become one line and an exit code."""
    from syncpoint.cli.app import app

    try:
        app()
    except SyncpointError as error:
        sys.stderr.write(f"syncpoint: {error}\n")
        sys.exit(error.exit_code)
    except SystemExit as stop:
        if stop.code == EXIT_INTERRUPTED:
            sys.stderr.write(_INTERRUPTION)
        raise
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.stderr.write(_INTERRUPTION)
        sys.exit(EXIT_INTERRUPTED)
