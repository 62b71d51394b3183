"""The format class of Apple's `.aimodelintermediates` (values of a PyTorch run for Core AI's
tools): recognise, open, save.

A folder with `metadata.json` and a `.npy` file for each value. The metadata tells inputs,
parameters and ops apart. In folders that Syncpoint wrote it also has what the run knew of each op.
"""

from __future__ import annotations

from pathlib import Path

from syncpoint.dumps.aimodelintermediates.metadata_json import (
    read_metadata,
)
from syncpoint.dumps.aimodelintermediates.open_folder import NAME, open_folder
from syncpoint.dumps.aimodelintermediates.save_folder import METADATA, SUFFIX
from syncpoint.dumps.protocol import API
from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.atomic_writes import SUFFIX as PARTIAL
from syncpoint.run.reader import Run


class AimodelIntermediates:
    """The format: a folder `NAME.aimodelintermediates`, or its metadata.json."""

    API = API
    name = NAME

    def sniff(self, path: Path) -> bool:
        """Whether the folder has the suffix, or its metadata the three categories.

        A folder with the suffix but without metadata counts too: what remains of it must not be
        opened as a plain folder of .npy files.
        """
        if path.is_dir():
            is_unfinished = path.name.endswith(PARTIAL) and f"{SUFFIX}." in path.name
            if path.name.endswith(SUFFIX) or is_unfinished:
                return True
            path = path / METADATA
        if path.name != METADATA or not path.is_file():
            return False
        try:
            read_metadata(path)
        except SyncpointError:
            return False
        return True

    def open(self, path: Path) -> Run:
        """Open the folder; reads the metadata and the headers only."""
        return open_folder(path)

    def save(self, run: Run, path: Path) -> None:
        """Write all values of a run, with what it knows of them under the key `syncpoint`."""
        from syncpoint.dumps.aimodelintermediates.save_folder import save_run

        if not path.name.endswith(SUFFIX):
            raise InputError(
                f"the name {path.name} does not end in {SUFFIX}, which Core AI's tools need",
                cure=f"write to {path.name}{SUFFIX}",
            )
        save_run(run, path)
