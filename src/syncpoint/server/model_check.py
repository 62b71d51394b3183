"""Whether a model opens: it is loaded, not run, in a process of its own, because somebody asked."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from syncpoint.errors import InputError
from syncpoint.page.schema import Problem
from syncpoint.runtimes.import_path import is_import_path
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.registry import find_runtime
from syncpoint.server.allowed_files import Folders
from syncpoint.server.path_preview import look
from syncpoint.server.session_schema import InputForm, PathPreview, SideSpec
from syncpoint.server.worker_process import Process

_LONGEST = 120.0
"""Seconds that a model may take to open."""


class Checks:
    """One check at a time; all end with the session."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._one = threading.Lock()
        self._process: Process | None = None
        self._closed = False

    def check(self, side: SideSpec) -> PathPreview:
        """What is at the path, once it has been opened: code of the model is run."""
        text = side.path.strip()
        named = self._folders.allowed(text)
        seen = look(self._folders, text)
        if seen.kind != "model":
            return seen
        if not is_import_path(text) and not self._folders.resolve(text).exists():
            raise InputError("a model", f"nothing at {text}", "check the path")
        runtime = find_runtime(text, side.runtime or None)
        parse_options(runtime, side.options)
        order = {"check": {"model": named, "runtime": runtime.name, "options": side.options}}
        with self._one:
            return self._ask(order, seen)

    def close(self) -> None:
        """End what runs."""
        self._closed = True
        if self._process is not None:
            self._process.end()

    def _ask(self, order: dict[str, Any], seen: PathPreview) -> PathPreview:
        self._process = process = Process(order)
        limit = threading.Timer(_LONGEST, process.end)
        limit.start()
        printed = threading.Thread(target=lambda: deque(process.printed(), 0), daemon=True)
        printed.start()
        found: dict[str, Any] = {}
        if self._closed:
            process.end()
        for event in process.events():
            found = event
        process.wait()
        limit.cancel()
        self._process = None
        if found.get("kind") == "opened":
            inputs = [InputForm(**one) for one in found["inputs"]]
            return seen.model_copy(
                update={"sure": True, "text": _text(found), "inputs": inputs or seen.inputs}
            )
        problem = Problem.of(process.failure())
        if found.get("kind") == "problem":
            problem = Problem(problem=str(found["problem"]), cure=str(found["cure"]))
        return seen.model_copy(update={"text": problem.problem, "problem": problem})


def _text(found: dict[str, Any]) -> str:
    names = ", ".join(str(one["name"]) for one in found["inputs"][:4])
    takes = f"; takes {names}" if names else ""
    return f"opens in {found['seconds']:.1f} s{takes}"
