"""Build the web application: routes, page files, errors as JSON, with or without the access
guard."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from syncpoint.errors import InputError, SyncpointError
from syncpoint.page import BUILT_PAGE
from syncpoint.page.schema import Problem
from syncpoint.server.access_guard import AccessGuard
from syncpoint.server.comparison_library import Library
from syncpoint.server.routes import comparisons, details, graphs, sessions, source_code
from syncpoint.server.session import ComparisonSession
from syncpoint.version import __version__

_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}


def create_app(library: Library, session: ComparisonSession | None = None) -> FastAPI:
    """Return the API and the page without the access guard, as tests and `make types` use it."""
    app = FastAPI(
        title="Syncpoint", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.library = library
    app.state.session = session
    for routes in (comparisons, details, graphs, source_code, sessions):
        app.include_router(routes.router, prefix="/api")

    @app.exception_handler(SyncpointError)
    def answer_error(_: Request, error: SyncpointError) -> Response:
        status = 404 if isinstance(error, InputError) else 422
        return problem_response(Problem.of(error), status)

    @app.exception_handler(RequestValidationError)
    def answer_invalid_request(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return problem_response(Problem(problem=f"{place} is not valid: {first['msg']}"), 422)

    @app.get("/", include_in_schema=False)
    @app.get("/c/{name}", include_in_schema=False)
    def page(name: str = "") -> Response:
        del name
        file = BUILT_PAGE / "index.html"
        if not file.is_file():
            return HTMLResponse("The page is not built. Run `make web`.", 503)
        return FileResponse(file, media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        file = BUILT_PAGE / name
        if file.parent != BUILT_PAGE or file.suffix not in _MEDIA_TYPES or not file.is_file():
            return problem_response(Problem(problem=f"the page has no file {name!r}"), 404)
        return FileResponse(file, media_type=_MEDIA_TYPES[file.suffix])

    return app


def problem_response(problem: Problem, status: int) -> Response:
    """Return an error as JSON."""
    return JSONResponse(problem.model_dump(), status)


def create_guarded_app(
    library: Library, token: str, port: int, session: ComparisonSession | None = None
) -> AccessGuard:
    """Return the application behind the access guard, as it is served."""
    return AccessGuard(create_app(library, session), token, port)
