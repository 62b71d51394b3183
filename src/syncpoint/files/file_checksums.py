"""Size and checksum of whole files (`FileRecord`): compute, verify, store under `files` in a
document; the error for a changed file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from syncpoint.errors import FormatError

KIND = "xxh3-128"


@dataclass(frozen=True)
class FileRecord:
    """Size and checksum of a file, as a document beside it records them."""

    size: int
    checksum: str
    """Kind and hexadecimal digits: `xxh3-128:0123...`."""

    def to_json(self) -> dict[str, Any]:
        """The entry for the key `files` of a document."""
        return {"bytes": self.size, "checksum": self.checksum}

    def verify(self, data: bytes, path: Path, cure: str) -> None:
        """Raise FormatError unless `data`, read from `path`, are the recorded bytes."""
        if len(data) != self.size:
            raise DamagedFileError(path, f"{len(data):,} bytes instead of {self.size:,}", cure)
        if checksum_of(data) != self.checksum:
            raise DamagedFileError(path, "its checksum differs", cure)


class DamagedFileError(FormatError):
    """A file that this package wrote has other content now."""

    def __init__(self, path: Path, detail: str, cure: str) -> None:
        super().__init__(f"{path} is damaged: {detail}", cure=cure)
        self.name = path.name
        self.damage = detail
        """What is wrong with the file."""
        self.args = (path, detail, cure)


def checksum_of(data: bytes) -> str:
    """Compute the checksum of these bytes: kind and digits."""
    return f"{KIND}:{xxhash.xxh3_128_hexdigest(data)}"


def record_of(data: bytes) -> FileRecord:
    """Build the record of a file with these bytes."""
    return FileRecord(len(data), checksum_of(data))


def files_to_json(files: Mapping[str, FileRecord]) -> dict[str, Any]:
    """The value of the key `files` of a document."""
    return {name: record.to_json() for name, record in files.items()}
