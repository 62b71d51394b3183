"""Write, read and verify `run.json`: the facts of a run to JSON and back, with the checksums of its
files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from syncpoint.files.file_checksums import DamagedFileError, FileRecord, files_to_json
from syncpoint.files.sealed_json import read_document, seal_json
from syncpoint.run.model import Kept, Observer, RunInfo
from syncpoint.run.non_tensor_outputs import OtherOutput
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
"""The cure for a damaged run."""


def info_to_json(info: RunInfo) -> dict[str, Any]:
    """The facts of a run, by the names of RunInfo's fields."""
    body: dict[str, Any] = {f.name: getattr(info, f.name) for f in fields(RunInfo)}
    body["options"] = dict(info.options)
    body["environment"] = dict(info.environment)
    body["other_outputs"] = {name: o.to_json() for name, o in info.other_outputs.items()}
    body["record"] = info.record.value
    body["notes"] = list(info.notes)
    if info.observer is not None:
        body["observer"] = asdict(info.observer)
    return body


def info_from_json(body: Mapping[str, Any]) -> RunInfo:
    """Inverse of `info_to_json`; fields that a file lacks get their defaults."""
    values: dict[str, Any] = {}
    for field in fields(RunInfo):
        if field.name in body:
            values[field.name] = body[field.name]
    for name in ("model", "runtime", "runtime_version", "device", "precision", "fusion", "missing"):
        values[name] = expect_text(values.get(name, ""))
    values["options"] = expect_object(values.get("options", {}))
    values["environment"] = {
        k: str(v) for k, v in expect_object(values.get("environment", {})).items()
    }
    others = expect_object(values.get("other_outputs", {}))
    values["other_outputs"] = {k: OtherOutput.from_json(str(v)) for k, v in others.items()}
    values["record"] = Kept(values.get("record", Kept.VALUES))
    values["notes"] = tuple(expect_text(n) for n in values.get("notes", ()))
    observer = values.get("observer")
    if observer is not None:
        values["observer"] = Observer(
            bool(observer["equal"]),
            expect_text(observer.get("detail", "")),
            observer.get("explained", False) is True,
        )
    # Older runs do not have this fact; at that time one runtime compiled.
    values["compiled"] = values.get("compiled", values["runtime"] == "inductor") is True
    values["complete"] = values.get("complete", False) is True
    return RunInfo(**values)


def encode_run_json(
    info: RunInfo, counts: Mapping[str, int], files: Mapping[str, FileRecord]
) -> bytes:
    """Encode `run.json`; `files` are the checksums of the tables and sources."""
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
    """The content of a `run.json`."""

    info: RunInfo
    counts: Mapping[str, Any]
    files: Mapping[str, FileRecord]
    """Tables and sources, by their path in the folder of the run; empty in schema 1."""
    is_verified: bool

    def record(self, folder: Path, name: str) -> FileRecord | None:
        """The recorded size and checksum of a table; None if the run is older than checksums."""
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
