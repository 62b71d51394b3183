"""The queue of comparisons of a session: run one at a time in its own process, follow progress and
log, cancel, resume.

The state of every job is kept here, so that a page that is reloaded, a second page, or one that
lost its connection shows the same.
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
from syncpoint.server.form_request import RequestedComparison
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
from syncpoint.server.worker_process import STOP_SECONDS, ProcessLimits, WorkerProcess

_MAX_LOG_LINES = 200
_MAX_SENT_LINES = 40
_MAX_JOBS = 100
_JOBS_WITH_LOG = 3
"""Newest jobs whose log is part of the list of all jobs."""
ENDED_STATES = ("done", "failed", "cancelled")


@dataclass(kw_only=True)
class _StageProgress:
    """The progress of one stage."""

    state: str = "waits"
    done: int = 0
    total: int = 0
    text: str = ""
    opened: bool = False
    started: float = 0.0
    seconds: float = 0.0


@dataclass(kw_only=True)
class Job:
    """One comparison that was requested."""

    plan: RequestedComparison
    out: Path
    command: str
    spec: SessionSpec | None = None
    """The form, which is stored until the comparison is done."""
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    created: float = field(default_factory=time.time)
    state: State = "queued"
    version: int = 0
    resume: bool = False
    started: float = 0.0
    ended: float = 0.0
    stages: dict[str, _StageProgress] = field(default_factory=dict)
    stage: str | None = None
    """The stage that reported last."""
    counts: dict[str, int] = field(default_factory=dict)
    drift: DriftSoFar | None = None
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=_MAX_LOG_LINES))
    problem: Problem | None = None
    warnings: list[str] = field(default_factory=list)
    verdict: str = ""
    headline: str = ""
    comparison: str = ""
    can_resume: bool = False
    process: WorkerProcess | None = None
    cancelled: bool = False
    finished: bool = False
    """Whether the process has reported that the comparison is saved."""

    @property
    def elapsed(self) -> float:
        """Seconds since it started, until it ended."""
        if not self.started:
            return 0.0
        return (self.ended or time.monotonic()) - self.started


class JobQueue:
    """The queue, and the thread that runs its jobs."""

    def __init__(
        self,
        out: Path,
        register: Callable[[Path], str],
        memory: SessionMemory | None = None,
        limits: ProcessLimits | None = None,
    ) -> None:
        """`out` is the folder of comparisons; `register` is called with each finished one, and
        returns its name in URLs; `limits` are those of each job."""
        self._limits = limits
        self._memory = memory
        self.out = out
        self.version = 0
        self._register = register
        self._jobs: dict[str, Job] = {}
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(
        self,
        plan: RequestedComparison,
        command: Callable[[str], str],
        spec: SessionSpec | None = None,
    ) -> Job:
        """Add a comparison; `command` returns its command line for a folder."""
        with self._changed:
            self._check_capacity()
            out = create_output_folder(self.out, plan.name)
            return self._add_job(Job(plan=plan, out=out, command=command(str(out)), spec=spec))

    def resume_folder(
        self, plan: RequestedComparison, command: Callable[[str], str], spec: SessionSpec, out: Path
    ) -> Job:
        """Resume the unfinished comparison in the folder `out`, begun by an earlier server."""
        with self._changed:
            self._check_capacity()
            return self._add_job(
                Job(plan=plan, out=out, command=command(str(out)), spec=spec, resume=True)
            )

    def find_by_folder(self, out: Path) -> Job | None:
        """Return the newest job that writes to a folder."""
        with self._changed:
            jobs = (job for job in self._jobs.values() if job.out == out)
            return max(jobs, key=lambda job: job.created, default=None)

    def resume(self, job_id: str) -> Job:
        """Resume a comparison that was cancelled or failed."""
        job = self.get(job_id)
        with self._changed:
            if job.state not in ("failed", "cancelled") or not job.can_resume:
                raise InputError(
                    f"this comparison cannot be resumed: it is {job.state}",
                    cure="start it again",
                )
            job.state, job.resume, job.cancelled, job.finished = "queued", True, False, False
            job.problem, job.ended, job.started = None, 0.0, 0.0
            job.counts, job.drift = {}, None
            job.stages, job.stage = _create_stages(job.plan), None
            return self._enqueue(job)

    def cancel(self, job_id: str) -> Job:
        """Stop a comparison that waits or runs; one that has ended does not change."""
        job = self.get(job_id)
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
            threading.Thread(target=process.stop, daemon=True).start()
        return job

    def get(self, job_id: str) -> Job:
        """Return a job by its id."""
        job = self._jobs.get(job_id)
        if job is None:
            raise InputError(f"this session has no job {job_id!r}", cure="reload the page")
        return job

    def state_of(self, job: Job) -> JobState:
        """Return the state of a job for the page."""
        with self._changed:
            return _build_state(job)

    def list_jobs(self) -> JobList:
        """Return the states of all jobs, newest first."""
        with self._changed:
            jobs = sorted(self._jobs.values(), key=lambda job: -job.created)
            states = [_build_state(job, index < _JOBS_WITH_LOG) for index, job in enumerate(jobs)]
            form = self._memory.form.version if self._memory is not None else 0
            return JobList(version=self.version, form=form, jobs=states)

    def close(self) -> None:
        """Stop the jobs that run, when the server ends."""
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
                job.process.stop()
        if self._thread is not None:
            self._thread.join(2 * STOP_SECONDS)

    def list_busy_folders(self) -> set[Path]:
        """Return the folders of comparisons that wait or run."""
        with self._changed:
            return {job.out for job in self._jobs.values() if job.state not in ENDED_STATES}

    def _check_capacity(self) -> None:
        waiting = sum(job.state not in ENDED_STATES for job in self._jobs.values())
        if waiting >= _MAX_JOBS:
            raise InputError(
                f"{_MAX_JOBS} comparisons are already waiting",
                cure="cancel one, or wait until one ends",
            )

    def _add_job(self, job: Job) -> Job:
        """Add a new job at the end of the queue; the caller holds the lock."""
        job.stages = _create_stages(job.plan)
        if self._memory is not None and job.spec is not None:
            self._memory.save_request(job.out, job.spec)
        self._jobs[job.id] = job
        self._drop_old_jobs()
        return self._enqueue(job)

    def _clear(self, job: Job) -> None:
        job.can_resume = clear_output_folder(job.out)
        if self._memory is not None and not job.can_resume:
            self._memory.forget_request(job.out)

    def _enqueue(self, job: Job) -> Job:
        """Put a job at the end of the queue; the caller holds the lock."""
        self._queue.append(job)
        self._touch(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_queue, daemon=True)
            self._thread.start()
        return job

    def _drop_old_jobs(self) -> None:
        ended = [job for job in self._jobs.values() if job.state in ENDED_STATES]
        for job in sorted(ended, key=lambda job: job.created)[: max(0, len(ended) - _MAX_JOBS)]:
            del self._jobs[job.id]

    def _touch(self, job: Job) -> None:
        """Count a change of a job and wake up waiters; the caller holds the lock."""
        self.version += 1
        job.version = self.version
        self._changed.notify_all()

    def _run_queue(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._queue)
                if self._closed:
                    return
                job = self._queue.popleft()
                job.state, job.started = "running", time.monotonic()
                self._touch(job)
            try:
                self._run(job)
            except Exception as error:
                job.problem = Problem(problem=f"the comparison failed: {describe_error(error)}")
            with self._changed:
                self._finish(job)

    def _run(self, job: Job) -> None:
        order = {
            "call": _encode_call(job.plan.build_call()),
            "out": str(job.out),
            "resume": job.resume,
        }
        process = WorkerProcess(order, self._limits)
        with self._changed:
            job.process = process
            is_stopped = job.cancelled or self._closed
        if is_stopped:
            process.stop()
        output = threading.Thread(
            target=self._append_output_to_log, args=(job, process), daemon=True
        )
        output.start()
        for event in process.read_events():
            with suppress(ValueError, KeyError, TypeError):
                self._apply_event(job, event)
        process.wait()
        output.join(STOP_SECONDS)
        with self._changed:
            job.process = None
            if job.problem is None and not job.finished and not job.cancelled:
                job.problem = Problem.of(process.describe_failure())

    def _apply_event(self, job: Job, event: dict[str, Any]) -> None:
        with self._changed:
            if event["kind"] == "step":
                self._apply_step(job, event)
            elif event["kind"] == "problem":
                job.problem = Problem(problem=str(event["problem"]), cure=str(event["cure"]))
            elif event["kind"] == "done":
                job.finished = True
                job.verdict, job.headline = str(event["verdict"]), str(event["headline"])
                job.warnings = [str(text) for text in event["warnings"]]
            self._touch(job)

    @staticmethod
    def _apply_step(job: Job, event: dict[str, Any]) -> None:
        stage = str(event["stage"])
        progress = job.stages[stage]
        if progress.state != "now":
            progress.state, progress.started = "now", job.elapsed
        if job.stage not in (None, stage) and job.stages[job.stage].state == "now":
            # A side was opened, turned out to be a model, and waits for the other side.
            job.stages[job.stage] = _StageProgress()
        job.stage = stage
        progress.done, progress.total = int(event["done"]), int(event["total"])
        progress.seconds = job.elapsed - progress.started
        if event["counts"]:
            job.counts = {str(k): int(v) for k, v in event["counts"].items()}
        if event["drift"]:
            job.drift = DriftSoFar(**event["drift"])
        if event["finished"]:
            progress.state, progress.text = "done", str(event["text"])
            progress.opened = bool(event["opened"])
            job.log.append(LogLine(seconds=job.elapsed, stage=stage, text=progress.text))

    def _append_output_to_log(self, job: Job, process: WorkerProcess) -> None:
        """Append what the worker of a job prints to the log of the job, until it ends."""
        for lines in process.read_output():
            with self._changed:
                for line in lines:
                    if line.replaces_last and job.log and not job.log[-1].stage:
                        job.log.pop()
                    job.log.append(LogLine(seconds=job.elapsed, stage="", text=line.text))
                self._touch(job)

    def _finish(self, job: Job) -> None:
        """Set the final state of a job whose process has ended; the caller holds the lock."""
        job.ended = time.monotonic()
        if job.finished and is_comparison(job.out):
            # Even if it was cancelled in the last moment: the comparison is complete.
            job.state = "done"
            job.comparison = self._register(job.out)
            if self._memory is not None:
                self._memory.forget_request(job.out)
        else:
            job.state = "cancelled" if job.cancelled else "failed"
            self._clear(job)
        if job.state != "done":
            _mark_last_stage(job)
        self._touch(job)


def _create_stages(plan: RequestedComparison) -> dict[str, _StageProgress]:
    stages = {stage.value: _StageProgress() for stage in Stage}
    if plan.introduced == "off":
        stages[Stage.INTRODUCED.value].state = "left out"
    return stages


def _mark_last_stage(job: Job) -> None:
    """Mark the stage in which a job failed or was stopped."""
    stage = job.stage
    if stage is not None and job.stages[stage].state == "done":
        # Between two stages it is the next one that failed; after the last there is none.
        waiting = (name for name, progress in job.stages.items() if progress.state == "waits")
        stage = next(waiting, None)
    if stage is not None:
        progress = job.stages[stage]
        if progress.state == "now":
            progress.seconds = job.elapsed - progress.started
        progress.state = "failed" if job.state == "failed" else "stopped"


def _encode_call(call: dict[str, Any]) -> dict[str, Any]:
    shapes = {name: (list(shape.dims), shape.dtype) for name, shape in call["shapes"].items()}
    return {**call, "shapes": shapes}


def _build_state(job: Job, log: bool = True) -> JobState:
    stages = []
    for stage, progress in job.stages.items():
        seconds = progress.seconds
        if progress.state == "now":
            seconds = job.elapsed - progress.started
        stages.append(
            StageState(
                stage=stage,  # type: ignore[arg-type]
                state=progress.state,  # type: ignore[arg-type]
                done=progress.done,
                total=progress.total,
                text=progress.text,
                seconds=seconds,
                opens=progress.opened or job.plan.is_recording(stage),
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
        seconds=job.elapsed,
        stages=stages,
        counts=job.counts,
        drift=job.drift if job.state != "done" else None,
        log=list(job.log)[-_MAX_SENT_LINES:] if log else [],
        problem=job.problem,
        warnings=job.warnings,
        verdict=job.verdict,
        headline=job.headline,
        comparison=job.comparison,
        can_resume=job.can_resume,
    )
