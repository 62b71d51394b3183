"""The comparisons of a session: one at a time, each in a process of its own.

What a job has come to is kept here, so that a page that is reloaded, a second one, or one that lost
its connection asks and sees the same.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.comparison.events import Stage
from syncpoint.comparison.storage.comparison_folder import is_comparison
from syncpoint.errors import InputError, describe_error
from syncpoint.page.schema import Problem
from syncpoint.server.comparison_request import ComparisonPlan
from syncpoint.server.output_folders import clear_output_folder, create_output_folder
from syncpoint.server.session_memory import SessionMemory
from syncpoint.server.session_schema import (
    DriftSoFar,
    JobList,
    JobState,
    LogLine,
    SessionSpec,
    StageState,
    State,
)
from syncpoint.server.worker_process import PATIENCE, Process, ProcessLimits

_MOST_LINES = 200
_SHOWN_LINES = 40
_MOST_JOBS = 100
_WITH_LOG = 3
"""Jobs whose last lines are in the list of all."""
OVER = ("done", "failed", "cancelled")


@dataclass(kw_only=True)
class _Progress:
    """How far one stage is."""

    state: str = "waits"
    done: int = 0
    total: int = 0
    text: str = ""
    opened: bool = False
    began: float = 0.0
    seconds: float = 0.0


@dataclass(kw_only=True)
class Job:
    """One comparison that was asked for."""

    plan: ComparisonPlan
    out: Path
    command: str
    spec: SessionSpec | None = None
    """What was filled in, to be remembered until it is done."""
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    created: float = field(default_factory=time.time)
    state: State = "queued"
    version: int = 0
    resume: bool = False
    began: float = 0.0
    ended: float = 0.0
    stages: dict[str, _Progress] = field(default_factory=dict)
    at: str | None = None
    """The stage that spoke last."""
    counts: dict[str, int] = field(default_factory=dict)
    drift: DriftSoFar | None = None
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=_MOST_LINES))
    problem: Problem | None = None
    warnings: list[str] = field(default_factory=list)
    verdict: str = ""
    headline: str = ""
    comparison: str = ""
    can_resume: bool = False
    process: Process | None = None
    cancelled: bool = False
    finished: bool = False
    """Whether the process has said that the comparison is saved."""

    @property
    def now(self) -> float:
        """Seconds since it began."""
        if not self.began:
            return 0.0
        return (self.ended or time.monotonic()) - self.began


class Jobs:
    """The queue, and the thread that works on it."""

    def __init__(
        self,
        out: Path,
        made: Callable[[Path], str],
        memory: SessionMemory | None = None,
        limits: ProcessLimits | None = None,
    ) -> None:
        """`out` is where comparisons are kept; `made` is told of each, and gives its name. Each
        may use as much as `limits` say."""
        self._limits = limits
        self._memory = memory
        self.out = out
        self.version = 0
        self._made = made
        self._jobs: dict[str, Job] = {}
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(
        self, plan: ComparisonPlan, command: Callable[[str], str], spec: SessionSpec | None = None
    ) -> Job:
        """Ask for a comparison; `command` gives its command line for a folder's text."""
        with self._changed:
            self._refuse_more()
            out = create_output_folder(self.out, plan.name)
            return self._added(Job(plan=plan, out=out, command=command(str(out)), spec=spec))

    def take_up(
        self, plan: ComparisonPlan, command: Callable[[str], str], spec: SessionSpec, out: Path
    ) -> Job:
        """Go on with the unfinished comparison in the folder `out` of an earlier server."""
        with self._changed:
            self._refuse_more()
            return self._added(
                Job(plan=plan, out=out, command=command(str(out)), spec=spec, resume=True)
            )

    def made_in(self, out: Path) -> Job | None:
        """The job whose comparison is kept in a folder."""
        with self._changed:
            found = (job for job in self._jobs.values() if job.out == out)
            return max(found, key=lambda job: job.created, default=None)

    def go_on(self, name: str) -> Job:
        """Go on with a comparison that was cancelled or failed on the way."""
        job = self.get(name)
        with self._changed:
            if job.state not in ("failed", "cancelled") or not job.can_resume:
                raise InputError(
                    "an unfinished comparison to go on with", f"one that is {job.state}"
                )
            job.state, job.resume, job.cancelled, job.finished = "queued", True, False, False
            job.problem, job.ended, job.began = None, 0.0, 0.0
            job.counts, job.drift = {}, None
            job.stages, job.at = _stages(job.plan), None
            return self._queued(job)

    def cancel(self, name: str) -> Job:
        """Stop a comparison, whether it waits or runs; of one that is over nothing changes."""
        job = self.get(name)
        with self._changed:
            if job.state == "queued":
                self._queue.remove(job)
                job.state = "cancelled"
                self._clear(job)
            elif job.state == "running":
                job.cancelled = True
            self._touch(job)
            process = job.process
        if process is not None and job.cancelled:
            threading.Thread(target=process.end, daemon=True).start()
        return job

    def get(self, name: str) -> Job:
        """The job called `name`."""
        found = self._jobs.get(name)
        if found is None:
            raise InputError("a comparison of this session", repr(name))
        return found

    def state_of(self, job: Job) -> JobState:
        """What the page is told of a job."""
        with self._changed:
            return _shown(job)

    def listed(self) -> JobList:
        """All of them, newest first."""
        with self._changed:
            jobs = sorted(self._jobs.values(), key=lambda job: -job.created)
            shown = [_shown(job, at < _WITH_LOG) for at, job in enumerate(jobs)]
            form = self._memory.form.version if self._memory is not None else 0
            return JobList(version=self.version, form=form, jobs=shown)

    def close(self) -> None:
        """End what runs; for when the server ends."""
        with self._changed:
            self._closed = True
            while self._queue:
                self._clear(self._queue.pop())
            running = [job for job in self._jobs.values() if job.process is not None]
            for job in running:
                job.cancelled = True
            self._changed.notify_all()
        for job in running:
            if job.process is not None:
                job.process.end()
        if self._thread is not None:
            self._thread.join(2 * PATIENCE)

    def busy(self) -> set[Path]:
        """The folders of comparisons that are being made."""
        with self._changed:
            return {job.out for job in self._jobs.values() if job.state not in OVER}

    def _refuse_more(self) -> None:
        waiting = sum(job.state not in OVER for job in self._jobs.values())
        if waiting >= _MOST_JOBS:
            raise InputError(f"at most {_MOST_JOBS} comparisons that wait", "one more")

    def _added(self, job: Job) -> Job:
        """With the lock held: a new job, at the end of the queue."""
        job.stages = _stages(job.plan)
        if self._memory is not None and job.spec is not None:
            self._memory.begin(job.out, job.spec)
        self._jobs[job.id] = job
        self._forget()
        return self._queued(job)

    def _clear(self, job: Job) -> None:
        job.can_resume = clear_output_folder(job.out)
        if self._memory is not None and not job.can_resume:
            self._memory.end(job.out)

    def _queued(self, job: Job) -> Job:
        """With the lock held: put it at the end of the queue."""
        self._queue.append(job)
        self._touch(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        return job

    def _forget(self) -> None:
        over = [job for job in self._jobs.values() if job.state in OVER]
        for job in sorted(over, key=lambda job: job.created)[: max(0, len(over) - _MOST_JOBS)]:
            del self._jobs[job.id]

    def _touch(self, job: Job) -> None:
        """With the lock held: something about the job is new."""
        self.version += 1
        job.version = self.version
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._queue)
                if self._closed:
                    return
                job = self._queue.popleft()
                job.state, job.began = "running", time.monotonic()
                self._touch(job)
            try:
                self._run(job)
            except Exception as error:
                job.problem = Problem(problem=f"the comparison failed: {describe_error(error)}")
            with self._changed:
                self._settle(job)

    def _run(self, job: Job) -> None:
        order = {"call": _plain(job.plan.call()), "out": str(job.out), "resume": job.resume}
        process = Process(order, self._limits)
        with self._changed:
            job.process = process
            ending = job.cancelled or self._closed
        if ending:
            process.end()
        printed = threading.Thread(target=self._listen, args=(job, process), daemon=True)
        printed.start()
        for event in process.events():
            with suppress(ValueError, KeyError, TypeError):
                self._take(job, event)
        process.wait()
        printed.join(PATIENCE)
        with self._changed:
            job.process = None
            if job.problem is None and not job.finished and not job.cancelled:
                job.problem = Problem.of(process.failure())

    def _take(self, job: Job, event: dict[str, Any]) -> None:
        with self._changed:
            if event["kind"] == "step":
                self._step(job, event)
            elif event["kind"] == "problem":
                job.problem = Problem(problem=str(event["problem"]), cure=str(event["cure"]))
            elif event["kind"] == "done":
                job.finished = True
                job.verdict, job.headline = str(event["verdict"]), str(event["headline"])
                job.warnings = [str(text) for text in event["warnings"]]
            self._touch(job)

    @staticmethod
    def _step(job: Job, event: dict[str, Any]) -> None:
        stage = str(event["stage"])
        progress = job.stages[stage]
        if progress.state != "now":
            progress.state, progress.began = "now", job.now
        if job.at not in (None, stage) and job.stages[job.at].state == "now":
            # A side was looked at, found to be a model, and waits for the other.
            job.stages[job.at] = _Progress()
        job.at = stage
        progress.done, progress.total = int(event["done"]), int(event["total"])
        progress.seconds = job.now - progress.began
        if event["counts"]:
            job.counts = {str(k): int(v) for k, v in event["counts"].items()}
        if event["drift"]:
            job.drift = DriftSoFar(**event["drift"])
        if event["finished"]:
            progress.state, progress.text = "done", str(event["text"])
            progress.opened = bool(event["opened"])
            job.log.append(LogLine(seconds=job.now, stage=stage, text=progress.text))

    def _listen(self, job: Job, process: Process) -> None:
        for lines in process.printed():
            with self._changed:
                for line in lines:
                    if line.over and job.log and not job.log[-1].stage:
                        job.log.pop()
                    job.log.append(LogLine(seconds=job.now, stage="", text=line.text))
                self._touch(job)

    def _settle(self, job: Job) -> None:
        """With the lock held: the process is gone; what did it leave?"""
        job.ended = time.monotonic()
        if job.finished and is_comparison(job.out):
            # Also where it was cancelled in the very last moment: it is whole.
            job.state = "done"
            job.comparison = self._made(job.out)
            if self._memory is not None:
                self._memory.end(job.out)
        else:
            job.state = "cancelled" if job.cancelled else "failed"
            self._clear(job)
        if job.state != "done":
            _mark(job)
        self._touch(job)


def _stages(plan: ComparisonPlan) -> dict[str, _Progress]:
    stages = {stage.value: _Progress() for stage in Stage}
    if plan.introduced == "off":
        stages[Stage.INTRODUCED.value].state = "left out"
    return stages


def _mark(job: Job) -> None:
    """Say of a stage that this is where it ended."""
    stage = job.at
    if stage is not None and job.stages[stage].state == "done":
        # Between two stages the fault is of what was to come; behind the last it is of none.
        stage = next((s for s, one in job.stages.items() if one.state == "waits"), None)
    if stage is not None:
        progress = job.stages[stage]
        if progress.state == "now":
            progress.seconds = job.now - progress.began
        progress.state = "failed" if job.state == "failed" else "stopped"


def _plain(call: dict[str, Any]) -> dict[str, Any]:
    shapes = {name: (list(shape.dims), shape.dtype) for name, shape in call["shapes"].items()}
    return {**call, "shapes": shapes}


def _shown(job: Job, log: bool = True) -> JobState:
    stages = []
    for stage, progress in job.stages.items():
        seconds = progress.seconds
        if progress.state == "now":
            seconds = job.now - progress.began
        stages.append(
            StageState(
                stage=stage,  # type: ignore[arg-type]
                state=progress.state,  # type: ignore[arg-type]
                done=progress.done,
                total=progress.total,
                text=progress.text,
                seconds=seconds,
                opens=progress.opened or job.plan.opens(stage),
            )
        )
    return JobState(
        id=job.id,
        request_id=job.spec.request_id if job.spec is not None else "",
        version=job.version,
        state=job.state,
        target=job.plan.target,
        reference=job.plan.reference,
        metric=job.plan.metric,
        command=job.command,
        folder=str(job.out),
        created=job.created,
        seconds=job.now,
        stages=stages,
        counts=job.counts,
        drift=job.drift if job.state != "done" else None,
        log=list(job.log)[-_SHOWN_LINES:] if log else [],
        problem=job.problem,
        warnings=job.warnings,
        verdict=job.verdict,
        headline=job.headline,
        comparison=job.comparison,
        can_resume=job.can_resume,
    )
