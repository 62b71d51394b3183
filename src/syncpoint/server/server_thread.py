"""Serve one comparison, in memory or saved, from Python or a notebook, in a background thread of
this process.

A notebook already runs an event loop, so the server has a thread and a loop of its own. It ends
with `stop()`, or with the interpreter.
"""

from __future__ import annotations

import atexit
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.errors import CaptureError
from syncpoint.page.open_comparison import comparison_id
from syncpoint.server.comparison_library import Library
from syncpoint.server.run_server import bind_socket, open_browser, prepare_server, require_web

if TYPE_CHECKING:
    import uvicorn

    from syncpoint.page.open_comparison import ResultInMemory

_STOP_SECONDS = 5.0
"""Time for answers that are being sent when the server stops."""


class ServedComparison:
    """A comparison that is being served."""

    def __init__(self, server: uvicorn.Server, listening: socket.socket, address: str) -> None:
        self.address = address
        """The URL to open in a browser."""
        self._server = server
        self._listening = listening
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="syncpoint view", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop the server; the port is free again when this returns."""
        atexit.unregister(self.stop)
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._server.force_exit = True
        self._thread.join(_STOP_SECONDS)
        self._listening.close()

    def wait_until_started(self) -> None:
        """Wait until the server runs; CaptureError if it cannot start."""
        while self._thread.is_alive() and not self._server.started:
            self._thread.join(0.01)
        if not self._server.started:
            self.stop()
            raise CaptureError(
                f"the server did not start: {self._error!r}", cure="choose another port"
            )

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        except BaseException as error:
            self._error = error

    def __repr__(self) -> str:
        return f"<ServedComparison {self.address}>"


def serve_in_thread(
    comparison: ResultInMemory | Path, port: int | None, browser: bool
) -> ServedComparison:
    """Serve a comparison of this process, or a saved one, until it is stopped."""
    require_web("view")
    import uvicorn

    if isinstance(comparison, Path):
        library, name = Library([comparison]), comparison_id(comparison)
    else:
        library, name = Library(in_memory=[comparison]), comparison.id
    library.get(name)  # raises its error before anything is served
    listening = bind_socket(port)
    try:
        address, config = prepare_server(library, f"/c/{name}", listening)
        # The page keeps its connections open; they are closed when the server is stopped.
        config.timeout_graceful_shutdown = 1
        served = ServedComparison(uvicorn.Server(config), listening, address)
    except BaseException:
        listening.close()
        raise
    served.wait_until_started()
    if browser:
        open_browser(address)
    return served
