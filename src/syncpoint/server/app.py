"""The server as a whole: the API, the page, and who may ask."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from syncpoint.errors import InputError, SyncpointError
from syncpoint.page import BUILT
from syncpoint.page.schema import Problem
from syncpoint.server.access_guard import Guard
from syncpoint.server.open_comparisons import Library
from syncpoint.server.routes import comparisons, details, graphs, sessions, source_code
from syncpoint.server.session import Session
from syncpoint.version import __version__

_TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}


def create_app(library: Library, session: Session | None = None) -> FastAPI:
    """The API and the page, without the guard; tests and the making of types use it as it is."""
    app = FastAPI(
        title="Syncpoint", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.library = library
    app.state.session = session
    for part in (comparisons, details, graphs, source_code, sessions):
        app.include_router(part.router, prefix="/api")

    @app.exception_handler(SyncpointError)
    def said(_: Request, error: SyncpointError) -> Response:
        status = 404 if isinstance(error, InputError) else 422
        return problem(error.expected, error.found, error.cure, status)

    @app.exception_handler(RequestValidationError)
    def misasked(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return problem(f"a well-formed {place}", first["msg"], "", 422)

    @app.get("/", include_in_schema=False)
    @app.get("/c/{name}", include_in_schema=False)
    def page(name: str = "") -> Response:
        del name
        file = BUILT / "index.html"
        if not file.is_file():
            return HTMLResponse("The page is not built: run `make web`.", 503)
        return FileResponse(file, media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        file = BUILT / name
        if file.parent != BUILT or file.suffix not in _TYPES or not file.is_file():
            return problem("a part of the page", repr(name), "", 404)
        return FileResponse(file, media_type=_TYPES[file.suffix])

    return app


def problem(expected: str, found: str, cure: str, status: int) -> Response:
    """An error as JSON."""
    said = Problem(expected=expected, found=found, cure=cure)
    return JSONResponse(said.model_dump(), status)


def guarded(library: Library, token: str, port: int, session: Session | None = None) -> Guard:
    """What is put on the network."""
    return Guard(create_app(library, session), token, port)
