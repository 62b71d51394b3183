"""Store the form of a session and the requests of unfinished comparisons, sealed, in its folder
`.session`, for the next server.

It is in the hidden folder `.session` of the folder of comparisons, so that a server that is started
again continues where the last one was. Only the session writes it: a comparison from elsewhere
brings no request of its own, and cannot make the server run a model.
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
_MAX_BYTES = 1 << 20


class SessionMemory:
    """The stored form and requests of the comparisons in `out`. If `out` cannot be written, the
    form lasts as long as the server. Nothing is written before `out` exists."""

    def __init__(self, out: Path, target: str = "", reference: str = "") -> None:
        """`target` and `reference` come from the command line and replace stored ones."""
        self._out = out
        self._folder = out / FOLDER
        self._lock = threading.Lock()
        self._form = self._read_form()
        paths = {"target.path": target, "reference.path": reference}
        paths = {name: path for name, path in paths.items() if path}
        if any(self._form.fields.get(name) != path for name, path in paths.items()):
            self._form = Form(version=self._form.version + 1, fields=paths)

    @property
    def form(self) -> Form:
        """The form as it was filled in last, in any tab."""
        with self._lock:
            return self._form

    def save_form(self, fields: Fields) -> Form:
        """Store the form."""
        with self._lock:
            if fields != self._form.fields:
                self._form = Form(version=self._form.version + 1, fields=fields)
                self._write(self._folder / "form.json", self._form.model_dump_json())
            return self._form

    def save_request(self, folder: Path, spec: SessionSpec) -> None:
        """Store the request of the comparison in `folder`."""
        with self._lock:
            self._write(self._request_file(folder), spec.model_dump_json())
            self._write(self._folder / "form.json", self._form.model_dump_json())

    def forget_request(self, folder: Path) -> None:
        """Delete the request of a comparison that is finished or deleted."""
        with suppress(OSError):
            self._request_file(folder).unlink(missing_ok=True)

    def load_request(self, folder: Path) -> SessionSpec | None:
        """Return the request of the comparison in `folder`; None if it was not begun here."""
        if folder.parent != self._out:
            return None
        with suppress(SyncpointError, OSError, ValidationError):
            return SessionSpec.model_validate_json(_read_sealed(self._request_file(folder)))
        return None

    def _request_file(self, folder: Path) -> Path:
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
    """Return the content of a file of the session. A damaged one is a FormatError; one without a
    checksum is from an older version."""
    data = read_whole(path, _MAX_BYTES)
    return unseal_json(data, path, "fill in the form again")[0]
