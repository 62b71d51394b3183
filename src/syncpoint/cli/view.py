"""The command `syncpoint view`: shows one saved comparison in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo


def view(
    comparison: Annotated[Path, typer.Argument(help="Saved comparison: NAME.cmp.")],
    *,
    browser: options.BrowserOptions,
) -> None:
    """Look at a comparison in the browser; Ctrl-C ends it."""
    from syncpoint.page.open_comparison import comparison_id
    from syncpoint.server.comparison_library import Library
    from syncpoint.server.run_server import serve

    library, name = Library([comparison]), comparison_id(comparison)
    library.get(name)  # says what is wrong with it before anything is served
    serve(library, f"/c/{name}", echo, port=browser.port, browser=not browser.no_browser)
