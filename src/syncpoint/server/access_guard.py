"""Refuse requests without the token, to another host or from another origin; cut off bodies that
are too long; add security headers.

A random token keeps out other users and other pages of the browser. The checks of Host and Origin
keep out requests by a host name that an attacker points at this machine (DNS rebinding).
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
_MAX_QUERY_BYTES = 16 << 10
_MAX_BODY_BYTES = 1 << 20
_SECURITY_HEADERS = {
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
_CONTENT_LENGTH = re.compile("[0-9]{1,12}")
_MALFORMED = (400, "the request is not valid HTTP")


class AccessGuard:
    """Refuses requests without the token, to another host or from another origin."""

    def __init__(self, app: ASGIApp, token: str, port: int, hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._token = token
        self._cookie = f"syncpoint_{port}"
        # Through an ssh tunnel the port may be another one, so only the name is checked.
        self._hosts = frozenset({"127.0.0.1", "localhost", "[::1]", *hosts})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI calls it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            refusal = self._check_request(scope, headers)
            set_cookie = self._has_token_in_address(scope)
        except ValueError:  # a header or the query cannot be parsed
            refusal, set_cookie = _MALFORMED, False
        if refusal:
            status, text = refusal
            await PlainTextResponse(text, status)(scope, receive, self._add_headers(send, False))
            return
        await self._app(scope, self._limit_body(receive), self._add_headers(send, set_cookie))

    def _check_request(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return status and text of a refusal; None where the request is allowed."""
        host = _Address.parse(headers.get("host", ""))
        if host is None:
            return 400, "the Host header is not valid"
        if host.name not in self._hosts:
            return 421, "the Host header names another host than 127.0.0.1 or localhost"
        origin = headers.get("origin")
        if origin is not None:
            scheme, _, rest = origin.partition("://")
            address = _Address.parse(rest)
            if address is None and scheme.lower() in ("http", "https"):
                return 400, "the Origin header is not valid"
            if scheme.lower() != "http" or address != host:
                return 403, "the request comes from a page of another origin"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "the request comes from another site"
        if len(scope["query_string"]) > _MAX_QUERY_BYTES:
            return 414, f"the query is longer than {_MAX_QUERY_BYTES} bytes"
        length = headers.get("content-length", "0")
        if not _CONTENT_LENGTH.fullmatch(length) or int(length) > _MAX_BODY_BYTES:
            return 413, f"the body is larger than {_MAX_BODY_BYTES} bytes"
        if not self._has_token(scope, headers):
            return 403, f"the token of this session is missing or wrong; {_CURE}"
        return None

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        tokens = [headers.get(HEADER, ""), self._token_in_address(scope)]
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
            if self._cookie in cookies:
                tokens.append(cookies[self._cookie].value)
        except CookieError:
            pass
        return any(hmac.compare_digest(token.encode(), self._token.encode()) for token in tokens)

    def _token_in_address(self, scope: Scope) -> str:
        query: dict[str, list[str]] = parse_qs(scope["query_string"].decode("latin-1"))
        return query.get("token", [""])[0]

    def _has_token_in_address(self, scope: Scope) -> bool:
        """Whether the token is in the URL: then it is stored as a cookie, for reloads and tabs."""
        token = self._token_in_address(scope)
        return hmac.compare_digest(token.encode(), self._token.encode())

    def _add_headers(self, send: Send, set_cookie: bool) -> Send:
        """Return a `send` that adds the security headers and, if asked to, the cookie."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if set_cookie:
                    headers.append(
                        "Set-Cookie",
                        f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/",
                    )
            await send(message)

        return send_with_headers

    @staticmethod
    def _limit_body(receive: Receive) -> Receive:
        """Return a `receive` that cuts off a body which is larger than its Content-Length says."""
        received_bytes = 0

        async def receive_limited() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > _MAX_BODY_BYTES:
                return {"type": "http.disconnect"}
            return message

        return receive_limited


@dataclass(frozen=True)
class _Address:
    """A host name and a port, as in Host and Origin; without user and path."""

    name: str
    port: int = 80

    @classmethod
    def parse(cls, text: str) -> _Address | None:
        """Return the address that a text is; None where it is not one."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            return None
        port = int(match["port"] or 80)
        return cls(match["name"].lower(), port) if port <= 65535 else None
