"""Print single lines on stdout or stderr, escape what their encoding lacks, and show Python
warnings as lines."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from syncpoint.errors import SyncpointWarning
from syncpoint.foreign_text import make_visible


def echo(line: str = "", *, err: bool = False, bold: bool = False) -> None:
    """Print one line, on stderr with `err`."""
    typer.secho(make_visible(line), err=err, bold=bold or None)


def tolerate_encodings() -> None:
    """Print escapes in place of characters that the encoding of an output does not have."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def show_warnings_as_lines() -> None:
    """Print our own warnings as one line each, without the place in the code and its text."""
    usual = warnings.formatwarning

    def formatted(message: Any, category: type[Warning], *args: Any, **options: Any) -> str:
        if issubclass(category, SyncpointWarning):
            return f"syncpoint: warning: {message}\n"
        return usual(message, category, *args, **options)

    warnings.formatwarning = formatted
