"""Writing a run to disk so that whatever kills the writer leaves a run that opens.

Bytes first, then the journal frame that speaks of them; shards under their final name only when
whole; tables and `run.json` last, each whole or absent. See docs/formats.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import xxhash

from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.atomic_writes import sync, write_atomically
from syncpoint.files.byte_ranges import Bytes
from syncpoint.files.write_errors import cannot_write
from syncpoint.files.writer_lock import RunLock
from syncpoint.run.digests import XXH3_128 as DIGEST
from syncpoint.run.dtypes import DType
from syncpoint.run.dtypes import parse_dtype as dtype_of
from syncpoint.run.model import Kept, Op, RunInfo, Tensor, replace_fields
from syncpoint.run.storage.folder import check_new_run_path, clear_run
from syncpoint.run.storage.journal import JOURNAL, JournalWriter, encode_frame
from syncpoint.run.storage.record_json import op_to_json, tensor_to_json
from syncpoint.run.storage.run_json import RUN_JSON, encode_run_json, info_to_json
from syncpoint.run.storage.shards import WRITE_BYTES, ShardWriter
from syncpoint.run.storage.source_code import SourceWriter
from syncpoint.run.storage.table_columns import OPS, TENSORS, op_row, tensor_row
from syncpoint.run.storage.table_writer import write_ops, write_tensors

_FLUSH_SECONDS = 0.5
"""How long a finished tensor may stay in memory when little else comes."""
T = TypeVar("T")
_FIELDS = {f.name for f in fields(RunInfo)}


class RunWriter:
    """The one writer of the run at `path`. Calls may come from any thread.

    Used as a context manager it finishes the run at the end of the block; an exception inside
    leaves a readable run that says it is incomplete, and why.
    """

    def __init__(
        self, path: Path | str, info: RunInfo | None = None, *, overwrite: bool = False
    ) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._info = replace(info or RunInfo(), complete=False, missing="")
        self._prepare(overwrite)
        self._shards = ShardWriter(self.path)
        self._sources = SourceWriter(self.path)
        # Rows and plain tuples: the cyclic collector would follow every record and every key
        # again and again, at a cost that grows with the run.
        self._op_keys: set[tuple[Any, ...]] = set()
        self._op_rows: list[tuple[Any, ...]] = []
        self._tensor_keys: set[tuple[Any, ...]] = set()
        self._tensor_rows: list[tuple[Any, ...]] = []
        self._held: dict[tuple[str, str, int], tuple[str, int]] = {}
        """Where content already lies, by digest, dtype and size."""
        self._waiting: list[Tensor] = []
        """Tensors whose bytes are not in their file yet."""
        self._frames = bytearray()
        self._flushed = time.monotonic()
        self._flushed_bytes = 0
        self._before_finish: list[Callable[[], None]] = []
        self._open = True
        self._failure: InputError | None = None
        self._shards_told = 0
        self.stored_bytes = 0
        """Bytes of values taken, equal content counted once."""

    def _prepare(self, overwrite: bool) -> None:
        """Make or take over the folder, lock it and start the journal."""
        path = self.path
        try:
            path.mkdir(parents=True, exist_ok=True)
            # Locked first: what another writer has only begun must not look like other files.
            self._run_lock = RunLock(path)
            try:
                check_new_run_path(path, overwrite)
                first = encode_frame("info", info_to_json(self._info))
                self._journal = JournalWriter(path / JOURNAL, first)
                clear_run(path)
            except BaseException:
                self._run_lock.release()
                raise
        except OSError as error:
            raise self._unwritable(error) from error

    @property
    def info(self) -> RunInfo:
        """The facts of the run as they stand."""
        return self._info

    def op(self, op: Op) -> None:
        """Add an op; its key must be new."""
        with self._lock:
            self._check_open()
            key = op.key.row()
            if key in self._op_keys:
                raise InputError("each op once in a run", f"{op.key} again")
            self._op_keys.add(key)
            self._op_rows.append(op_row(op))
            self._append(encode_frame("op", op_to_json(op)))

    def tensor(self, tensor: Tensor, data: object = None) -> Tensor:
        """Add a tensor with its dense bytes; gives it back with its place and digest.

        `data` is any contiguous buffer (packed for four-bit types). A tensor kept as values
        needs it; of others only the digest is taken from it. A digest of our kind that the
        tensor has already is believed.
        """
        with self._lock:
            self._check_open()
            key = tensor.key.row()
            if key in self._tensor_keys:
                raise InputError("each tensor once in a run", f"{tensor.key} again")
            raw = None if data is None else _raw(data)
            digest, kind = tensor.digest, tensor.digest_kind
            if raw is not None and kind != DIGEST:
                digest, kind = xxhash.xxh3_128_hexdigest(raw.data), DIGEST
            dtype = dtype_of(tensor.dtype)
            shard, offset, nbytes = "", 0, 0
            if tensor.kept is Kept.VALUES:
                nbytes = self._check_size(tensor, dtype, raw)
            if raw is not None and nbytes:
                shard, offset = self._place(tensor, dtype, raw, digest)
            tensor = replace_fields(
                tensor,
                dtype=dtype.name,
                shard=shard,
                offset=offset,
                nbytes=nbytes,
                digest=digest,
                digest_kind=kind,
            )
            self._tensor_keys.add(key)
            self._waiting.append(tensor)
            self._flush_when_due()
            return tensor

    def has_content(self, digest: str, dtype: str, nbytes: int) -> bool:
        """Whether equal content is stored already."""
        with self._lock:
            return nbytes == 0 or (digest, dtype, nbytes) in self._held

    def _check_size(self, tensor: Tensor, dtype: DType, raw: Bytes | None) -> int:
        expected = dtype.nbytes(tensor.count)
        if raw is None or raw.size != expected:
            raise InputError(
                f"{expected} bytes of {dtype} in shape {tensor.shape} for {tensor.key}",
                "none" if raw is None else f"{raw.size}",
            )
        return expected

    def _place(self, tensor: Tensor, dtype: DType, raw: Bytes, digest: str) -> tuple[str, int]:
        """Shard and offset of these bytes, which are written unless equal ones are there."""
        content = (digest, dtype.name, raw.size)
        place = self._held.get(content)
        if place is None:
            try:
                place = self._shards.add(str(tensor.key), dtype, tensor.shape, raw)
            except OSError as error:
                raise self._failed(error) from error
            self._held[content] = place
            self.stored_bytes += raw.size
        return place

    def note(self, text: str) -> None:
        """Add what a reader of the results must know."""
        self.update(notes=(text,))

    def update(self, **changes: Any) -> None:
        """Change facts of the run; notes and other outputs are added to those there are."""
        unknown = set(changes) - _FIELDS
        if unknown:
            raise TypeError(f"RunInfo has no {', '.join(sorted(unknown))}")
        with self._lock:
            self._check_open()
            notes = changes.pop("notes", ())
            notes = (notes,) if isinstance(notes, str) else tuple(notes)
            fresh = tuple(n for n in notes if n not in self._info.notes)
            others = {**self._info.other_outputs, **changes.pop("other_outputs", {})}
            notes = self._info.notes + fresh
            self._info = replace(self._info, **changes, notes=notes, other_outputs=others)
            self._append(encode_frame("info", info_to_json(self._info)))

    def source(self, path: Path | str, text: str | None = None) -> None:
        """Keep a copy of a source file; what is no readable text file is passed over.

        `text` is its content where the file itself need not be there any more.
        """
        with self._lock:
            self._check_open()
            added = self._guarded(lambda: self._sources.add(str(path), text))
            if added:
                self._append(encode_frame("source", [str(path), added]))

    def before_finish(self, call: Callable[[], None]) -> None:
        """Have `call` hand over what it still holds when the run is finished or given up."""
        self._before_finish.append(call)

    def flush(self) -> None:
        """Everything taken so far survives the death of this process when this returns."""
        with self._lock:
            self._check_open()
            self._guarded(self._flush)

    def finish(self) -> None:
        """Write the tables and mark the run complete; nothing can be added after it."""
        try:
            for call in self._before_finish:
                call()
            with self._lock:
                self._check_open()
                self._guarded(self._shards.close)
                self._guarded(self._flush)
                self._guarded(lambda: self._conclude(replace(self._info, complete=True)))
        except SyncpointError as error:
            self.abort(str(error))
            raise

    def abort(self, reason: str) -> None:
        """Give up: what is whole stays readable, and the run says that it is not complete.

        Never raises for want of disk: the journal then goes on standing in for the tables.
        """
        for call in self._before_finish:
            try:
                call()
            except SyncpointError as error:
                reason = reason or str(error)
        with self._lock:
            if not self._open:
                return
            reason = " ".join(reason.split()) or "the writer gave up"
            info = replace(self._info, complete=False, missing=f"what came after: {reason}")
            try:
                if self._failure is None:
                    self._flush()
                else:
                    self._tensor_rows += map(tensor_row, filter(self._is_whole, self._waiting))
                self._shards.abandon()
                self._conclude(info)
            except OSError:
                self._leave_journal(info)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            if self._open:
                self.finish()
        else:
            text = str(error) if isinstance(error, SyncpointError) else repr(error)
            self.abort("it was interrupted" if isinstance(error, KeyboardInterrupt) else text)

    def _append(self, data: bytes) -> None:
        self._frames += data
        self._flush_when_due()

    def _flush_when_due(self) -> None:
        due = (
            self._shards.waiting >= WRITE_BYTES
            or len(self._frames) >= WRITE_BYTES
            or self.stored_bytes - self._flushed_bytes >= WRITE_BYTES
            or time.monotonic() - self._flushed > _FLUSH_SECONDS
        )
        if due:
            self._guarded(self._flush)

    def _flush(self) -> None:
        """Bytes, then the frames that say they are there."""
        self._shards.flush()
        tensors = [encode_frame("tensor", tensor_to_json(t)) for t in self._waiting]
        shards = [encode_frame("shard", name) for name in self._shards.closed[self._shards_told :]]
        self._journal.append(b"".join([self._frames, *tensors, *shards]))
        self._shards_told += len(shards)
        self._tensor_rows += map(tensor_row, self._waiting)
        self._waiting = []
        self._frames = bytearray()
        self._flushed = time.monotonic()
        self._flushed_bytes = self.stored_bytes

    def _is_whole(self, tensor: Tensor) -> bool:
        return not tensor.nbytes or self._shards.has(tensor.shard, tensor.offset + tensor.nbytes)

    def _conclude(self, info: RunInfo) -> None:
        """Tables, then run.json, then no journal any more."""
        tables = {
            OPS: write_ops(self.path / OPS, self._op_rows),
            TENSORS: write_tensors(self.path / TENSORS, self._tensor_rows),
        }
        self._sources.write_index()
        counts = {
            "ops": len(self._op_rows),
            "tensors": len(self._tensor_rows),
            "shards": self._shards.count,
            "bytes": self.stored_bytes,
        }
        files = {**tables, **self._sources.records}
        write_atomically(self.path / RUN_JSON, encode_run_json(info, counts, files))
        # The names of the tables must be on the disk before that of the journal is not.
        sync(self.path)
        self._info = info
        self._close()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def _leave_journal(self, info: RunInfo) -> None:
        """Where there is no room for tables, the reason goes into the journal if it can."""
        with suppress(OSError):
            self._journal.append(encode_frame("info", info_to_json(info)))
        self._info = info
        self._close()

    def _close(self) -> None:
        self._open = False
        try:
            self._journal.close()
        finally:
            self._run_lock.release()

    def _check_open(self) -> None:
        if not self._open:
            raise InputError(f"an unfinished run at {self.path}", "one that is finished")
        if self._failure is not None:
            # After a write that failed halfway, only giving up keeps the shard sound.
            raise self._failure

    def _guarded(self, action: Callable[[], T]) -> T:
        """Run what touches the disk; its failure is an error the user understands."""
        try:
            return action()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> InputError:
        """After it nothing more can be added."""
        self._failure = self._unwritable(error)
        return self._failure

    def _unwritable(self, error: OSError) -> InputError:
        cure = "free space, choose another folder, or record less"
        return cannot_write(f"the run {self.path}", error, cure)


def _raw(data: object) -> Bytes:
    """A flat view of any contiguous buffer."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(memoryview(data).cast("B"), np.uint8)  # type: ignore[arg-type]
