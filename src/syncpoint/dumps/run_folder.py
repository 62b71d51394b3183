"""The run folder `NAME.run` as one of the dump formats: recognise, open, and copy a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from syncpoint.dumps.protocol import API
from syncpoint.files.outputs import output_folder
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept
from syncpoint.run.reader import Run
from syncpoint.run.storage.folder import is_run
from syncpoint.run.storage.run_json import RUN_JSON
from syncpoint.run.storage.table_columns import TENSORS
from syncpoint.run.storage.writer import RunWriter


class RunFolder:
    """A folder `NAME.run`; docs/formats.md describes its parts."""

    API = API
    name = "run"

    def sniff(self, path: Path) -> bool:
        """Whether the folder has a journal, a run.json of ours, or a damaged one with a table."""
        if not path.is_dir():
            return False
        damaged = os.path.lexists(path / RUN_JSON) and os.path.lexists(path / TENSORS)
        return damaged or is_run(path)

    def open(self, path: Path) -> Run:
        """Open the run."""
        return Run.open(path)

    def save(self, run: Run, path: Path) -> None:
        """Copy the run; of a run whose writer died, copy what is complete."""
        with output_folder(path) as temporary, RunWriter(temporary, run.info) as writer:
            if run.unverified:
                # The copy has checksums. Without this note it would count as verified.
                writer.note(f"copied from a run that was unverified: {run.unverified}")
            write_ops(run, writer)
            for tensor in run.tensors:
                if tensor.kept is Kept.VALUES:
                    raw = to_bytes(run.values(tensor), DTYPES[tensor.dtype])
                    writer.tensor(replace(tensor, digest_kind=""), raw)
                else:
                    writer.tensor(tensor)
            if not run.info.complete:
                writer.abort(run.info.missing)


def write_ops(run: Run, writer: RunWriter) -> None:
    """Write the ops of a run and the source files that they point to."""
    for op in run.ops:
        writer.op(op)
        for frame in op.source:
            text = run.source_text(frame.file)
            if text is not None:
                writer.source(frame.file, text)
