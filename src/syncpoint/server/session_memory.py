"""What a session remembers: what is filled in, and what unfinished comparisons were asked for.

It lies in the hidden folder `.session` of the folder that comparisons are kept in, so that a server
that is started again goes on where the last one was. It is written by the session alone: a
comparison that came from elsewhere brings no wishes of its own, and cannot have a model run.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from syncpoint.errors import SyncpointError
from syncpoint.files.atomic_writes import write_atomically
from syncpoint.files.sealed_json import seal_json, unseal_json
from syncpoint.files.untrusted_files import read_whole
from syncpoint.server.session_schema import Fields, Form, SessionSpec

FOLDER = ".session"
_LARGEST = 1 << 20


class SessionMemory:
    """What is remembered of the comparisons in `out`; where that cannot be written, while the
    server lives. Nothing is written before `out` exists."""

    def __init__(self, out: Path, target: str = "", reference: str = "") -> None:
        """`target` and `reference` are named on the command line, and win."""
        self._out = out
        self._folder = out / FOLDER
        self._lock = threading.Lock()
        self._form = self._read_form()
        named = {"target.path": target, "reference.path": reference}
        named = {name: path for name, path in named.items() if path}
        if any(self._form.fields.get(name) != path for name, path in named.items()):
            self._form = Form(version=self._form.version + 1, fields=named)

    @property
    def form(self) -> Form:
        """What was filled in last, in whatever tab."""
        with self._lock:
            return self._form

    def fill(self, fields: Fields) -> Form:
        """Remember what is filled in now."""
        with self._lock:
            if fields != self._form.fields:
                self._form = Form(version=self._form.version + 1, fields=fields)
                self._write(self._folder / "form.json", self._form.model_dump_json())
            return self._form

    def begin(self, folder: Path, spec: SessionSpec) -> None:
        """Remember what the comparison in `folder` was asked for."""
        with self._lock:
            self._write(self._begun(folder), spec.model_dump_json())
            self._write(self._folder / "form.json", self._form.model_dump_json())

    def end(self, folder: Path) -> None:
        """It is finished, or nothing is left of it."""
        with suppress(OSError):
            self._begun(folder).unlink(missing_ok=True)

    def asked(self, folder: Path) -> SessionSpec | None:
        """What the comparison in `folder` was asked for, if it was begun here."""
        if folder.parent != self._out:
            return None
        with suppress(SyncpointError, OSError, ValidationError):
            return SessionSpec.model_validate_json(_read_sealed(self._begun(folder)))
        return None

    def _begun(self, folder: Path) -> Path:
        return self._folder / "begun" / f"{folder.name}.json"

    def _read_form(self) -> Form:
        with suppress(SyncpointError, OSError, ValidationError):
            return Form.model_validate_json(_read_sealed(self._folder / "form.json"))
        return Form(version=0, fields={})

    def _write(self, path: Path, text: str) -> None:
        if not self._out.is_dir():
            return
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, seal_json(text))


def _read_sealed(path: Path) -> bytes:
    """A file of the session; one that is damaged is a FormatError, one without a checksum is of an
    older version."""
    data = read_whole(path, _LARGEST)
    return unseal_json(data, path, "fill in the form again")[0]
