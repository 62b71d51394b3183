"""Connections that stay half open, and requests whose headers no parser takes."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from itertools import product

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from helpers.mixed_comparison import mixed
from syncpoint.server import connection_limits
from syncpoint.server.access_guard import HEADER, AccessGuard
from syncpoint.server.app import create_app
from syncpoint.server.run_server import bind_socket, server_config
from syncpoint.server.session import open_session

TOKEN = "secret"
SHORT = 0.15
"""Seconds of every limit in these tests."""


class SlowAnswer:
    """An application that takes longer than any limit to answer, or answers much."""

    def __init__(self):
        self.waiting = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        body = b""
        if scope["method"] == "POST":
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message.get("body", b"")
                more = message.get("more_body", False)
        if scope["path"] == "/slow":
            await asyncio.sleep(4 * SHORT)
        much = b"x" * (16 << 20) if scope["path"] == "/much" else b"answered " + body
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": much})


@contextlib.contextmanager
def serving(app):
    with bind_socket(0) as listening:
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def port(monkeypatch):
    for name in ("REQUEST_SECONDS", "BODY_SECONDS", "UNREAD_SECONDS", "KEEP_ALIVE_SECONDS"):
        monkeypatch.setattr(connection_limits, name, SHORT)
    monkeypatch.setattr(connection_limits, "MAX_IDLE", 20)
    with serving(AccessGuard(SlowAnswer(), TOKEN, 1)) as found:
        yield found


def connected(port):
    made = socket.create_connection(("127.0.0.1", port), 10)
    made.settimeout(20)
    return made


def head(method="GET", path="/", **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"{HEADER}: {TOKEN}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def ended(connection):
    """What came before the other end closed; the timeout of the socket fails the test."""
    found = []
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 20):
            found.append(piece)
    return b"".join(found)


def ask(port, path="/"):
    with connected(port) as one:
        one.sendall(head(path=path, Connection="close"))
        return ended(one)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET",
        head()[:-2],
        head("POST", Content_Length=10),
        head("POST", Content_Length=10) + b"12345",
        head("POST", Transfer_Encoding="chunked") + b"5\r\n123",
        head("POST", Content_Length=10).replace(TOKEN.encode(), b"none"),
    ],
    ids=["nothing", "a word", "no end", "no body", "half a body", "half a chunk", "no token"],
)
def test_a_request_that_does_not_come_is_ended(port, begun):
    with connected(port) as one:
        one.sendall(begun)
        assert b" 200 " not in ended(one)
    assert b"answered" in ask(port)


@pytest.mark.parametrize(
    "begun", [b"GET / HTTP/1.1\r\nX: ", head("POST", Content_Length=10**6)], ids=["headers", "body"]
)
def test_a_request_that_drips_is_ended_all_the_same(port, begun):
    with connected(port) as one:
        one.sendall(begun)
        one.settimeout(SHORT / 10)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while True:
                one.sendall(b"a")
                with contextlib.suppress(TimeoutError):
                    if not one.recv(1):
                        break
    assert b"answered" in ask(port)


def test_a_drip_after_a_good_answer_is_ended_too(port):
    with connected(port) as one:
        one.sendall(head())
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += one.recv(1 << 16)
        one.sendall(b"GET / HT")
        assert b" 200 " not in ended(one)


def test_many_half_open_connections_do_not_keep_others_out(port):
    held = [connected(port) for _ in range(60)]
    try:
        assert b"answered" in ask(port)
        for one in held:
            ended(one)
    finally:
        for one in held:
            one.close()


def test_an_answer_may_take_as_long_as_it_likes(port):
    assert b"answered" in ask(port, "/slow")
    with connected(port) as one:
        one.sendall(head("POST", "/slow", Content_Length=2, Connection="close") + b"ab")
        assert b"answered ab" in ended(one)


def test_an_answer_that_nobody_reads_is_ended(port):
    with connected(port) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(head(path="/much"))
        time.sleep(3 * SHORT)
        assert len(ended(one)) < 16 << 20
    assert b"answered" in ask(port)


def test_an_answer_that_is_read_slowly_comes_whole(port):
    with connected(port) as one:
        one.sendall(head(path="/much", Connection="close"))
        assert len(ended(one)) > 16 << 20


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        head(Content_Length="9" * 5000),
        head(Content_Length="-1"),
        head("POST", Transfer_Encoding="chunked") + b"zz\r\n",
        head("POST", Transfer_Encoding="chunked", Content_Length=3) + b"abc",
        head() + b"\0\0\0\r\n\r\n",
        head(X="a" * 100_000),
        head(Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Key="x"),
    ],
)
def test_what_is_no_http_is_refused_or_answered_and_nothing_is_printed(port, sent, capfd):
    with connected(port) as one:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            one.sendall(sent)
        assert b" 500 " not in ended(one)
    assert b"answered" in ask(port)
    assert "Traceback" not in capfd.readouterr().err


class Asked:
    """An application behind the guard, and what it answers."""

    def __init__(self):
        self.guard = AccessGuard(self.answer, TOKEN, 7410)

    async def answer(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def status(self, headers, query=b""):
        found = []

        async def send(message):
            if message["type"] == "http.response.start":
                found.append(message["status"])

        async def receive():
            return {"type": "http.request", "body": b""}

        known = {b"host": b"127.0.0.1:7410", HEADER.encode(): TOKEN.encode()}
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": query,
            "headers": list({**known, **headers}.items()),
        }
        asyncio.run(self.guard(scope, receive, send))
        return found[0]


@pytest.mark.parametrize(
    "origin",
    [
        *("http://[", "http://[::1", "http://[::1]evil", "http://[v1.x]", "http://127.0.0.1:x"),
        *("http://user@127.0.0.1:7410", "http://127.0.0.1:7410/", "http://127.0.0.1:99999"),
        *("http://127.0.0.1:7410:7410", "http://", "http://a b", "http://\xb2", "http://[::1%25x]"),
        *("http://127.0.0.1\\@evil", "http://127.0.0.1:7410#x", "http://127.0.0.1:٣"),
    ],
)
def test_a_malformed_origin_is_a_bad_request(origin):
    assert Asked().status({b"origin": origin.encode()}) == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("127.0.0.1", "127.0.0.1:80", "localhost:7410", "LOCALHOST")),
        *((name, 200) for name in ("[::1]", "[::1]:7410")),
        *((name, 400) for name in ("[::1]evil", "[::1]:80:80", "127.0.0.1:80:80", "127.0.0.1:")),
        *((name, 400) for name in ("user@127.0.0.1", "127.0.0.1/", "[::1", "", " ", "\xb2")),
        *((name, 400) for name in ("127.0.0.1:99999", "127.0.0.1:x", "http://127.0.0.1", "a,b")),
        *((name, 421) for name in ("localhost.evil", "127.0.0.1.evil", "[::2]", "localhost.")),
        *((name, 421) for name in ("127.0.0.10", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]")),
    ],
)
def test_the_host_is_parsed(host, status):
    assert Asked().status({b"host": host.encode("latin-1")}) == status


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "1e3", "", "0x1", "1_0", " 1"])
def test_a_malformed_length_is_refused(length):
    assert Asked().status({b"content-length": length.encode("latin-1")}) == 413


HEADERS = ("host", "origin", "cookie", "content-length", "sec-fetch-site", HEADER)


@given(
    st.dictionaries(st.sampled_from(HEADERS), st.binary(max_size=60), max_size=4),
    st.binary(max_size=60) | st.just(b"token=%ff%fe") | st.just(b"token=" + b"%zz" * 9),
)
def test_no_header_and_no_query_breaks_the_guard(headers, query):
    status = Asked().status({name.encode(): value for name, value in headers.items()}, query)
    assert status in (200, 400, 403, 413, 421)


BODIES = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 5000,
    b"\xff\xfe",
    b"",
    b"null",
    b'"\\ud800"',
    json.dumps({"target": "\ud800", "reference": "\0", "path": "\udcff"}).encode(),
]


def test_no_body_breaks_the_session(tmp_path):
    from starlette.testclient import TestClient

    (tmp_path / "in").mkdir()
    opened, library = open_session([tmp_path / "in"], tmp_path / "out", "", "")
    client = TestClient(create_app(library, opened))
    try:
        posts = [path for path, ways in client.app.openapi()["paths"].items() if "post" in ways]
        assert len(posts) > 5
        for path, body in product(posts, BODIES):
            answer = client.post(path.replace("{", "").replace("}", ""), content=body,
                                 headers={"content-type": "application/json"})  # fmt: skip
            assert answer.status_code < 500, (path, answer.text)
        for text in ("\ud800", "\0", "%00", "~nobody/x", "a" * 5000, "\udcff"):
            answer = client.get(
                "/api/session/files", params={"path": text.encode("utf-8", "surrogatepass")}
            )
            assert answer.status_code < 500
    finally:
        opened.close()


def test_a_comparison_in_a_folder_of_another_encoding_does_not_break_the_listing(
    tmp_path, monkeypatch
):
    from starlette.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    made = mixed(5)
    made.save(tmp_path / "in" / "good.cmp")
    made.save(tmp_path / "in" / "bad\udcff.cmp")
    made.save(tmp_path / "in" / "esc\x1b[2J.cmp")
    opened, library = open_session([tmp_path / "in"], tmp_path / "out", "", "")
    client = TestClient(create_app(library, opened))
    try:
        for place in ("", "/files", "/files?path=in", "/past", "/form", "/jobs"):
            answer = client.get(f"/api/session{place}")
            assert answer.status_code == 200, (place, answer.text)
        names = [one["name"] for one in client.get("/api/session/past").json()["comparisons"]]
        assert names == ["good"]
    finally:
        opened.close()
