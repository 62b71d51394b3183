"""`run.json`: the facts of a run as JSON, with the checksums of the run's files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from syncpoint.files.file_checksums import DamagedFileError, FileRecord, files_to_json
from syncpoint.files.sealed_json import read_document, seal_json
from syncpoint.run.model import (
    Kept,
    Observer,
    OtherOutput,
    RunInfo,
)
from syncpoint.run.storage.record_json import (
    expect_object,
    expect_text,
    parse_record,
    to_plain_json,
)

RUN_JSON = "run.json"
FORMAT = "syncpoint-run"
SCHEMA = 2
"""Schema 1 had no checksums; it is still read."""
RESTORE = "restore it from a copy, or record the run again"
"""What to do about a damaged run."""


def info_to_json(info: RunInfo) -> dict[str, Any]:
    """The facts of a run, by the names of RunInfo's fields."""
    body: dict[str, Any] = {f.name: getattr(info, f.name) for f in fields(RunInfo)}
    body["options"] = dict(info.options)
    body["environment"] = dict(info.environment)
    body["other_outputs"] = {name: o.to_json() for name, o in info.other_outputs.items()}
    body["record"] = info.record.value
    body["notes"] = list(info.notes)
    if info.observer is not None:
        body["observer"] = {"equal": info.observer.equal, "detail": info.observer.detail}
    return body


def info_from_json(body: Mapping[str, Any]) -> RunInfo:
    """Inverse of `info_to_json`; fields that a file leaves out have their defaults."""
    known: dict[str, Any] = {}
    for field in fields(RunInfo):
        if field.name in body:
            known[field.name] = body[field.name]
    for name in ("model", "runtime", "runtime_version", "device", "precision", "fusion", "missing"):
        known[name] = expect_text(known.get(name, ""))
    known["options"] = expect_object(known.get("options", {}))
    known["environment"] = {
        k: str(v) for k, v in expect_object(known.get("environment", {})).items()
    }
    others = expect_object(known.get("other_outputs", {}))
    known["other_outputs"] = {k: OtherOutput.from_json(str(v)) for k, v in others.items()}
    known["record"] = Kept(known.get("record", Kept.VALUES))
    known["notes"] = tuple(expect_text(n) for n in known.get("notes", ()))
    observer = known.get("observer")
    if observer is not None:
        known["observer"] = Observer(
            bool(observer["equal"]), expect_text(observer.get("detail", ""))
        )
    # Runs that are older than this fact: one runtime compiled.
    known["compiled"] = known.get("compiled", known["runtime"] == "inductor") is True
    known["complete"] = known.get("complete", False) is True
    return RunInfo(**known)


def encode_run_json(
    info: RunInfo, counts: Mapping[str, int], files: Mapping[str, FileRecord]
) -> bytes:
    """The bytes of `run.json`, which speaks for the tables and sources in `files`."""
    body = {
        "format": FORMAT,
        "schema": SCHEMA,
        **info_to_json(info),
        "counts": dict(counts),
        "files": files_to_json(files),
    }
    return seal_json(json.dumps(body, default=to_plain_json, indent=1))


@dataclass(frozen=True)
class RunDocument:
    """What `run.json` says."""

    info: RunInfo
    counts: Mapping[str, Any]
    files: Mapping[str, FileRecord]
    """Tables and sources, by their path below the run's folder; none in schema 1."""
    is_verified: bool

    def record(self, folder: Path, name: str) -> FileRecord | None:
        """What is recorded of a table; None where the run is older than checksums."""
        if not self.is_verified:
            return None
        if name not in self.files:
            raise DamagedFileError(folder / RUN_JSON, f"it records no checksum of {name}", RESTORE)
        return self.files[name]


def read_run_json(path: Path) -> RunDocument:
    """Read and verify a `run.json`."""
    document = read_document(path, SCHEMA, RESTORE, FORMAT)
    info = parse_record(info_from_json, document.body, str(path))
    counts = document.body.get("counts")
    if not isinstance(counts, dict):
        raise DamagedFileError(path, "it has no counts", RESTORE)
    return RunDocument(info, counts, document.files, document.is_verified)
