"""`syncpoint session`: make comparisons in the browser, and look at those of the past."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo


def session(
    target: Annotated[
        str, typer.Argument(help="Fill in the target: a model, a run or a dump.")
    ] = "",
    reference: Annotated[
        str, typer.Argument(help="Fill in the reference: a model, a run or a dump.")
    ] = "",
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose files may be chosen; else the current one."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder that comparisons are kept in.")
    ] = Path("comparisons"),
    timeout: options.Timeout = None,
    memory: options.Memory = None,
    port: options.Port = None,
    no_browser: options.NoBrowser = False,
) -> None:
    """Compare models, runs and dumps in the browser; Ctrl-C ends it and what it runs."""
    from syncpoint.server.serving import require_web, serve

    require_web("session")
    from syncpoint.server.session import open_session
    from syncpoint.workers.process import ProcessLimits

    limits = ProcessLimits(timeout, options.byte_count(memory))
    opened, library = open_session(folder or [Path()], output, target, reference, limits)
    serve(library, "/", echo, port=port, browser=not no_browser, session=opened)
