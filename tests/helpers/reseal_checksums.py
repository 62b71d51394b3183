"""Checksums that fit what a test has changed: files as somebody who changes them on purpose leaves
them, so that what lies behind the checksums can be tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syncpoint.files.file_checksums import record_of
from syncpoint.files.sealed_json import seal_json

DOCUMENTS = ("run.json", "comparison.json")


def reseal(folder: Path, **changes: Any) -> None:
    """Write the document of a run or comparison again, with changes and checksums that fit."""
    document = next(folder / name for name in DOCUMENTS if (folder / name).exists())
    body = json.loads(document.read_text()) | changes
    body.pop("checksum", None)
    for name in body.get("files", {}):
        if (folder / name).is_file():
            body["files"][name] = record_of((folder / name).read_bytes()).to_json()
    document.write_bytes(seal_json(json.dumps(body, indent=1)))
