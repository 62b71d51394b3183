"""Apple's `.aimodelintermediates`: the values of a PyTorch reference run, for Core AI's tools.

A folder with `metadata.json` and a `.npy` file for each value. Inputs, parameters and ops are
told apart by the metadata; files that we wrote say besides what the run knew of each op.
"""

from __future__ import annotations

from pathlib import Path

from syncpoint.dumps.aimodelintermediates.folder_writer import METADATA, SUFFIX
from syncpoint.dumps.aimodelintermediates.metadata_json import (
    read_metadata,
)
from syncpoint.dumps.aimodelintermediates.open_folder import NAME, open_folder
from syncpoint.dumps.protocol import API
from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.atomic_writes import SUFFIX as PARTIAL
from syncpoint.run.reader import Run


class AimodelIntermediates:
    """A folder `NAME.aimodelintermediates`, or its metadata.json."""

    API = API
    name = NAME

    def sniff(self, path: Path) -> bool:
        """The name of the folder, or the three categories in its metadata.

        A folder of that name without metadata is one too: what is left of it must not be taken
        for a plain folder of .npy files.
        """
        if path.is_dir():
            unfinished = path.name.endswith(PARTIAL) and f"{SUFFIX}." in path.name
            if path.name.endswith(SUFFIX) or unfinished:
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
        """Reads the metadata and the headers only."""
        return open_folder(path)

    def save(self, run: Run, path: Path) -> None:
        """All values of a run, with what it knows of them under our own key."""
        from syncpoint.dumps.aimodelintermediates.save_run import save_run

        if not path.name.endswith(SUFFIX):
            raise InputError(
                f"a name that ends in {SUFFIX}",
                path.name,
                f"Core AI's tools open no other; write to {path.name}{SUFFIX}",
            )
        save_run(run, path)
