"""`syncpoint view`: a comparison in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo


def view(
    comparison: Annotated[Path, typer.Argument(help="A saved comparison: NAME.cmp.")],
    port: options.Port = None,
    no_browser: options.NoBrowser = False,
) -> None:
    """Look at a comparison in the browser; Ctrl-C ends it."""
    from syncpoint.page.opened import name_of
    from syncpoint.server.library import Library
    from syncpoint.server.serving import serve

    library, name = Library([comparison]), name_of(comparison)
    library.get(name)  # says what is wrong with it before anything is served
    serve(library, f"/c/{name}", echo, port=port, browser=not no_browser)
