"""What has been reduced so far, file by file, in a journal that survives whatever ends the writer.

It stands in for the files that were deleted: of each the statistics and digests of its tensors, and
the few bytes that are not of a tensor, from which the dump's own reader finds out again what the
file was. A frame that was not written whole counts as not written.
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

LEDGER = "reduce.log"
_RECORD, _DELETED, _SOURCE = "record", "deleted", "reduces"


@dataclass(frozen=True)
class Kept:
    """What is known of one tensor."""

    digest: str
    statistics: Statistics | None = None
    values: bool = False
    """Whether its bytes are kept beside the ledger, in a file named by the digest."""


@dataclass(frozen=True)
class Record:
    """One file, as it was when it was read."""

    file: str
    stamp: Stamp
    tensors: Mapping[Place, Kept]
    pieces: tuple[tuple[int, bytes], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "file": self.file,
            "stamp": list(self.stamp),
            "pieces": [[at, _packed(data)] for at, data in self.pieces],
            "tensors": [
                [*place, k.digest, statistics_to_json(k.statistics), k.values]
                for place, k in self.tensors.items()
            ],
        }


def record_from_json(body: Mapping[str, Any]) -> Record:
    """Inverse of `Record.to_json`."""
    size, changed, number = (int(part) for part in body["stamp"])
    tensors = {}
    for offset, dtype, count, digest, figures, values in body["tensors"]:
        kept = Kept(str(digest), statistics_from_json(figures), bool(values))
        tensors[int(offset), str(dtype), int(count)] = kept
    pieces = tuple((int(at), _unpacked(text)) for at, text in body["pieces"])
    return Record(str(body["file"]), (size, changed, number), tensors, pieces)


@dataclass(kw_only=True)
class Ledger:
    """The journal of one reduction, held by one process at a time."""

    folder: Path
    source: str
    to: str
    format: str = ""
    """Name of the dump's format, from when it was first recognised: later all its files may be
    deleted."""
    records: dict[str, Record] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    """Files that we removed, or were about to when we were ended."""

    def __post_init__(self) -> None:
        self._lock = _locked(self.folder)
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / LEDGER

    def _open(self) -> None:
        if self.path.exists():
            journal = read_journal(self.path)
            if journal.is_damaged_inside:
                # Going on would cut off what is known of files that may be deleted by now.
                raise DamagedFileError(
                    self.path, journal.damage, "restore it from a copy, or reduce into another -o"
                )
            for kind, body in journal.frames:
                self._take(kind, body)
            self._end = journal.end
            self._journal = JournalWriter.reopened(self.path, journal.end)
            return
        others = [p.name for p in self.folder.iterdir() if p.name != "run.lock"]
        if [name for name in others if name != f"{LEDGER}.tmp"]:
            raise InputError(
                "a new folder, or one that was begun by reduce",
                f"{self.folder} with {others[0]} in it",
                "choose another name with -o",
            )
        first = encode_frame(_SOURCE, self._facts())
        with write_errors(self.path, "free space, or name a folder on another disk with -o"):
            self._journal = JournalWriter(self.path, first)
            self._end = self.path.stat().st_size
            sync(self.folder)

    def _facts(self) -> dict[str, str]:
        return {"source": self.source, "to": self.to, "format": self.format}

    def _take(self, kind: str, body: Any) -> None:
        if kind == _SOURCE and isinstance(body, dict):
            for name in ("source", "to"):
                mine, found = getattr(self, name), body.get(name)
                if found != mine:
                    raise InputError(
                        f"a reduction of {self.source} to {self.to} at {self.folder}",
                        f"one of {body.get('source')} to {body.get('to')}",
                        "choose another name with -o",
                    )
            self.format = str(body.get("format", ""))
        elif kind == _RECORD:
            record = parse_record(record_from_json, body, str(self.path))
            self.records[record.file] = record
            self.deleted.discard(record.file)
        elif kind == _DELETED and isinstance(body, list):
            self.deleted.update(str(name) for name in body)
        else:
            raise FormatError(f"known kinds of frames in {self.path}", repr(kind)[:40])

    def recognised(self, format: str) -> None:
        """Remember the format of the dump."""
        self.format = format
        self._append(encode_frame(_SOURCE, self._facts()))

    def add(self, records: Iterable[Record]) -> None:
        """Have records on the disk, and read back from there, when this returns."""
        records = list(records)
        start = self._end
        self._append(b"".join(encode_frame(_RECORD, record.to_json()) for record in records))
        again = read_journal(self.path, start).frames
        told = [parse_record(record_from_json, body, str(self.path)) for _, body in again]
        # As text: a figure that is NaN is not equal to itself.
        if [repr(r) for r in told] != [repr(r) for r in records]:
            raise FormatError(f"what was written to {self.path}", "something else")
        for record in records:
            self.records[record.file] = record
            self.deleted.discard(record.file)

    def deleting(self, files: Iterable[str]) -> None:
        """Say that files are about to be removed, so that they are known to be missing for that."""
        files = list(files)
        if files:
            self._append(encode_frame(_DELETED, files))
            self.deleted.update(files)

    def close(self) -> None:
        """Let others go on with it."""
        self._journal.close()
        self._lock.release()

    def _append(self, data: bytes) -> None:
        with write_errors(self.path):
            self._journal.append(data)
            sync(self.path)
        self._end += len(data)


def _locked(folder: Path) -> RunLock:
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return RunLock(folder)


def _packed(data: bytes) -> str:
    return base64.b85encode(zlib.compress(data, 9)).decode("ascii")


def _unpacked(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("bytes are kept as text")
    return zlib.decompress(base64.b85decode(text))
