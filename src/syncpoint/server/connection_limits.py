"""Connections that do not go on are ended, so that they cannot use up what the server has.

uvicorn waits for a request as long as its sender likes. Here a request must come whole within a few
seconds, and an answer must be taken; how long the answer is in the making is nobody's limit, since
pages wait for news on open requests.
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
"""In which some of an answer must be read."""
MAX_IDLE = 100
"""Connections without a request under way; beyond it the one that is idle longest is ended."""


class BoundedConnection(H11Protocol):
    """One connection, with a time limit on what its other end owes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._owes: object = None
        """What the other end is waited for: a state of h11, or None."""
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A request is expected from now on."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._expect()
        idle = [c for c in self.connections if isinstance(c, BoundedConnection) and c.is_idle]
        if len(idle) > MAX_IDLE:
            min(idle, key=lambda connection: connection._idle_since).abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        cycle: Any = self.cycle  # None before the first
        return cycle is None or bool(cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """The answer is sent; the rest of the request may still be owed."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is not h11.IDLE:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The other end does not read as fast as is written."""
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch_reading(self, unsent: int) -> None:
        def look_again() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= unsent:
                self.abort()
            else:
                self._watch_reading(now)

        if self._unread is not None:
            self._unread.cancel()
        self._unread = self.loop.call_later(UNREAD_SECONDS, look_again)

    def timeout_keep_alive_handler(self) -> None:
        """No further request came: end it, also where the last answer was not taken."""
        if self.transport.get_write_buffer_size():
            self.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; in the middle of an answer there is no way to say so."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.abort()

    def abort(self) -> None:
        """End it without waiting for the other end, which may never take what is unsent."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _expect(self) -> None:
        """Set the time limit for what is owed now; it runs from when it began to be owed, however
        much of it has come since."""
        owes = self.conn.their_state
        seconds = {h11.IDLE: REQUEST_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(owes)
        if seconds is None or owes is not self._owes:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._owes = None
        if seconds is not None and self._timer is None:
            self._owes = owes
            self._timer = self.loop.call_later(seconds, self.abort)
