"""Putting the server on 127.0.0.1 and telling people where it is."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from syncpoint.errors import InputError, MissingExtra
from syncpoint.server.open_comparisons import Library

if TYPE_CHECKING:
    import uvicorn

    from syncpoint.server.access_guard import Guard
    from syncpoint.server.session import ComparisonSession

HOST = "127.0.0.1"
PORT = 7410
"""The port that is tried first; any free one serves."""


def serve(
    library: Library,
    page: str,
    say: Callable[[str], None],
    *,
    port: int | None = None,
    browser: bool = True,
    session: ComparisonSession | None = None,
) -> None:
    """Serve until interrupted. `say` is given the address to open; `page` is a path in it.

    With a session comparisons can be made too; those that run are ended with the server.
    """
    require_web("view")
    import uvicorn

    from syncpoint.run.storage.table_probe import probe_every_table

    probe_every_table()
    with bound(port) as listening:
        address, config = prepare_server(library, page, listening, session)
        say(address)
        found = listening.getsockname()[1]
        say(f"from another machine: ssh -L {found}:{HOST}:{found} {socket.gethostname()}")

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                # Before the wait for open connections: a page that listens would never let go.
                if session is not None:
                    await asyncio.to_thread(session.close)
                await super().shutdown(sockets)

        if browser:
            open_browser(address)
        with suppress(KeyboardInterrupt):
            Server(config).run(sockets=[listening])


def prepare_server(
    library: Library, page: str, listening: socket.socket, session: ComparisonSession | None = None
) -> tuple[str, uvicorn.Config]:
    """The address to open, with a token of its own, and what is served on the socket."""
    from syncpoint.server.app import create_guarded_app

    token = secrets.token_urlsafe(18)
    port = listening.getsockname()[1]
    config = server_config(create_guarded_app(library, token, port, session))
    return f"http://{HOST}:{port}{page}?token={token}", config


def server_config(app: Guard) -> uvicorn.Config:
    """How the server treats connection_limits."""
    import uvicorn

    from syncpoint.server import connection_limits

    return uvicorn.Config(
        app,
        http=connection_limits.BoundedConnection,
        ws="none",
        timeout_keep_alive=connection_limits.KEEP_ALIVE_SECONDS,
        log_level="warning",
        access_log=False,
    )


def require_web(command: str) -> None:
    """A MissingExtra where the packages of the server are not installed."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise MissingExtra("fastapi and uvicorn", "web", command)


def bound(port: int | None) -> socket.socket:
    """A socket on this machine alone."""
    for wanted in (PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, wanted))
            # Whoever is told the address may connect at once, and waits until it is served.
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            if port is not None:
                raise InputError(f"a free port, not {port}", str(error.strerror)) from error
    raise InputError("a free port", "none")


def open_browser(address: str) -> None:
    """Show the address in the user's browser, if there is one."""
    import webbrowser

    with suppress(webbrowser.Error):
        webbrowser.open(address)
