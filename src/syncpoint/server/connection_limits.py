"""Time limits for HTTP connections (request, idle, slow reader), so that stalled clients cannot use
up the server.

uvicorn waits for a request without a limit. Here a request must arrive within a few seconds, and an
answer must be read. How long the server takes to answer is not limited, because pages wait for
events on open requests.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 5.0
"""From the connection, or from the first byte of a later request, to the end of the headers."""
BODY_SECONDS = 10.0
"""From the headers to the end of the body, which has a megabyte at most."""
KEEP_ALIVE_SECONDS = 5
"""From an answer to the first byte of the next request."""
UNREAD_SECONDS = 20.0
"""Time in which some of an answer must be read."""
MAX_IDLE = 100
"""Connections without a request; beyond it the one that is idle longest is closed."""


class BoundedConnection(H11Protocol):
    """One connection, with a time limit on what the client has to send or read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._awaited_state: object = None
        """What the client has to send now: a state of h11, or None."""
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request; close the longest idle connection if there are too many."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._expect()
        idle = [c for c in self.connections if isinstance(c, BoundedConnection) and c.is_idle]
        if len(idle) > MAX_IDLE:
            min(idle, key=lambda connection: connection._idle_since).abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle  # None before the first
        return cycle is None or bool(cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        """Read some bytes of a request."""
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """Wait for the rest of the request, which may come after the answer."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is not h11.IDLE:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch that a client that reads slowly does read."""
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop watching: the client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch_reading(self, unsent: int) -> None:
        def check_progress() -> None:
            still_unsent = self.transport.get_write_buffer_size()
            if still_unsent >= unsent:
                self.abort()
            else:
                self._watch_reading(still_unsent)

        if self._unread is not None:
            self._unread.cancel()
        self._unread = self.loop.call_later(UNREAD_SECONDS, check_progress)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection when no further request came, even if an answer is unread."""
        if self.transport.get_write_buffer_size():
            self.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; in the middle of an answer only by closing the connection."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.abort()

    def abort(self) -> None:
        """Close the connection without waiting for the client to read what is unsent."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _expect(self) -> None:
        """Set the time limit for what the client has to send now. It runs from the start of that
        part of the request, however much of it has arrived since."""
        state = self.conn.their_state
        seconds = {h11.IDLE: REQUEST_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(state)
        if seconds is None or state is not self._awaited_state:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._awaited_state = None
        if seconds is not None and self._timer is None:
            self._awaited_state = state
            self._timer = self.loop.call_later(seconds, self.abort)
