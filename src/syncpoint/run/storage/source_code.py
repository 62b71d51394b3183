"""Copy the source files that the ops of a run refer to into the run, write the index of their
paths, and read and verify these copies."""

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
_CURE = "restore it from a copy of the run"
_MAX_SOURCE_BYTES = 4 << 20
"""Larger files are generated ones that nobody reads."""
_MAX_INDEX_BYTES = 64 << 20
_SNAPSHOT = re.compile(r"[0-9]{4,9}-[A-Za-z0-9_.-]{1,80}")


class SourceWriter:
    """Copies each file once into `source/`."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._names: dict[str, str] = {}
        self._handled_paths: set[str] = set()
        self.records: dict[str, FileRecord] = {}
        """Copies and index, by their path in the folder of the run."""

    def add(self, path: str, text: str | None = None) -> str:
        """Copy the file; returns its name in `source/`, "" if it was skipped or copied before."""
        if path in self._handled_paths:
            return ""
        self._handled_paths.add(path)
        try:
            data = text.encode() if text is not None else read_whole(Path(path), _MAX_SOURCE_BYTES)
            data.decode("utf-8")
        except (OSError, SyncpointError, ValueError):
            return ""
        if b"\0" in data:
            return ""
        safe_name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(path).name)[-80:]
        name = f"{len(self._names):04}-{safe_name}"
        self._folder.mkdir(exist_ok=True)
        (self._folder / name).write_bytes(data)
        self._names[path] = name
        self.records[f"{FOLDER}/{name}"] = record_of(data)
        return name

    def write_index(self) -> None:
        """Write the index: the original path of each copy."""
        if self._names:
            body = json.dumps({"schema": 1, "files": self._names}, indent=1).encode() + b"\n"
            write_atomically(self._folder / INDEX, body)
            self.records[f"{FOLDER}/{INDEX}"] = record_of(body)


class Sources:
    """The source files in a run."""

    def __init__(
        self,
        run: Path,
        names: dict[str, str] | None = None,
        records: Mapping[str, FileRecord] | None = None,
    ) -> None:
        """`names` is the index if it is known already; otherwise it is read when needed.
        `records` are the checksums of copies and index, if the run has any."""
        self._folder = run / FOLDER
        self._names = names
        self._records = records or {}

    @property
    def files(self) -> tuple[str, ...]:
        """Original paths of the files."""
        return tuple(self._index())

    def text(self, file: str) -> str | None:
        """The file at the time of the recording; None if the run has no copy."""
        name = self._index().get(file)
        if name is None:
            return None
        if not _SNAPSHOT.fullmatch(name):
            raise FormatError(
                f"{self._folder / INDEX} has an invalid file name for the copy of {file}:"
                f" {repr(name)[:80]}",
                cure=_CURE,
            )
        path = path_inside(self._folder, name)
        try:
            data = read_whole(path, _MAX_SOURCE_BYTES)
            self._verify(name, data)
            return data.decode("utf-8")
        except (OSError, ValueError) as error:
            raise FormatError(
                f"cannot read the copy of {file} at {path}: {describe_error(error)}", cure=_CURE
            ) from error

    def _index(self) -> dict[str, str]:
        if self._names is None:
            self._names = self._read_index()
        return self._names

    def _verify(self, name: str, data: bytes) -> None:
        """Raise FormatError if a checksum is recorded and does not match."""
        record = self._records.get(f"{FOLDER}/{name}")
        if record is not None:
            record.verify(data, self._folder / name, _CURE)

    def _read_index(self) -> dict[str, str]:
        path = self._folder / INDEX
        try:
            data = read_whole(path, _MAX_INDEX_BYTES)
        except FileNotFoundError as error:
            # If the whole folder is missing, the user has removed the sources, maybe as secret.
            if f"{FOLDER}/{INDEX}" in self._records and self._folder.exists():
                cure = _CURE
                raise DamagedFileError(path, "it is missing", cure) from error
            return {}
        except OSError as error:
            raise FormatError(
                f"cannot read the index of sources {path}: {describe_error(error)}", cure=_CURE
            ) from error
        self._verify(INDEX, data)
        body = parse_json(data, str(path))
        files = body.get("files") if isinstance(body, dict) else None
        if not isinstance(files, dict) or not all(isinstance(n, str) for n in files.values()):
            raise FormatError(f'{path} has no object "files" with the names of files', cure=_CURE)
        return files


def clear_sources(run: Path) -> None:
    """Remove the copies of an older run; other files stay."""
    folder = run / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in list(os.scandir(folder)):
        if entry.name == INDEX or _SNAPSHOT.fullmatch(entry.name):
            Path(entry.path).unlink()
