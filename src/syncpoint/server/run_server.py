"""Start the server on 127.0.0.1: check its packages, bind the socket, make the address with its
token, open the browser, serve."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from syncpoint.errors import InputError, MissingExtra
from syncpoint.server.comparison_library import Library

if TYPE_CHECKING:
    import uvicorn

    from syncpoint.server.access_guard import AccessGuard
    from syncpoint.server.session import ComparisonSession

HOST = "127.0.0.1"
PORT = 7410
"""The port that is tried first; if it is in use, any free one."""


def serve(
    library: Library,
    page: str,
    print_line: Callable[[str], None],
    *,
    port: int | None = None,
    browser: bool = True,
    session: ComparisonSession | None = None,
) -> None:
    """Serve until interrupted. `print_line` gets the address to open; `page` is a path in it.

    With a session the page can run comparisons; they are stopped with the server.
    """
    require_web("view")
    import uvicorn

    from syncpoint.run.storage.probe_process import probe_every_table

    probe_every_table()
    with bind_socket(port) as listening:
        address, config = prepare_server(library, page, listening, session)
        print_line(address)
        used_port = listening.getsockname()[1]
        tunnel = f"ssh -L {used_port}:{HOST}:{used_port} {socket.gethostname()}"
        print_line(f"from another machine: {tunnel}")

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                # First, because a page that waits for events keeps its connection open.
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
    """Return the address to open, with a new token, and what is served on the socket."""
    from syncpoint.server.app import create_guarded_app

    token = secrets.token_urlsafe(18)
    port = listening.getsockname()[1]
    config = server_config(create_guarded_app(library, token, port, session))
    return f"http://{HOST}:{port}{page}?token={token}", config


def server_config(app: AccessGuard) -> uvicorn.Config:
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
    """Raise MissingExtra if the packages of the server are not installed."""
    for package in ("fastapi", "uvicorn"):
        if find_spec(package) is None:
            raise MissingExtra(package, "web", command)


def bind_socket(port: int | None) -> socket.socket:
    """Return a listening socket that only this machine can reach."""
    for candidate in (PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, candidate))
            # A client may connect as soon as the address is printed, and waits for the server.
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            if port is not None:
                raise InputError(
                    f"cannot listen on port {port}: {error.strerror}", cure="choose another --port"
                ) from error
    raise InputError("no free port on 127.0.0.1", cure="stop other servers, or choose --port")


def open_browser(address: str) -> None:
    """Open the address in the user's browser, if there is one."""
    import webbrowser

    with suppress(webbrowser.Error):
        webbrowser.open(address)
