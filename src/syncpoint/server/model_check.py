"""Check whether a model opens: load it in a process of its own, without running it, and list its
inputs as a preview."""

from __future__ import annotations

import threading
from typing import Any

from syncpoint.errors import InputError
from syncpoint.page.schema import Problem
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.registry import find_runtime
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.path_preview import preview_path
from syncpoint.server.session_schema import InputForm, PathPreview, SideSpec
from syncpoint.server.worker_process import WorkerProcess

_TIMEOUT_SECONDS = 120.0
"""Time that a model may take to open."""


class ModelChecks:
    """Runs one check at a time; all end with the session."""

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._closed = False

    def check(self, side: SideSpec) -> PathPreview:
        """Return what is at a path after opening it, which runs code of the model."""
        text = side.path.strip()
        name = self._folders.check_path(text)
        preview = preview_path(self._folders, text)
        if preview.kind != "model":
            return preview
        if not is_import_path(text) and not self._folders.resolve(text).exists():
            raise InputError(f"no such model file: {text}", cure="check the path")
        runtime = find_runtime(text, side.runtime or None)
        parse_options(runtime, side.options)
        order = {"check": {"model": name, "runtime": runtime.name, "options": side.options}}
        with self._lock:
            return self._run(order, preview)

    def close(self) -> None:
        """Stop the check that runs."""
        self._closed = True
        if self._process is not None:
            self._process.stop()

    def _run(self, order: dict[str, Any], preview: PathPreview) -> PathPreview:
        self._process = process = WorkerProcess(order)
        if self._closed:
            process.stop()
        last_event = process.run_to_end(_TIMEOUT_SECONDS)
        self._process = None
        if last_event.get("kind") == "opened":
            inputs = [InputForm(**declared) for declared in last_event["inputs"]]
            text = _describe_opened(last_event)
            return preview.model_copy(
                update={"sure": True, "text": text, "inputs": inputs or preview.inputs}
            )
        problem = Problem.of(process.describe_failure())
        if last_event.get("kind") == "problem":
            problem = Problem(problem=str(last_event["problem"]), cure=str(last_event["cure"]))
        return preview.model_copy(update={"text": problem.problem, "problem": problem})


def _describe_opened(event: dict[str, Any]) -> str:
    names = ", ".join(str(declared["name"]) for declared in event["inputs"][:4])
    inputs = f"; takes {names}" if names else ""
    return f"opens in {event['seconds']:.1f} s{inputs}"
