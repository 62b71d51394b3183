"""`syncpoint view`: a comparison in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    comparison: Annotated[Path, typer.Argument(help="A saved comparison: NAME.cmp.")],
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port on 127.0.0.1; else a free one."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address only.")
    ] = False,
) -> None:
    """Look at a comparison in the browser; Ctrl-C ends it."""
    from syncpoint.page.opened import name_of
    from syncpoint.server.library import Library
    from syncpoint.server.serving import serve

    library, name = Library([comparison]), name_of(comparison)
    library.get(name)  # says what is wrong with it before anything is served
    serve(library, f"/c/{name}", typer.echo, port=port, browser=not no_browser)
