"""A session: the folders it may look into, the comparisons it makes, and those of the past."""

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
from syncpoint.server.allowed_files import Folders
from syncpoint.server.comparison_request import ComparisonPlan, said_precision, warnings
from syncpoint.server.jobs import Job, Jobs
from syncpoint.server.model_check import Checks
from syncpoint.server.open_comparisons import Library
from syncpoint.server.output_folders import free_output_path
from syncpoint.server.past_comparisons import PastList
from syncpoint.server.session_memory import SessionMemory
from syncpoint.server.session_schema import Command, MetricChoice, SessionInfo, SessionSpec
from syncpoint.server.unfinished_view import Glimpses
from syncpoint.server.worker_process import ProcessLimits


@dataclass(kw_only=True)
class ComparisonSession:
    """What the routes of a session work on."""

    folders: Folders
    out: Path
    library: Library
    memory: SessionMemory
    limits: ProcessLimits | None = None
    """What each comparison may use before it is ended."""

    key: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this server from one that had the same address before it."""
    ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.out, self.library.add, self.memory, self.limits)
        self.past = PastList(self.folders, self.out, self.memory)
        self.checks = Checks(self.folders)
        self.glimpses = Glimpses(self.library.add)

    def info(self) -> SessionInfo:
        """What the form needs before anything is chosen."""
        return SessionInfo(
            key=self.key,
            form=self.memory.form,
            folders=[self.folders.text_of(root) for root in self.folders.roots],
            out=self.folders.text_of(self.out),
            metrics=[
                MetricChoice(id=name, title=CATALOGUE[name].title) for name in CHOOSABLE_METRICS
            ],
            presets=["auto", *PRESETS],
        )

    def command(self, spec: SessionSpec) -> Command:
        """The same comparison for the shell, and what looks wrong about it."""
        plan = ComparisonPlan.of(spec, self.folders)
        sides = [said_precision(self.folders, side) for side in (spec.target, spec.reference)]
        out = self.folders.text_of(free_output_path(self.out, plan.name))
        return Command(command=plan.command(out), warnings=warnings(sides[0], sides[1]))

    def compare(self, spec: SessionSpec) -> Job:
        """Ask for a comparison."""
        plan = ComparisonPlan.of(spec, self.folders)
        return self.jobs.start(plan, self._command(plan), spec)

    def go_on(self, text: str) -> Job:
        """Go on with an unfinished comparison in the folder of comparisons, also with one that an
        earlier server began."""
        folder = self.folders.resolve(text)
        job = self.jobs.made_in(folder)
        if job is not None:
            return self.jobs.go_on(job.id)
        spec = self.memory.asked(folder)
        if spec is None or not can_resume(folder):
            raise InputError(
                "an unfinished comparison that was begun on this page",
                repr(text),
                "go on with others by their command and --resume",
            )
        plan = ComparisonPlan.of(spec, self.folders)
        return self.jobs.take_up(plan, self._command(plan), spec, folder)

    def so_far(self, text: str) -> str:
        """The name of what a comparison of this page has come to, finished or not."""
        folder = self.folders.resolve(text)
        if is_comparison(folder):
            return self.library.add(folder)
        job = self.jobs.made_in(folder)
        spec = None if job is not None else self.memory.asked(folder)
        if job is None and spec is None:
            raise InputError("a comparison that was begun on this page", repr(text))
        plan = job.plan if job is not None else ComparisonPlan.of(spec, self.folders)  # type: ignore[arg-type]
        return self.glimpses.look(folder, plan)

    def _command(self, plan: ComparisonPlan) -> Callable[[str], str]:
        return lambda out: plan.command(self.folders.text_of(Path(out)))

    def close(self) -> None:
        """Let go of the pages that listen, and end what runs."""
        self.ending.set()
        self.checks.close()
        self.glimpses.close()
        self.jobs.close()


def open_session(
    folders: list[Path],
    out: Path,
    target: str = "",
    reference: str = "",
    limits: ProcessLimits | None = None,
) -> tuple[ComparisonSession, Library]:
    """A session over some folders, and its library of comparisons."""
    out = out.resolve()
    looked_into = Folders(folders, out)
    library = Library(folders=list(dict.fromkeys([*looked_into.roots, out])))
    for path in (target, reference):
        if path:
            looked_into.allowed(path)
    memory = SessionMemory(out, target, reference)
    return ComparisonSession(
        folders=looked_into, out=out, library=library, memory=memory, limits=limits
    ), library
