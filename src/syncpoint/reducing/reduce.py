"""Reduce a run or dump to statistics or digests: check arguments, wait for and read files, store
kept values, read again before deleting.

`Reduction` reads file by file as the files become complete. Reducing to min-max is in
`to_min_max.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.reducing.assemble_run import VALUES_FOLDER, assemble
from syncpoint.reducing.data_file_readers import DataFile, NothingToReduce, Place
from syncpoint.reducing.file_access import (
    CHANGED_FILE_CURE,
    Stamp,
    check_unchanged,
    open_data_file,
    remove_unchanged,
    stamp_of,
)
from syncpoint.reducing.file_reduction import FileReduction
from syncpoint.reducing.folder_watch import FolderWatch, Progress
from syncpoint.reducing.progress_journal import ReducedFile, ReduceJournal, TensorRecord
from syncpoint.reducing.result import Reduced, count_text, folder_size
from syncpoint.reducing.sources import DumpSource, find_source
from syncpoint.reducing.summarize import summarize_tensor, windows
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Role, Tensor
from syncpoint.run.reader import Run

TO = ("statistics", "digest", "min-max")
_BATCH_FILES = 64
_BATCH_BYTES = 256 << 20
_BATCH_SECONDS = 0.5
"""Limits of a batch: so much is read before the records are written to the disk together."""


def reduce(
    source: Path,
    to: str,
    out: Path | None = None,
    *,
    watch: bool = False,
    delete: bool = False,
    until_idle: float | None = None,
    progress: Progress | None = None,
) -> Reduced:
    """Reduce a run or a dump; see the public function."""
    if to not in TO:
        raise InputError(f"cannot reduce to {to!r}", cure=f"choose one of {', '.join(TO)}")
    if until_idle is not None and not watch:
        raise InputError("until_idle applies only with watch", cure="add --watch")
    if until_idle is not None and until_idle <= 0:
        raise InputError(f"until_idle must be above 0 seconds, not {until_idle}")
    # The path itself may be a link to the dump; links inside the dump are not followed.
    path = source.resolve()
    folder = path.parent if path.is_file() else path
    if out is not None and out.resolve().is_relative_to(folder) and not path.is_file():
        raise InputError(
            f"the output {out} is inside {source}", cure="choose a folder outside of it with -o"
        )
    folder_watch = FolderWatch(enabled=watch, until_idle=until_idle)
    if to == "min-max":
        from syncpoint.reducing.to_min_max import MinMaxReduction

        return MinMaxReduction(
            path=path, out=out or folder, delete=delete, watch=folder_watch, progress=progress
        ).run()

    out_parent = path.parent if source.name in ("", "..") else source.parent
    return Reduction(
        path=path,
        out=out or out_parent / f"{_stem(path)}.{to}.run",
        to=Kept(to),
        delete=delete,
        watch=folder_watch,
        progress=progress,
    ).run()


def _stem(path: Path) -> str:
    name = path.name
    for suffix in (".run", ".npz", ".npy", ".safetensors", ".aimodelintermediates"):
        name = name.removesuffix(suffix)
    return name


@dataclass(kw_only=True)
class Reduction(FileReduction):
    """One call of reduce to statistics or digests."""

    to: Kept
    _tried_to_delete: set[str] = field(default_factory=set)
    """Files that were deleted, or could not be."""

    def run(self) -> Reduced:
        """Work until no more files are expected; then write the run."""
        if not self.watch.enabled and not self.out.exists():
            self._require_source()  # before anything is created
        journal = ReduceJournal(folder=self.out, source=str(self.path), to=str(self.to))
        outcome = Reduced(source=self.path, out=self.out, to=str(self.to))
        try:
            source: DumpSource | None = None
            try:
                source = self._wait_for_source(journal)
                while self._scan(source, journal):
                    pass
            except KeyboardInterrupt:
                outcome.interrupted = True
            if source is not None:
                self._conclude(source, journal, outcome)
        finally:
            journal.close()
        return outcome

    def _wait_for_source(self, journal: ReduceJournal) -> DumpSource:
        """The source at the path, as soon as its format can be recognised."""
        while True:
            known_format = journal.format
            if self.watch.enabled:
                source = find_source(self.path, known_format)
            else:
                source = self._require_source(known_format)
            if source is not None:
                if not known_format:
                    journal.set_format(source.format)
                return source
            self.watch.files_to_read({})
            if not self.watch.should_continue(False, False):
                return self._require_source()

    def _require_source(self, known_format: str = "") -> DumpSource:
        if not known_format and not self.path.exists():
            raise InputError(f"there is no file or folder at {self.path}", cure="check the path")
        source = find_source(self.path, known_format)
        if source is None:
            raise InputError(
                f"{self.path} is not a run or a dump: no format recognises it",
                cure="give the path of a run or of the folder of a dump",
            )
        return source

    def _scan(self, source: DumpSource, journal: ReduceJournal) -> bool:
        """Read the files that are complete; return whether to scan again."""
        finished = source.is_finished()  # before the files are listed, so that none is missed
        stamps = source.files()
        files = self.watch.files_to_read(stamps)
        listed = set(files)
        files += [
            file
            for file in stamps
            if file not in listed and not self._is_covered(source, journal, file)
        ]
        batch = _Batch()
        for file in files:
            self._not_reduced.pop(file, None)
            self._skipped.pop(file, None)
            record = journal.records.get(file)
            is_same = record is not None and record.stamp == stamps[file]
            if not is_same or not self._is_covered(source, journal, file):
                try:
                    data_file = source.read(file)
                    batch.add(data_file, self._record(data_file, stamps[file]))
                except NothingToReduce as error:
                    self._skipped[file] = error.problem
                except SyncpointError as error:
                    self._not_reduced[file] = str(error)
                    if source.indexed_tensors(file) is not None and not finished:
                        continue  # the index may name its tensors later
            self.watch.mark_read(file, stamps[file])
            if batch.is_due():
                self._store(source, journal, batch)
        self._store(source, journal, batch)
        if self.delete and not source.is_single_file:
            self._delete(journal, self._deletable(source, journal, stamps))
        if self.progress is not None and batch.file_count:
            self.progress(
                f"{len(journal.records)} files reduced, {len(journal.deleted)} deleted,"
                f" {len(self._not_reduced)} not reduced so far"
            )
        return self.watch.should_continue(bool(batch.file_count), finished)

    def _is_covered(self, source: DumpSource, journal: ReduceJournal, file: str) -> bool:
        """Whether the record of a file, if it exists, has all tensors that the index names."""
        record = journal.records.get(file)
        indexed = source.indexed_tensors(file)
        return record is None or indexed is None or indexed <= record.tensors.keys()

    def _record(self, data_file: DataFile, stamp: Stamp) -> ReducedFile:
        """Read a file once; a FormatError if it changes meanwhile."""
        with_statistics = self.to is Kept.STATISTICS
        tensors: dict[Place, TensorRecord] = {}
        with open_data_file(data_file.path) as handle:
            check_unchanged(data_file.path, handle, stamp)
            for tensor in data_file.tensors:
                if not tensor.count:
                    continue
                summary = summarize_tensor(
                    data_file.run, tensor, handle, with_statistics=with_statistics
                )
                keeps_values = tensor.key.role is Role.MODEL_INPUT
                if keeps_values:
                    self._store_values(data_file, tensor, handle, summary.digest)
                place = (tensor.offset, tensor.dtype, tensor.count)
                keeps_values = keeps_values or (place in tensors and tensors[place].values)
                tensors[place] = TensorRecord(summary.digest, summary.statistics, keeps_values)
            check_unchanged(data_file.path, handle, stamp)
        return ReducedFile(data_file.file, stamp, tensors, data_file.pieces)

    def _store_values(self, data_file: DataFile, tensor: Tensor, handle: int, digest: str) -> None:
        """Write the bytes of a model input to a file named by their digest."""
        folder = self.out / VALUES_FOLDER
        path = folder / digest
        if path.exists():
            return
        with write_errors(path):
            folder.mkdir(exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                for values in windows(data_file.run, tensor, handle):
                    file.write(to_bytes(values, DTYPES[tensor.dtype]).data)

    def _store(self, source: DumpSource, journal: ReduceJournal, batch: _Batch) -> None:
        """Write the records of a batch to the disk, then delete the files that may be deleted."""
        data_files, records = batch.clear()
        if records:
            journal.add_records(records)
            if self.delete and not source.is_single_file:
                deletable = (each for each in data_files if not source.reason_to_keep(each.file))
                self._delete(journal, deletable)

    def _deletable(
        self, source: DumpSource, journal: ReduceJournal, stamps: dict[str, Stamp]
    ) -> Iterator[DataFile]:
        """The files that have a record, still exist and may be deleted."""
        for file, stamp in stamps.items():
            record = journal.records.get(file)
            if record is None or record.stamp != stamp or file in self._tried_to_delete:
                continue
            if source.reason_to_keep(file):
                continue
            try:
                yield source.read(file)
            except SyncpointError as error:
                self._not_reduced[file] = str(error)

    def _delete(self, journal: ReduceJournal, data_files: Iterable[DataFile]) -> None:
        """Delete the files for which a second reading confirms their records."""
        confirmed: list[DataFile] = []
        for data_file in data_files:
            self._tried_to_delete.add(data_file.file)
            if not data_file.removable:
                continue
            try:
                self._confirm(data_file, journal.records[data_file.file])
            except SyncpointError as error:
                self._not_reduced[data_file.file] = str(error)
            else:
                confirmed.append(data_file)
        journal.mark_deleted(data_file.file for data_file in confirmed)
        for data_file in confirmed:
            if not remove_unchanged(data_file.path, journal.records[data_file.file].stamp):
                self._not_reduced[data_file.file] = "it is reduced, but could not be deleted"

    def _confirm(self, data_file: DataFile, record: ReducedFile) -> None:
        """Read a file a second time; a FormatError if it does not match its record."""
        with open_data_file(data_file.path) as handle:
            is_same = stamp_of(os.fstat(handle)) == record.stamp
            if not is_same or data_file.pieces != record.pieces:
                raise FormatError(
                    f"{data_file.file} changed after it was read", cure=CHANGED_FILE_CURE
                )
            for tensor in data_file.tensors:
                if not tensor.count:
                    continue
                stored = record.tensors.get((tensor.offset, tensor.dtype, tensor.count))
                digest = summarize_tensor(data_file.run, tensor, handle).digest
                if stored is None or digest != stored.digest:
                    raise FormatError(
                        f"{data_file.file} changed while it was being read: two reads returned"
                        f" different contents of {tensor.key}",
                        cure=CHANGED_FILE_CURE,
                    )
            check_unchanged(data_file.path, handle, record.stamp)

    def _conclude(self, source: DumpSource, journal: ReduceJournal, outcome: Reduced) -> None:
        """Write the reduced run and fill in the outcome."""
        stamps = source.files()
        outcome.passed = {file: why for file, why in self._skipped.items() if file in stamps}
        for file, stamp in stamps.items():
            record = journal.records.get(file)
            if file in self._not_reduced:
                outcome.left[file] = self._not_reduced[file]
            elif file not in outcome.passed and (record is None or record.stamp != stamp):
                outcome.left[file] = "it was still being written"
        if not journal.records and outcome.left:
            file, why = next(iter(outcome.left.items()))
            raise InputError(f"no file of {self.path} can be reduced; {file}: {why}")
        if source.is_single_file and not stamps:
            # It was deleted after its run was written.
            outcome.files = outcome.deleted = len(journal.records)
            outcome.tensors = len(Run.open(self.out).tensors)
            outcome.before = sum(record.stamp[0] for record in journal.records.values())
        else:
            assemble(source, journal, self.to, outcome)
            if self.delete and source.is_single_file and not outcome.left:
                self._delete(journal, self._deletable(source, journal, stamps))
                outcome.deleted = len(journal.records.keys() - source.files().keys())
                outcome.left |= self._not_reduced
        if self.delete:
            reasons = [why for file in source.files() if (why := source.reason_to_keep(file))]
            if reasons:
                count = count_text(len(reasons), "file")
                outcome.notes.append(f"{count} not deleted: {reasons[0]}")
        outcome.after = folder_size(self.out)


@dataclass
class _Batch:
    """Files that were read and whose records are written to the disk together."""

    data_files: list[DataFile] = field(default_factory=list)
    records: list[ReducedFile] = field(default_factory=list)
    file_count: int = 0
    """Files since the start of the scan, also those of earlier batches."""
    _started_at: float = field(default_factory=time.monotonic)

    def add(self, data_file: DataFile, record: ReducedFile) -> None:
        self.data_files.append(data_file)
        self.records.append(record)
        self.file_count += 1

    def is_due(self) -> bool:
        nbytes = sum(record.stamp[0] for record in self.records)
        is_late = time.monotonic() - self._started_at > _BATCH_SECONDS
        return len(self.records) >= _BATCH_FILES or nbytes >= _BATCH_BYTES or is_late

    def clear(self) -> tuple[list[DataFile], list[ReducedFile]]:
        """Empty the batch; return what it held."""
        content = self.data_files, self.records
        self.data_files, self.records, self._started_at = [], [], time.monotonic()
        return content
