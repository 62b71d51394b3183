"""Questions and wishes of the page on which comparisons are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from syncpoint.errors import InputError
from syncpoint.server.path_preview import look
from syncpoint.server.routes.parameters import ERRORS
from syncpoint.server.session import ComparisonSession
from syncpoint.server.session_schema import (
    Command,
    Fields,
    Folder,
    FolderListing,
    Form,
    JobList,
    JobState,
    Name,
    Past,
    PathPreview,
    SessionInfo,
    SessionSpec,
    SideSpec,
)

router = APIRouter(prefix="/session", responses=ERRORS)
_PAUSE = 0.15
_HEARTBEAT = 15.0
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events named `jobs`: each holds a whole JobList, so that one"
        " that was missed is made up for by the next. `Last-Event-ID` says what is known already.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def asked(request: Request) -> ComparisonSession:
    """The session of this server; one that only shows comparisons has none."""
    session: ComparisonSession | None = request.app.state.session
    if session is None:
        raise InputError(
            "a server that makes comparisons",
            "one that shows them",
            "start one with: syncpoint session",
        )
    return session


def json_only(content_type: Annotated[str, Header()] = "") -> None:
    """A form of another page cannot send this type without being asked about it first."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InputError("a body of application/json", repr(content_type[:80]))


Current = Annotated[ComparisonSession, Depends(asked)]
Path = Annotated[str, Query(max_length=4000)]
Json = [Depends(json_only)]


@router.get("")
def get_session(session: Current) -> SessionInfo:
    """What the form needs before anything is chosen."""
    return session.info()


@router.get("/files")
def get_files(session: Current, path: Path = "") -> FolderListing:
    """A folder's files to choose from; without a path, the folders there are."""
    return session.folders.listing(path)


@router.get("/look")
def get_look(session: Current, path: Path) -> PathPreview:
    """What is at a path. Nothing is run."""
    return look(session.folders, path)


@router.post("/check", dependencies=Json)
def post_check(session: Current, side: SideSpec) -> PathPreview:
    """What is at a path, once a model there has been opened: this runs its code."""
    return session.checks.check(side)


@router.get("/past")
def get_past(session: Current) -> Past:
    """Comparisons and runs in the folders of the session."""
    return session.past.all(session.jobs.busy())


@router.post("/past/resume", dependencies=Json)
def post_past_resume(session: Current, folder: Folder) -> JobState:
    """Go on with a comparison that was begun here, also by an earlier server: this runs models."""
    return session.jobs.state_of(session.go_on(folder.path))


@router.post("/so-far", dependencies=Json)
def post_so_far(session: Current, folder: Folder) -> Name:
    """Look at a comparison that is not finished. No model is run."""
    return Name(comparison=session.so_far(folder.path))


@router.get("/form")
def get_form(session: Current) -> Form:
    """What is filled in."""
    return session.memory.form


@router.post("/form", dependencies=Json)
def post_form(session: Current, fields: Fields) -> Form:
    """Remember what is filled in. Nothing is run."""
    return session.memory.fill(fields)


@router.post("/command", dependencies=Json)
def post_command(session: Current, spec: SessionSpec) -> Command:
    """The comparison as a command line. Nothing is run."""
    return session.command(spec)


@router.get("/jobs")
def get_jobs(session: Current) -> JobList:
    """All comparisons that were asked for, newest first."""
    return session.jobs.listed()


@router.post("/jobs", dependencies=Json)
def post_job(session: Current, spec: SessionSpec) -> JobState:
    """Make a comparison: this runs models."""
    return session.jobs.state_of(session.compare(spec))


@router.get("/jobs/{job}")
def get_job(session: Current, job: str) -> JobState:
    """How far one is."""
    return session.jobs.state_of(session.jobs.get(job))


@router.post("/jobs/{job}/cancel")
def post_cancel(session: Current, job: str) -> JobState:
    """Stop one."""
    return session.jobs.state_of(session.jobs.cancel(job))


@router.post("/jobs/{job}/resume")
def post_resume(session: Current, job: str) -> JobState:
    """Go on with one that was stopped: this runs models."""
    return session.jobs.state_of(session.jobs.go_on(job))


@router.get("/events", responses=_EVENTS, response_class=StreamingResponse)
async def get_events(
    session: Current, last_event_id: Annotated[str, Header(max_length=100)] = ""
) -> StreamingResponse:
    """All jobs, again whenever one of them has changed."""
    return StreamingResponse(_events(session, last_event_id), media_type="text/event-stream")


async def _events(session: ComparisonSession, known: str) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    spoke = time.monotonic()
    while not session.ending.is_set():
        name = f"{session.key}-{session.jobs.version}-{session.memory.form.version}"
        if name != known:
            jobs = session.jobs.listed()
            known, spoke = f"{session.key}-{jobs.version}-{jobs.form}", time.monotonic()
            yield f"id: {known}\nevent: jobs\ndata: {jobs.model_dump_json()}\n\n"
        elif time.monotonic() - spoke > _HEARTBEAT:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(_PAUSE)
