"""Who may not ask gets nothing, and what is asked wrongly is answered in one line."""

import http.client
import json
import os
import socket
import subprocess
import sys
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi import checks as openapi

from helpers.mixed_comparison import mixed
from syncpoint.page.open_comparison import comparison_id
from syncpoint.server.app import create_app
from syncpoint.server.comparison_library import Library


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The real command in a process of its own."""
    folder = tmp_path_factory.mktemp("served")
    path = mixed(40).save(folder / "mixed.cmp")
    (folder / "secret.txt").write_text("secret")
    code = "from syncpoint.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "view", str(path), "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    address = urlsplit(process.stdout.readline().strip())
    yield Server(address.port, parse_qs(address.query)["token"][0], comparison_id(path))
    process.terminate()
    process.wait(10)


class Server:
    def __init__(self, port: int, token: str, name: str) -> None:
        self.port, self.token, self.name = port, token, name

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str):
        """Status, headers and text; with the token unless another is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        said = {"X-Syncpoint-Token": self.token}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, {k: v for k, v in said.items() if v})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    @property
    def rows(self) -> str:
        return f"/api/comparisons/{self.name}/rows"


def test_it_listens_on_one_address_of_this_machine_alone(server):
    with socket.create_connection(("127.0.0.1", server.port), 5):
        pass
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), 5)


def test_with_the_token_it_answers(server):
    assert server.ask(server.rows)[0] == 200
    assert server.ask(server.rows, X_Syncpoint_Token="", Cookie="a=b")[0] == 403


@pytest.mark.parametrize("token", ["", "x", "é", "a" * 5000])
@pytest.mark.parametrize(
    "path", ["/", "/api/comparisons", "/static/app.js", "/c/x", "/openapi.json"]
)
def test_without_the_token_nothing_is_told(server, path, token):
    said = quote(token)
    status, headers, text = server.ask(f"{path}?token={said}", X_Syncpoint_Token=said)
    assert status == 403
    assert "token" in text
    assert "Set-Cookie" not in headers
    assert server.token not in text


def test_the_address_gives_a_cookie_that_serves_other_tabs(server):
    status, headers, _ = server.ask(f"/c/{server.name}?token={server.token}", X_Syncpoint_Token="")
    cookie = headers["set-cookie"] if "set-cookie" in headers else headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert status in (200, 503)
    again = server.ask(server.rows, X_Syncpoint_Token="", Cookie=cookie.split(";")[0])
    assert again[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7410", "127.0.0.1.evil.example", "", "[::2]", "a" * 300]
)
def test_another_name_for_this_machine_is_refused(server, host):
    assert server.ask(server.rows, Host=host or " ")[0] in (400, 421)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost", "file://"]
)
def test_another_origin_is_refused(server, origin):
    assert server.ask(server.rows, Origin=origin)[0] == 403
    assert server.ask(server.rows, Sec_Fetch_Site="cross-site")[0] == 403
    assert server.ask(server.rows, Origin=f"http://127.0.0.1:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e/secret.txt",
        "/static/....//secret.txt",
        "/static//etc/passwd",
        "/static/app.js%00.txt",
        "/c/../secret.txt",
        "/api/comparisons/..%2fsecret.txt/rows",
        "/api/comparisons/%2fetc/rows",
    ],
)
def test_no_path_leads_out(server, path):
    status, _, text = server.ask(path)
    assert status in (404, 405, 422) or text.startswith("<!doctype html>")
    assert "secret" not in text.replace("secret.txt", "")
    assert "root:" not in text


@pytest.mark.parametrize(
    "query",
    [
        "limit=100000",
        "offset=-1",
        "offset=99999999999999999999",
        "metric=__class__",
        "metric=target_op",
        "sort=sideways",
        "text=" + "a" * 501,
        "open=" + "&open=".join("a" * 201),
        "start=nan",
        "grouped=perhaps",
    ],
)
def test_what_is_asked_wrongly_is_answered_with_a_problem(server, query):
    status, _, text = server.ask(f"{server.rows}?{query}")
    assert status == 422
    assert set(json.loads(text)) == {"problem", "cure"}


def test_what_is_too_large_is_turned_away(server):
    assert server.ask(f"{server.rows}?text={'a' * 20_000}")[0] == 414
    body = b"x" * (2 << 20)
    try:
        status = server.ask(server.rows, "POST", body)[0]
    except (BrokenPipeError, ConnectionResetError):
        status = 413  # it hung up while we were still sending
    assert status == 413
    assert server.ask(server.rows)[0] == 200


def test_a_pattern_is_only_text(server):
    status, _, text = server.ask(f"{server.rows}?text={quote('(a+)+$')}")
    assert status == 200
    assert json.loads(text)["matching"] == 0


def test_every_answer_forbids_what_a_page_does_not_need(server):
    for path in (server.rows, "/", "/nothing", f"{server.rows}?limit=-1"):
        headers = {k.lower(): v for k, v in server.ask(path)[1].items()}
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_it_tells_nothing_of_itself_without_being_asked(server):
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert server.ask(path)[0] == 404


@pytest.fixture(scope="module")
def description(tmp_path_factory):
    path = mixed(30).save(tmp_path_factory.mktemp("served") / "mixed.cmp")
    app = create_app(Library([path]))
    app.add_api_route("/openapi.json", lambda: app.openapi(), include_in_schema=False)
    found = schemathesis.openapi.from_asgi("/openapi.json", app)
    found.config.generation.update(codec="utf-8")
    return found


def test_no_question_breaks_it(description):
    """Whatever is asked, the answer is one that the description announces, and never a 500."""
    library = description.app.state.library
    asked = 0
    for found in description.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=settings.default.max_examples // 4,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )
        def ask(case):
            if "name" in (case.path_parameters or {}) and len(case.path_parameters["name"]) % 4:
                case.path_parameters["name"] = next(iter(library.list_comparisons()))
            answer = case.call()
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)
            case.validate_response(
                answer,
                checks=[
                    openapi.status_code_conformance,
                    openapi.content_type_conformance,
                    openapi.response_schema_conformance,
                ],
            )

        ask()
        asked += 1
    assert asked >= 10
