"""The state behind the session page: start, resume and show comparisons, build their command line,
close everything."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.comparison.storage.comparison_folder import is_comparison
from syncpoint.comparison.storage.progress_log import can_resume
from syncpoint.errors import InputError
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.limits import PRESETS
from syncpoint.page.overview import CHOOSABLE_METRICS
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.comparison_library import Library
from syncpoint.server.form_request import RequestedComparison, find_warnings, preview_side
from syncpoint.server.job_queue import Job, JobQueue
from syncpoint.server.model_check import ModelChecks
from syncpoint.server.output_folders import free_output_path
from syncpoint.server.past_comparisons import PastList
from syncpoint.server.session_memory import SessionMemory
from syncpoint.server.session_schema import Command, MetricChoice, SessionInfo, SessionSpec
from syncpoint.server.unfinished_view import UnfinishedViews
from syncpoint.server.worker_process import ProcessLimits


@dataclass(kw_only=True)
class ComparisonSession:
    """The state that the routes of a session work on."""

    folders: AllowedFolders
    out: Path
    library: Library
    memory: SessionMemory
    limits: ProcessLimits | None = None
    """What each comparison may use before it is stopped."""

    key: str = field(default_factory=lambda: secrets.token_hex(4))
    """Distinguishes this server from an earlier one at the same address."""
    ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.jobs = JobQueue(self.out, self.library.add, self.memory, self.limits)
        self.past = PastList(self.folders, self.out, self.memory)
        self.checks = ModelChecks(self.folders)
        self.unfinished = UnfinishedViews(self.library.add)

    def info(self) -> SessionInfo:
        """Return what the form needs before anything is chosen."""
        return SessionInfo(
            key=self.key,
            form=self.memory.form,
            folders=[self.folders.display_path(root) for root in self.folders.roots],
            out=self.folders.display_path(self.out),
            metrics=[
                MetricChoice(id=name, title=CATALOGUE[name].title) for name in CHOOSABLE_METRICS
            ],
            presets=["auto", *PRESETS],
        )

    def build_command(self, spec: SessionSpec) -> Command:
        """Return the comparison as a command line, and what looks wrong about it."""
        plan = RequestedComparison.of(spec, self.folders)
        sides = [preview_side(self.folders, side) for side in (spec.target, spec.reference)]
        out = self.folders.display_path(free_output_path(self.out, plan.name))
        return Command(command=plan.build_command(out), warnings=find_warnings(sides[0], sides[1]))

    def start_comparison(self, spec: SessionSpec) -> Job:
        """Add a comparison to the queue."""
        plan = RequestedComparison.of(spec, self.folders)
        return self.jobs.add(plan, self._command_builder(plan), spec)

    def resume_comparison(self, text: str) -> Job:
        """Resume an unfinished comparison, even one that an earlier server began."""
        folder = self.folders.resolve(text)
        job = self.jobs.find_by_folder(folder)
        if job is not None:
            return self.jobs.resume(job.id)
        spec = self.memory.load_request(folder)
        if spec is None or not can_resume(folder):
            raise InputError(
                f"{text!r} is not an unfinished comparison that was started on this page",
                cure="resume it on the command line: add --resume to its command",
            )
        plan = RequestedComparison.of(spec, self.folders)
        return self.jobs.resume_folder(plan, self._command_builder(plan), spec, folder)

    def show_unfinished(self, text: str) -> str:
        """Return the name in URLs of a comparison of this page, or of a view of it if it is not
        finished."""
        folder = self.folders.resolve(text)
        if is_comparison(folder):
            return self.library.add(folder)
        job = self.jobs.find_by_folder(folder)
        spec = None if job is not None else self.memory.load_request(folder)
        if job is None and spec is None:
            raise InputError(
                f"{text!r} is not a comparison that was started on this page",
                cure="reload the page",
            )
        plan = job.plan if job is not None else RequestedComparison.of(spec, self.folders)  # type: ignore[arg-type]
        return self.unfinished.show(folder, plan)

    def _command_builder(self, plan: RequestedComparison) -> Callable[[str], str]:
        return lambda out: plan.build_command(self.folders.display_path(Path(out)))

    def close(self) -> None:
        """Close the event streams of pages, and stop everything that runs."""
        self.ending.set()
        self.checks.close()
        self.unfinished.close()
        self.jobs.close()


def open_session(
    folders: list[Path],
    out: Path,
    target: str = "",
    reference: str = "",
    limits: ProcessLimits | None = None,
) -> tuple[ComparisonSession, Library]:
    """Return a session for some folders, and its library of comparisons."""
    out = out.resolve()
    allowed = AllowedFolders(folders, out)
    library = Library(folders=list(dict.fromkeys([*allowed.roots, out])))
    for path in (target, reference):
        if path:
            allowed.check_path(path)
    memory = SessionMemory(out, target, reference)
    return ComparisonSession(
        folders=allowed, out=out, library=library, memory=memory, limits=limits
    ), library
