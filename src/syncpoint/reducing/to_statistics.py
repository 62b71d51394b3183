"""Runs and dumps -> statistics or digests: file by file as they become whole, at any time to be
killed and gone on with.

A file's record is on the disk before the next thing is done. A file is deleted only after its
record was read back and a second reading of the file gave the same digests.
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
from syncpoint.reducing.assemble_run import VALUES, assemble
from syncpoint.reducing.data_file_readers import NothingToReduce, Place, Unit
from syncpoint.reducing.file_access import Stamp, check_unchanged, opened, remove, stamp
from syncpoint.reducing.folder_watch import Progress, Watch
from syncpoint.reducing.progress_journal import Kept as Known
from syncpoint.reducing.progress_journal import Ledger, Record
from syncpoint.reducing.result import Reduced, counted, size_of
from syncpoint.reducing.sources import Source, recognised
from syncpoint.reducing.summarize import measure, windows
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Role, Tensor
from syncpoint.run.reader import Run

_BATCH_FILES = 64
_BATCH_BYTES = 256 << 20
_BATCH_SECONDS = 0.5
"""So many are read before their records are brought to the disk together."""


@dataclass(kw_only=True)
class Reduction:
    """One call of reduce to statistics or digests."""

    path: Path
    out: Path
    to: Kept
    delete: bool
    watch: Watch
    progress: Progress | None = None
    _left: dict[str, str] = field(default_factory=dict)
    _passed: dict[str, str] = field(default_factory=dict)
    _tried: set[str] = field(default_factory=set)
    """Files that were deleted, or could not be."""

    def run(self) -> Reduced:
        """Work until there is nothing more to wait for; then write the run."""
        if not self.watch.on and not self.out.exists():
            self._recognised()  # before anything is made
        ledger = Ledger(folder=self.out, source=str(self.path), to=str(self.to))
        outcome = Reduced(source=self.path, out=self.out, to=str(self.to))
        try:
            source: Source | None = None
            try:
                source = self._source(ledger)
                while self._look(source, ledger):
                    pass
            except KeyboardInterrupt:
                outcome.interrupted = True
            if source is not None:
                self._conclude(source, ledger, outcome)
        finally:
            ledger.close()
        return outcome

    def _source(self, ledger: Ledger) -> Source:
        """What is at the path, once that can be told."""
        while True:
            known = ledger.format
            found = recognised(self.path, known) if self.watch.on else self._recognised(known)
            if found is not None:
                if not known:
                    ledger.recognised(found.format)
                return found
            self.watch.fresh({})
            if not self.watch.goes_on(False, False):
                return self._recognised()

    def _recognised(self, known: str = "") -> Source:
        if not known and not self.path.exists():
            raise InputError("a run or a dump", f"nothing at {self.path}", "check the path")
        found = recognised(self.path, known)
        if found is None:
            raise InputError(
                "a run or a dump", f"{self.path}, which no format recognises", "check the path"
            )
        return found

    def _look(self, source: Source, ledger: Ledger) -> bool:
        """Take what is whole by now; whether there is more to come."""
        finished = source.finished()  # asked first: what comes after that is seen
        there = source.files()
        fresh = self.watch.fresh(there)
        known = set(fresh)
        fresh += [f for f in there if f not in known and not self._covers(source, ledger, f)]
        batch = _Batch()
        for file in fresh:
            self._left.pop(file, None)
            self._passed.pop(file, None)
            record = ledger.records.get(file)
            same = record is not None and record.stamp == there[file]
            if not same or not self._covers(source, ledger, file):
                try:
                    batch.add(unit := source.unit(file), self._record(unit, there[file]))
                except NothingToReduce as error:
                    self._passed[file] = f"{error.found}, not {error.expected}"
                except SyncpointError as error:
                    self._left[file] = str(error)
                    if source.told(file) is not None and not finished:
                        continue  # what the index does not say yet, it may say later
            self.watch.looked_into(file, there[file])
            if batch.is_due():
                self._keep(source, ledger, batch)
        self._keep(source, ledger, batch)
        if self.delete and not source.alone:
            self._delete(ledger, self._deletable(source, ledger, there))
        if self.progress is not None and batch.taken:
            self.progress(
                f"{len(ledger.records)} files reduced, {len(ledger.deleted)} deleted,"
                f" {len(self._left)} left so far"
            )
        return self.watch.goes_on(bool(batch.taken), finished)

    def _covers(self, source: Source, ledger: Ledger, file: str) -> bool:
        """Whether the record of a file, if there is one, has all tensors that an index by now
        says are in it."""
        record = ledger.records.get(file)
        told = source.told(file)
        return record is None or told is None or told <= record.tensors.keys()

    def _record(self, unit: Unit, before: Stamp) -> Record:
        """Read a file once; what changed since it was first seen is not taken."""
        figures = self.to is Kept.STATISTICS
        tensors: dict[Place, Known] = {}
        with opened(unit.path) as handle:
            check_unchanged(unit.path, handle, before)
            for tensor in unit.tensors:
                if not tensor.count:
                    continue
                found = measure(unit.run, tensor, handle, figures=figures)
                values = tensor.key.role is Role.MODEL_INPUT
                if values:
                    self._keep_values(unit, tensor, handle, found.digest)
                place = (tensor.offset, tensor.dtype, tensor.count)
                values = values or (place in tensors and tensors[place].values)
                tensors[place] = Known(found.digest, found.statistics, values)
            check_unchanged(unit.path, handle, before)
        return Record(unit.file, before, tensors, unit.pieces)

    def _keep_values(self, unit: Unit, tensor: Tensor, handle: int, digest: str) -> None:
        """Have the bytes of a model input on the disk, under their digest."""
        folder = self.out / VALUES
        path = folder / digest
        if path.exists():
            return
        with write_errors(path):
            folder.mkdir(exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                for values in windows(unit.run, tensor, handle):
                    file.write(to_bytes(values, DTYPES[tensor.dtype]).data)

    def _keep(self, source: Source, ledger: Ledger, batch: _Batch) -> None:
        """Have records on the disk, then delete what may go."""
        units, records = batch.taken_out()
        if records:
            ledger.add(records)
            if self.delete and not source.alone:
                self._delete(ledger, (u for u in units if not source.may_go(u.file)))

    def _deletable(self, source: Source, ledger: Ledger, there: dict[str, Stamp]) -> Iterator[Unit]:
        """Files with a record of theirs that are still there."""
        for file, seen in there.items():
            record = ledger.records.get(file)
            if record is None or record.stamp != seen or file in self._tried:
                continue
            if source.may_go(file):
                continue
            try:
                yield source.unit(file)
            except SyncpointError as error:
                self._left[file] = str(error)

    def _delete(self, ledger: Ledger, units: Iterable[Unit]) -> None:
        """Remove files that a second reading finds to be what their records say."""
        sure: list[Unit] = []
        for unit in units:
            self._tried.add(unit.file)
            if not unit.removable:
                continue
            try:
                self._read_again(unit, ledger.records[unit.file])
            except SyncpointError as error:
                self._left[unit.file] = str(error)
            else:
                sure.append(unit)
        ledger.deleting(unit.file for unit in sure)
        for unit in sure:
            if not remove(unit.path, ledger.records[unit.file].stamp):
                self._left[unit.file] = "it is reduced, but could not be deleted"

    def _read_again(self, unit: Unit, record: Record) -> None:
        with opened(unit.path) as handle:
            if stamp(os.fstat(handle)) != record.stamp or unit.pieces != record.pieces:
                raise FormatError(f"{unit.file} as it was", "a file that changed")
            for tensor in unit.tensors:
                if not tensor.count:
                    continue
                known = record.tensors.get((tensor.offset, tensor.dtype, tensor.count))
                if known is None or measure(unit.run, tensor, handle).digest != known.digest:
                    raise FormatError(f"{tensor.key} of {unit.file} as it was", "other bytes")
            check_unchanged(unit.path, handle, record.stamp)

    def _conclude(self, source: Source, ledger: Ledger, outcome: Reduced) -> None:
        there = source.files()
        outcome.passed = {file: why for file, why in self._passed.items() if file in there}
        for file, seen in there.items():
            record = ledger.records.get(file)
            if file in self._left:
                outcome.left[file] = self._left[file]
            elif file not in outcome.passed and (record is None or record.stamp != seen):
                outcome.left[file] = "it was still being written"
        if not ledger.records and outcome.left:
            file, why = next(iter(outcome.left.items()))
            raise InputError(f"a file of {self.path} that can be reduced", f"{file}: {why}")
        if source.alone and not there:
            # It was deleted after its run was written.
            outcome.files = outcome.deleted = len(ledger.records)
            outcome.tensors = len(Run.open(self.out).tensors)
            outcome.before = sum(record.stamp[0] for record in ledger.records.values())
        else:
            assemble(source, ledger, self.to, outcome)
            if self.delete and source.alone and not outcome.left:
                self._delete(ledger, self._deletable(source, ledger, there))
                outcome.deleted = len(ledger.records.keys() - source.files().keys())
                outcome.left |= self._left
        if self.delete:
            kept = [why for file in source.files() if (why := source.may_go(file))]
            if kept:
                outcome.notes.append(f"{counted(len(kept), 'file')} not deleted: {kept[0]}")
        outcome.after = size_of(self.out)


@dataclass
class _Batch:
    """Files that were read, and whose records are brought to the disk together."""

    units: list[Unit] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    taken: int = 0
    _since: float = field(default_factory=time.monotonic)

    def add(self, unit: Unit, record: Record) -> None:
        self.units.append(unit)
        self.records.append(record)
        self.taken += 1

    def is_due(self) -> bool:
        nbytes = sum(record.stamp[0] for record in self.records)
        late = time.monotonic() - self._since > _BATCH_SECONDS
        return len(self.records) >= _BATCH_FILES or nbytes >= _BATCH_BYTES or late

    def taken_out(self) -> tuple[list[Unit], list[Record]]:
        found = self.units, self.records
        self.units, self.records, self._since = [], [], time.monotonic()
        return found
