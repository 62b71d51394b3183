"""Who may ask: only the page this server gave out, only on this machine.

A random token makes other users and other pages of the browser strangers; the Host and Origin
of a request make a name that an attacker points at this machine useless.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-syncpoint-token"
_CURE = "open the address that syncpoint printed"
_LONGEST_QUERY = 16 << 10
_LARGEST_BODY = 1 << 20
_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; worker-src 'self' blob:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


_ADDRESS = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_LENGTH = re.compile("[0-9]{1,12}")
_MALFORMED = (400, "expected a well-formed request, found something else")


class Guard:
    """Turns away what does not carry the token or comes under another name."""

    def __init__(self, app: ASGIApp, token: str, port: int, hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._token = token
        self._cookie = f"syncpoint_{port}"
        # Through an ssh tunnel the port on this side may be another one.
        self._hosts = frozenset({"127.0.0.1", "localhost", "[::1]", *hosts})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            refused = self._refusal(scope, headers)
            given = self._given(scope)
        except ValueError:  # whatever a header or the query holds that its parser does not take
            refused, given = _MALFORMED, False
        if refused:
            status, text = refused
            await PlainTextResponse(text, status)(scope, receive, self._adding(send, False))
            return
        await self._app(scope, self._bounded(receive), self._adding(send, given))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        host = _Address.parse(headers.get("host", ""))
        if host is None:
            return 400, "expected a well-formed Host, found something else"
        if host.name not in self._hosts:
            return 421, "expected a request to 127.0.0.1 or localhost, found another host"
        origin = headers.get("origin")
        if origin is not None:
            scheme, _, rest = origin.partition("://")
            place = _Address.parse(rest)
            if place is None and scheme.lower() in ("http", "https"):
                return 400, "expected a well-formed Origin, found something else"
            if scheme.lower() != "http" or place != host:
                return 403, "expected a request of this page, found one of another origin"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "expected a request of this page, found one of another site"
        if len(scope["query_string"]) > _LONGEST_QUERY:
            return 414, f"expected a query of at most {_LONGEST_QUERY} bytes, found a longer one"
        length = headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length) or int(length) > _LARGEST_BODY:
            return 413, f"expected a body of at most {_LARGEST_BODY} bytes, found a larger one"
        if not self._has_token(scope, headers):
            return 403, f"expected the token of this session, found none or another; {_CURE}"
        return None

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        said = [headers.get(HEADER, ""), self._asked(scope)]
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
            if self._cookie in cookies:
                said.append(cookies[self._cookie].value)
        except CookieError:
            pass
        return any(hmac.compare_digest(one.encode(), self._token.encode()) for one in said)

    def _asked(self, scope: Scope) -> str:
        query: dict[str, list[str]] = parse_qs(scope["query_string"].decode("latin-1"))
        return query.get("token", [""])[0]

    def _given(self, scope: Scope) -> bool:
        """Whether the token came in the address: then it is kept for reloads and other tabs."""
        return hmac.compare_digest(self._asked(scope).encode(), self._token.encode())

    def _adding(self, send: Send, remember: bool) -> Send:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY.items():
                    headers.setdefault(name, value)
                if remember:
                    headers.append(
                        "Set-Cookie",
                        f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/",
                    )
            await send(message)

        return adding

    @staticmethod
    def _bounded(receive: Receive) -> Receive:
        """A body that says nothing of its length, or lies, is cut off all the same."""
        seen = 0

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > _LARGEST_BODY:
                return {"type": "http.disconnect"}
            return message

        return bounded


@dataclass(frozen=True)
class _Address:
    """A name and a port, as Host and Origin have them; no user, no path."""

    name: str
    port: int = 80

    @classmethod
    def parse(cls, text: str) -> _Address | None:
        """None where it is something else."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            return None
        port = int(found["port"] or 80)
        return cls(found["name"].lower(), port) if port <= 65535 else None
