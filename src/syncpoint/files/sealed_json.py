"""Write and verify JSON documents that end with their own checksum and list the checksums of the
files next to them; strip the checksum, cut at a key.

The last key of a sealed document is `checksum`. It covers all bytes before it, so the document is
verified as bytes before a JSON parser sees it, and can still be replaced in one rename. Under
`files` it lists size and checksum of the files that belong to it. Checksums detect accidents, not
attacks: whoever changes a file on purpose can also write a matching checksum. See docs/formats.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from syncpoint.errors import FormatError, describe_error
from syncpoint.files.file_checksums import DamagedFileError, FileRecord, checksum_of
from syncpoint.files.untrusted_files import read_whole
from syncpoint.files.untrusted_json import parse_json

FIRST_SEALED_SCHEMA = 2
"""Runs and comparisons of this schema and later have checksums; those before have none."""
UNVERIFIED = "it was written before files had checksums"
"""The reason why a file of an older schema cannot be verified."""

_SEAL = re.compile(rb',\n "checksum": "xxh3-128:([0-9a-f]{32})"\n\}\n\Z')
_SEAL_BYTES = 100
"""At least the length of the seal: only the end of a document is searched for it."""
_MAX_DOCUMENT = 1 << 30


@dataclass(frozen=True)
class Document:
    """A JSON document that was read from a file."""

    body: dict[str, Any]
    """Without its own checksum."""
    schema: int
    is_verified: bool
    """False only if its schema has no checksums."""
    files: Mapping[str, FileRecord]
    """The files that belong to it, by their path below its folder."""


def seal_json(text: str) -> bytes:
    """Add its checksum to a JSON object, as the last key."""
    body = text.encode("utf-8", "surrogatepass").rstrip()
    if not body.endswith(b"}") or body == b"{}":
        raise ValueError("only a JSON object with at least one key can be sealed")
    body = body[:-1].rstrip()
    return body + f',\n "checksum": "{checksum_of(body)}"\n}}\n'.encode()


def unseal_json(data: bytes, path: Path, cure: str) -> tuple[bytes, bool]:
    """Return a document without its checksum, and whether it had one; a wrong checksum is a
    FormatError."""
    seal = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    if seal is None:
        return data, False
    body = data[: seal.start()]
    if xxhash.xxh3_128_hexdigest(body) != seal[1].decode():
        raise DamagedFileError(path, "its checksum differs", cure)
    return body + b"}", True


def read_document(
    path: Path, newest: int, cure: str, format_name: str = "", before: bytes = b""
) -> Document:
    """Read a document that this package wrote, and verify it if its schema has checksums.

    `newest` is the newest schema that this version reads; `format_name`, if there is one, is the
    expected value of the key `format`. `cure` says what to do about damage. With `before`, the
    bytes at which a key begins, the whole document is verified but only the keys in front of that
    one are parsed. A file that exists but cannot be read is an OSError.
    """
    try:
        data = read_whole(path, _MAX_DOCUMENT)
    except FileNotFoundError as error:
        raise DamagedFileError(path, "it is missing", cure) from error
    data, is_sealed = unseal_json(data, path, cure)
    try:
        body = parse_json(_cut_before(data, before) if before else data, "it")
    except FormatError as error:
        raise DamagedFileError(path, error.problem, cure) from error
    if not isinstance(body, dict):
        raise DamagedFileError(path, f"it holds a {type(body).__name__}, not an object", cure)
    if format_name and body.get("format") != format_name:
        raise FormatError(
            f'{path} is not a {format_name} file: its key "format" is missing or has another value',
            cure=f"give the path of a {format_name} file",
        )
    schema = body.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise DamagedFileError(path, f"its schema is {str(schema)[:40]!r}", cure)
    if schema > newest:
        raise FormatError(
            f"{path} has schema {schema}; this version reads schema {newest} or older",
            cure="upgrade syncpoint",
        )
    if schema >= FIRST_SEALED_SCHEMA and not is_sealed:
        raise DamagedFileError(path, "its checksum is missing", cure)
    files = _files(body.get("files", {}), path, cure) if is_sealed else {}
    return Document(body, schema, is_sealed, files)


def _cut_before(data: bytes, before: bytes) -> bytes:
    """Cut an object off at the key `before`; return it whole if it has no such key."""
    head, mark, _ = data.partition(before)
    return head.rstrip().rstrip(b",") + b"}" if mark else data


def _files(body: Any, path: Path, cure: str) -> dict[str, FileRecord]:
    try:
        return {
            str(name): FileRecord(int(entry["bytes"]), str(entry["checksum"]))
            for name, entry in body.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(
            path, f"its list of files cannot be read: {describe_error(error)}", cure
        ) from error
