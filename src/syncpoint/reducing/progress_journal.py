"""The journal of a reduction: append the statistics, digests and bytes read from each file, read
them back to confirm; survives deletion or a crash.

It replaces the files that were deleted. For each file it holds the statistics and digests of the
tensors, and the few bytes outside of them, from which the reader of the dump's format sees again
what the file was. A frame that is not complete is ignored.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError
from syncpoint.files.atomic_writes import sync
from syncpoint.files.file_checksums import DamagedFileError
from syncpoint.files.write_errors import write_errors
from syncpoint.files.writer_lock import RunLock
from syncpoint.reducing.data_file_readers import Place
from syncpoint.reducing.file_access import Stamp
from syncpoint.run.model import Statistics
from syncpoint.run.storage.journal import JournalWriter, encode_frame, read_journal
from syncpoint.run.storage.record_json import parse_record, statistics_from_json, statistics_to_json

JOURNAL_FILE = "reduce.log"
_RECORD, _DELETED, _SOURCE = "record", "deleted", "reduces"


@dataclass(frozen=True)
class TensorRecord:
    """What was read from one tensor."""

    digest: str
    statistics: Statistics | None = None
    values: bool = False
    """Whether its bytes are kept beside the journal, in a file named by the digest."""


@dataclass(frozen=True)
class ReducedFile:
    """What was read from one file."""

    file: str
    stamp: Stamp
    tensors: Mapping[Place, TensorRecord]
    pieces: tuple[tuple[int, bytes], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record as JSON."""
        return {
            "file": self.file,
            "stamp": list(self.stamp),
            "pieces": [[offset, _pack(piece)] for offset, piece in self.pieces],
            "tensors": [
                [*place, tensor.digest, statistics_to_json(tensor.statistics), tensor.values]
                for place, tensor in self.tensors.items()
            ],
        }


def record_from_json(body: Mapping[str, Any]) -> ReducedFile:
    """Inverse of `FileRecord.to_json`."""
    size, mtime, inode = (int(part) for part in body["stamp"])
    tensors = {}
    for offset, dtype, count, digest, statistics, values in body["tensors"]:
        place = (int(offset), str(dtype), int(count))
        tensors[place] = TensorRecord(str(digest), statistics_from_json(statistics), bool(values))
    pieces = tuple((int(offset), _unpack(text)) for offset, text in body["pieces"])
    return ReducedFile(str(body["file"]), (size, mtime, inode), tensors, pieces)


@dataclass(kw_only=True)
class ReduceJournal:
    """The journal of one reduction, open in one process at a time."""

    folder: Path
    source: str
    to: str
    format: str = ""
    """Name of the dump's format. It is kept because all files may be deleted later."""
    records: dict[str, ReducedFile] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    """Files that reduce deleted, or was about to delete when it was killed."""

    def __post_init__(self) -> None:
        self._lock = _lock_folder(self.folder)
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise

    @property
    def path(self) -> Path:
        """The file of the journal."""
        return self.folder / JOURNAL_FILE

    def _open(self) -> None:
        if self.path.exists():
            journal = read_journal(self.path)
            if journal.is_damaged_inside:
                # To continue would cut off the records of files that may be deleted.
                raise DamagedFileError(
                    self.path, journal.damage, "restore it from a copy, or reduce into another -o"
                )
            for kind, body in journal.frames:
                self._apply_frame(kind, body)
            self._end = journal.end
            self._journal = JournalWriter.reopened(self.path, journal.end)
            return
        names = [path.name for path in self.folder.iterdir() if path.name != "run.lock"]
        if [name for name in names if name != f"{JOURNAL_FILE}.tmp"]:
            raise InputError(
                f"{self.folder} is neither empty nor written by reduce: it contains {names[0]}",
                cure="choose another name with -o",
            )
        first = encode_frame(_SOURCE, self._header())
        with write_errors(self.path, "free space, or choose a folder on another disk with -o"):
            self._journal = JournalWriter(self.path, first)
            self._end = self.path.stat().st_size
            sync(self.folder)

    def _header(self) -> dict[str, str]:
        return {"source": self.source, "to": self.to, "format": self.format}

    def _apply_frame(self, kind: str, body: Any) -> None:
        if kind == _SOURCE and isinstance(body, dict):
            for name in ("source", "to"):
                if body.get(name) != getattr(self, name):
                    raise InputError(
                        f"{self.folder} holds a reduction of {body.get('source')} to"
                        f" {body.get('to')}, not of {self.source} to {self.to}",
                        cure="choose another name with -o",
                    )
            self.format = str(body.get("format", ""))
        elif kind == _RECORD:
            record = parse_record(record_from_json, body, str(self.path))
            self.records[record.file] = record
            self.deleted.discard(record.file)
        elif kind == _DELETED and isinstance(body, list):
            self.deleted.update(str(name) for name in body)
        else:
            raise FormatError(
                f"{self.path} contains a frame of unknown kind {repr(kind)[:40]}: it may be damaged"
                " or written by a newer version",
                cure="upgrade syncpoint, or reduce into another -o",
            )

    def set_format(self, format: str) -> None:
        """Store the format of the dump."""
        self.format = format
        self._append(encode_frame(_SOURCE, self._header()))

    def add_records(self, records: Iterable[ReducedFile]) -> None:
        """Write records to the disk and read them back."""
        records = list(records)
        start = self._end
        self._append(b"".join(encode_frame(_RECORD, record.to_json()) for record in records))
        frames = read_journal(self.path, start).frames
        stored = [parse_record(record_from_json, body, str(self.path)) for _, body in frames]
        # As text: NaN is not equal to itself.
        if [repr(record) for record in stored] != [repr(record) for record in records]:
            raise FormatError(
                f"the content of {self.path} differs from what was written",
                cure="check the disk, and run the command again",
            )
        for record in records:
            self.records[record.file] = record
            self.deleted.discard(record.file)

    def mark_deleted(self, files: Iterable[str]) -> None:
        """Store that files are about to be deleted, so that their absence is no surprise."""
        files = list(files)
        if files:
            self._append(encode_frame(_DELETED, files))
            self.deleted.update(files)

    def close(self) -> None:
        """Close the journal, so that another process can continue it."""
        self._journal.close()
        self._lock.release()

    def _append(self, frames: bytes) -> None:
        with write_errors(self.path):
            self._journal.append(frames)
            sync(self.path)
        self._end += len(frames)


def _lock_folder(folder: Path) -> RunLock:
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return RunLock(folder)


def _pack(content: bytes) -> str:
    return base64.b85encode(zlib.compress(content, 9)).decode("ascii")


def _unpack(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("bytes are stored as text")
    return zlib.decompress(base64.b85decode(text))
