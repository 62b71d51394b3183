"""Routes of the session page: form, files and paths, jobs (start, cancel, resume), past
comparisons, the stream of events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from syncpoint.errors import InputError
from syncpoint.server.path_preview import preview_path
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
_POLL_SECONDS = 0.15
_HEARTBEAT_SECONDS = 15.0
_EVENT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events named `jobs`. Each holds a whole JobList, so that the"
        " next one replaces one that was missed. `Last-Event-ID` names the last one received.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def get_current_session(request: Request) -> ComparisonSession:
    """Return the session of this server; InputError where it only shows comparisons."""
    session: ComparisonSession | None = request.app.state.session
    if session is None:
        raise InputError(
            "this server only shows comparisons and cannot run them",
            cure="start a session with: syncpoint session",
        )
    return session


def require_json(content_type: Annotated[str, Header()] = "") -> None:
    """Refuse bodies of other types: a page of another origin cannot send JSON without a preflight
    request."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InputError(
            f"the content type is {content_type[:80]!r}, not application/json",
            cure="send JSON",
        )


Current = Annotated[ComparisonSession, Depends(get_current_session)]
Path = Annotated[str, Query(max_length=4000)]
Json = [Depends(require_json)]


@router.get("")
def get_session(session: Current) -> SessionInfo:
    """What the form needs before anything is chosen."""
    return session.info()


@router.get("/files")
def get_files(session: Current, path: Path = "") -> FolderListing:
    """The files of a folder to choose from; without a path, the allowed folders."""
    return session.folders.list_folder(path)


@router.get("/look")
def get_look(session: Current, path: Path) -> PathPreview:
    """What is at a path. Nothing is run."""
    return preview_path(session.folders, path)


@router.post("/check", dependencies=Json)
def post_check(session: Current, side: SideSpec) -> PathPreview:
    """What is at a path, after opening the model there: this runs its code."""
    return session.checks.check(side)


@router.get("/past")
def get_past(session: Current) -> Past:
    """Comparisons and runs in the folders of the session."""
    return session.past.list_all(session.jobs.list_busy_folders())


@router.post("/past/resume", dependencies=Json)
def post_past_resume(session: Current, folder: Folder) -> JobState:
    """Resume a comparison that was begun here, also by an earlier server: this runs models."""
    return session.jobs.state_of(session.resume_comparison(folder.path))


@router.post("/so-far", dependencies=Json)
def post_so_far(session: Current, folder: Folder) -> Name:
    """Show a comparison that is not finished. No model is run."""
    return Name(comparison=session.show_unfinished(folder.path))


@router.get("/form")
def get_form(session: Current) -> Form:
    """The form as it was filled in last."""
    return session.memory.form


@router.post("/form", dependencies=Json)
def post_form(session: Current, fields: Fields) -> Form:
    """Store the form. Nothing is run."""
    return session.memory.save_form(fields)


@router.post("/command", dependencies=Json)
def post_command(session: Current, spec: SessionSpec) -> Command:
    """The comparison as a command line. Nothing is run."""
    return session.build_command(spec)


@router.get("/jobs")
def get_jobs(session: Current) -> JobList:
    """All comparisons that were requested, newest first."""
    return session.jobs.list_jobs()


@router.post("/jobs", dependencies=Json)
def post_job(session: Current, spec: SessionSpec) -> JobState:
    """Run a comparison: this runs models."""
    return session.jobs.state_of(session.start_comparison(spec))


@router.get("/jobs/{job}")
def get_job(session: Current, job: str) -> JobState:
    """The state of one comparison."""
    return session.jobs.state_of(session.jobs.get(job))


@router.post("/jobs/{job}/cancel")
def post_cancel(session: Current, job: str) -> JobState:
    """Stop one comparison."""
    return session.jobs.state_of(session.jobs.cancel(job))


@router.post("/jobs/{job}/resume")
def post_resume(session: Current, job: str) -> JobState:
    """Resume a comparison that was stopped: this runs models."""
    return session.jobs.state_of(session.jobs.resume(job))


@router.get("/events", responses=_EVENT_RESPONSES, response_class=StreamingResponse)
async def get_events(
    session: Current, last_event_id: Annotated[str, Header(max_length=100)] = ""
) -> StreamingResponse:
    """All jobs, sent whenever one of them has changed."""
    return StreamingResponse(_stream_events(session, last_event_id), media_type="text/event-stream")


async def _stream_events(session: ComparisonSession, last_id: str) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    last_sent = time.monotonic()
    while not session.ending.is_set():
        event_id = f"{session.key}-{session.jobs.version}-{session.memory.form.version}"
        if event_id != last_id:
            jobs = session.jobs.list_jobs()
            last_id = f"{session.key}-{jobs.version}-{jobs.form}"
            last_sent = time.monotonic()
            yield f"id: {last_id}\nevent: jobs\ndata: {jobs.model_dump_json()}\n\n"
        elif time.monotonic() - last_sent > _HEARTBEAT_SECONDS:
            last_sent = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(_POLL_SECONDS)
