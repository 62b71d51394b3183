"""Copies of the source files that the ops of a run point to, so that they can still be shown
when the files have changed or the run has been taken to another machine.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from syncpoint.errors import FormatError, SyncpointError, describe_error
from syncpoint.files.atomic_writes import write_atomically
from syncpoint.files.file_checksums import DamagedFileError, FileRecord, record_of
from syncpoint.files.untrusted_files import path_inside, read_whole
from syncpoint.files.untrusted_json import parse_json

FOLDER = "source"
INDEX = "index.json"
_MAX_SOURCE = 4 << 20
"""Generated files beyond this are not what a person wants to read."""
_MAX_INDEX = 64 << 20
_SNAPSHOT = re.compile(r"[0-9]{4,9}-[A-Za-z0-9_.-]{1,80}")


class SourceWriter:
    """Copies each file once into `source/`."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._names: dict[str, str] = {}
        self._seen: set[str] = set()
        self.records: dict[str, FileRecord] = {}
        """Copies and index, by their path below the run's folder."""

    def add(self, path: str, text: str | None = None) -> str:
        """Copy the file; its name in `source/`, or "" if it was passed over or is there."""
        if path in self._seen:
            return ""
        self._seen.add(path)
        try:
            data = text.encode() if text is not None else read_whole(Path(path), _MAX_SOURCE)
            data.decode("utf-8")
        except (OSError, SyncpointError, ValueError):
            return ""
        if b"\0" in data:
            return ""
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(path).name)[-80:]
        name = f"{len(self._names):04}-{plain}"
        self._folder.mkdir(exist_ok=True)
        (self._folder / name).write_bytes(data)
        self._names[path] = name
        self.records[f"{FOLDER}/{name}"] = record_of(data)
        return name

    def write_index(self) -> None:
        """Write which original path each copy came from."""
        if self._names:
            body = json.dumps({"schema": 1, "files": self._names}, indent=1).encode() + b"\n"
            write_atomically(self._folder / INDEX, body)
            self.records[f"{FOLDER}/{INDEX}"] = record_of(body)


class Sources:
    """The source files a run carries."""

    def __init__(
        self,
        run: Path,
        names: dict[str, str] | None = None,
        records: Mapping[str, FileRecord] | None = None,
    ) -> None:
        """`names` is the index, where it is known already; else it is read when needed.
        `records` are the checksums of copies and index, where the run has any."""
        self._folder = run / FOLDER
        self._names = names
        self._records = records or {}

    @property
    def files(self) -> tuple[str, ...]:
        """Original paths of the files that are there."""
        return tuple(self._index())

    def text(self, file: str) -> str | None:
        """The file as it was when the run was recorded, or None if the run has no copy."""
        name = self._index().get(file)
        if name is None:
            return None
        if not _SNAPSHOT.fullmatch(name):
            raise FormatError(f"a plain file name for {file} in {INDEX}", repr(name)[:80])
        path = path_inside(self._folder, name)
        try:
            data = read_whole(path, _MAX_SOURCE)
            self._verify(name, data)
            return data.decode("utf-8")
        except (OSError, ValueError) as error:
            raise FormatError(f"a copy of {file} at {path}", describe_error(error)) from error

    def _index(self) -> dict[str, str]:
        if self._names is None:
            self._names = self._read_index()
        return self._names

    def _verify(self, name: str, data: bytes) -> None:
        """A FormatError where a checksum is recorded and does not fit."""
        record = self._records.get(f"{FOLDER}/{name}")
        if record is not None:
            record.verify(data, self._folder / name, "restore it from a copy of the run")

    def _read_index(self) -> dict[str, str]:
        path = self._folder / INDEX
        try:
            data = read_whole(path, _MAX_INDEX)
        except FileNotFoundError as error:
            # Without the whole folder somebody has removed the sources, which may be secret.
            if f"{FOLDER}/{INDEX}" in self._records and self._folder.exists():
                cure = "restore it from a copy of the run"
                raise DamagedFileError(path, "it is missing", cure) from error
            return {}
        except OSError as error:
            raise FormatError(f"the index of sources {path}", describe_error(error)) from error
        self._verify(INDEX, data)
        body = parse_json(data, str(path))
        files = body.get("files") if isinstance(body, dict) else None
        if not isinstance(files, dict) or not all(isinstance(n, str) for n in files.values()):
            raise FormatError(f"names of files in {path}", "another structure")
        return files


def clear_sources(run: Path) -> None:
    """Remove the copies of an older run, and nothing else."""
    folder = run / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in list(os.scandir(folder)):
        if entry.name == INDEX or _SNAPSHOT.fullmatch(entry.name):
            Path(entry.path).unlink()
