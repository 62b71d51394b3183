"""`RunWriter`: writes shards, journal, tables, `run.json` so that the run stays readable if killed;
errors after finish or failure; aborts and cleans up.

Bytes first, then the journal frame that refers to them; shards get their final name only when
complete; tables and `run.json` last, each whole or absent. See docs/formats.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
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
from syncpoint.run.model import Kept, Op, OpKey, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.storage.folder import check_new_run_path, clear_run
from syncpoint.run.storage.journal import JOURNAL, JournalWriter, encode_frame
from syncpoint.run.storage.record_json import op_to_json, tensor_to_json
from syncpoint.run.storage.run_json import RUN_JSON, encode_run_json, info_to_json
from syncpoint.run.storage.shards import WRITE_BYTES, ShardWriter
from syncpoint.run.storage.source_code import SourceWriter
from syncpoint.run.storage.table_columns import OPS, TENSORS, op_row, tensor_row
from syncpoint.run.storage.table_writer import write_ops, write_tensors

_FLUSH_SECONDS = 0.5
"""Maximum time that a recorded tensor stays in memory only."""
T = TypeVar("T")
_INFO_FIELDS = {f.name for f in fields(RunInfo)}


class RunWriter:
    """The only writer of the run at `path`. It may be called from any thread.

    As a context manager it finishes the run at the end of the block; an exception inside leaves a
    readable run that is marked as incomplete, with the reason.
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
        # Rows and plain tuples: the cyclic garbage collector would visit every record and every
        # key again and again, at a cost that grows with the run.
        self._op_keys: set[tuple[Any, ...]] = set()
        self._op_rows: list[tuple[Any, ...]] = []
        self._tensor_keys: set[tuple[Any, ...]] = set()
        self._tensor_rows: list[tuple[Any, ...]] = []
        self._stored_content: dict[tuple[str, str, int], tuple[str, int]] = {}
        """Shard and offset of stored content, by digest, dtype and size."""
        self._unflushed: list[Tensor] = []
        """Tensors whose bytes are not in their file yet."""
        self._frames = bytearray()
        self._flushed = time.monotonic()
        self._flushed_bytes = 0
        self._before_finish: list[Callable[[], None]] = []
        self._open = True
        self._failure: InputError | None = None
        self._journaled_shards = 0
        self.stored_bytes = 0
        """Bytes of values added so far; equal content counts once."""

    def _prepare(self, overwrite: bool) -> None:
        """Create or take over the folder, lock it and start the journal."""
        path = self.path
        try:
            self._is_new_folder = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            # Lock first: files of another writer that just started are not foreign files.
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
            raise self._write_error(error) from error

    @property
    def info(self) -> RunInfo:
        """The current facts of the run."""
        return self._info

    def op(self, op: Op) -> None:
        """Add an op; its key must be new."""
        with self._lock:
            self._check_open()
            self._op_keys.add(_new_row(op.key, self._op_keys, "op", "name"))
            self._op_rows.append(op_row(op))
            self._append(encode_frame("op", op_to_json(op)))

    def tensor(self, tensor: Tensor, data: object = None) -> Tensor:
        """Add a tensor with its dense bytes; returns it with shard, offset and digest.

        `data` is any contiguous buffer (packed for four-bit types). It is required for a tensor
        that is recorded as values; for others only the digest is computed from it. If the tensor
        has an xxh3-128 digest already, that is used.
        """
        with self._lock:
            self._check_open()
            key = _new_row(tensor.key, self._tensor_keys, "tensor", "index")
            raw = None if data is None else _flat_bytes(data)
            digest, kind = tensor.digest, tensor.digest_kind
            if raw is not None and kind != DIGEST:
                digest, kind = xxhash.xxh3_128_hexdigest(raw.data), DIGEST
            dtype = dtype_of(tensor.dtype)
            shard, offset, nbytes = "", 0, 0
            if tensor.kept is Kept.VALUES:
                nbytes = self._check_size(tensor, dtype, raw)
            if raw is not None and nbytes:
                shard, offset = self._store(tensor, dtype, raw, digest)
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
            self._unflushed.append(tensor)
            self._flush_when_due()
            return tensor

    def has_content(self, digest: str, dtype: str, nbytes: int) -> bool:
        """Whether equal content is stored already."""
        with self._lock:
            return nbytes == 0 or (digest, dtype, nbytes) in self._stored_content

    def _check_size(self, tensor: Tensor, dtype: DType, raw: Bytes | None) -> int:
        expected = dtype.nbytes(tensor.count)
        if raw is None or raw.size != expected:
            size = "no bytes" if raw is None else f"{raw.size} bytes"
            raise InputError(
                f"{tensor.key} has {size}, but {dtype} of shape {tensor.shape} "
                f"takes {expected} bytes"
            )
        return expected

    def _store(self, tensor: Tensor, dtype: DType, raw: Bytes, digest: str) -> tuple[str, int]:
        """Write these bytes unless equal ones are stored; returns their shard and offset."""
        content = (digest, dtype.name, raw.size)
        location = self._stored_content.get(content)
        if location is None:
            try:
                location = self._shards.add(str(tensor.key), dtype, tensor.shape, raw)
            except OSError as error:
                raise self._mark_failed(error) from error
            self._stored_content[content] = location
            self.stored_bytes += raw.size
        return location

    def note(self, text: str) -> None:
        """Add a note for readers of the results."""
        self.update(notes=(text,))

    def update(self, **changes: Any) -> None:
        """Change facts of the run; notes and other outputs are added to the existing ones."""
        unknown = set(changes) - _INFO_FIELDS
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
        """Copy a source file into the run; a file that is not readable text is skipped.

        `text` is its content if the file itself may no longer exist.
        """
        with self._lock:
            self._check_open()
            name = self._guarded(lambda: self._sources.add(str(path), text))
            if name:
                self._append(encode_frame("source", [str(path), name]))

    def before_finish(self, call: Callable[[], None]) -> None:
        """Register a function that passes on what it still holds, before the run is finished or
        aborted."""
        self._before_finish.append(call)

    def flush(self) -> None:
        """Write everything added so far to the files; it then survives the end of this process."""
        with self._lock:
            self._check_open()
            self._guarded(self._flush)

    def finish(self) -> None:
        """Write the tables and mark the run as complete; nothing can be added afterwards."""
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
        """Stop writing: what is complete stays readable, and the run is marked as incomplete. If
        nothing was recorded, nothing is left: another try needs no overwriting.

        Never raises if the disk is full: the journal then stays in place of the tables.
        """
        for call in self._before_finish:
            try:
                call()
            except SyncpointError as error:
                reason = reason or str(error)
        with self._lock:
            if not self._open:
                return
            if not self._op_keys and not self._tensor_keys:
                self._discard()
                return
            reason = " ".join(reason.split()) or "the writer was stopped"
            info = replace(self._info, complete=False, missing=f"what came after: {reason}")
            try:
                if self._failure is None:
                    self._flush()
                else:
                    self._tensor_rows += map(tensor_row, filter(self._is_stored, self._unflushed))
                self._shards.abandon()
                self._conclude(info)
            except OSError:
                self._leave_journal(info)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
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
            self._shards.buffered_bytes >= WRITE_BYTES
            or len(self._frames) >= WRITE_BYTES
            or self.stored_bytes - self._flushed_bytes >= WRITE_BYTES
            or time.monotonic() - self._flushed > _FLUSH_SECONDS
        )
        if due:
            self._guarded(self._flush)

    def _flush(self) -> None:
        """Write the bytes, then the frames that refer to them."""
        self._shards.flush()
        tensors = [encode_frame("tensor", tensor_to_json(t)) for t in self._unflushed]
        new_shards = self._shards.closed[self._journaled_shards :]
        shards = [encode_frame("shard", name) for name in new_shards]
        self._journal.append(b"".join([self._frames, *tensors, *shards]))
        self._journaled_shards += len(shards)
        self._tensor_rows += map(tensor_row, self._unflushed)
        self._unflushed = []
        self._frames = bytearray()
        self._flushed = time.monotonic()
        self._flushed_bytes = self.stored_bytes

    def _is_stored(self, tensor: Tensor) -> bool:
        return not tensor.nbytes or self._shards.has(tensor.shard, tensor.offset + tensor.nbytes)

    def _conclude(self, info: RunInfo) -> None:
        """Write the tables, then run.json, then remove the journal."""
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
        # The names of the tables must be on the disk before the journal is removed.
        sync(self.path)
        self._info = info
        self._close()
        (self.path / JOURNAL).unlink(missing_ok=True)

    def _discard(self) -> None:
        """Remove the files of this run, and its folder if that is new and nothing else is in it."""
        with suppress(OSError):
            self._shards.abandon()
            clear_run(self.path)
            (self.path / JOURNAL).unlink(missing_ok=True)
        self._close()
        if self._is_new_folder:
            with suppress(OSError):
                self.path.rmdir()

    def _leave_journal(self, info: RunInfo) -> None:
        """If there is no space for the tables, try to write the reason to the journal."""
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
            raise InputError(
                f"nothing can be added to {self.path}: the run is finished",
                cure="record into another run",
            )
        if self._failure is not None:
            # After a write that failed halfway, nothing more may be written to the shard.
            raise self._failure

    def _guarded(self, action: Callable[[], T]) -> T:
        """Run an action that writes to the disk; turn an OSError into an error for users."""
        try:
            return action()
        except OSError as error:
            raise self._mark_failed(error) from error

    def _mark_failed(self, error: OSError) -> InputError:
        """Remember the failure: nothing more can be added after it."""
        self._failure = self._write_error(error)
        return self._failure

    def _write_error(self, error: OSError) -> InputError:
        cure = "free space, choose another folder, or record less"
        return cannot_write(f"the run {self.path}", error, cure)


def _new_row(
    key: OpKey | TensorKey, rows: AbstractSet[tuple[Any, ...]], what: str, field: str
) -> tuple[Any, ...]:
    """The fields of a key; an InputError if `rows` has them already."""
    row = key.row()
    if row in rows:
        raise InputError(
            f"the {what} {key} is recorded twice",
            cure=f"record the second one under a different {field}",
        )
    return row


def _flat_bytes(data: object) -> Bytes:
    """Return a flat view of any contiguous buffer."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(memoryview(data).cast("B"), np.uint8)  # type: ignore[arg-type]
