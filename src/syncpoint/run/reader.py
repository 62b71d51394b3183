"""A run as everything else sees it: facts, ops, tensors, and their values on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from syncpoint.errors import DamagedError, FormatError, InputError
from syncpoint.run.digests import XXH3_128, compute_digest, compute_digests, is_computable
from syncpoint.run.model import Kept, Op, OpKey, RunInfo, Tensor, TensorKey, replace_fields
from syncpoint.run.storage.table_reader import Records
from syncpoint.run.storage.tensor_checksums import DEFERRED, Checksum
from syncpoint.run.value_store import FileStore, Store, Verifies

Array = NDArray[Any]

_WINDOW = 1 << 22
"""Elements hashed at once where a tensor comes without a digest."""
_VERIFIED_AT_ONCE = 1 << 20
"""Bytes up to which a tensor is verified even where only samples of it are looked at."""


class Run:
    """What one execution left behind. Values are read when asked for and never kept."""

    def __init__(
        self,
        info: RunInfo,
        ops: Sequence[Op],
        tensors: Sequence[Tensor],
        store: Store,
        *,
        path: Path | None = None,
        source: Callable[[str], str | None] | None = None,
        unverified: str = "",
    ) -> None:
        self.info = info
        self.ops = ops
        """In execution order."""
        self.tensors = tensors
        """In the order they were recorded."""
        self.path = path
        """Where it was opened; None for a run in memory."""
        self.unverified = unverified
        """Why its files could not be verified when it was opened; "" where they were, or where
        there are none of ours. Of values it says nothing."""
        self.session: object | None = None
        """The loaded model that made it, where it is still there."""
        self.keep: object = None
        """Whatever must live as long as the run, such as its temporary folder."""
        self.sampled: dict[TensorKey, Tensor] = {}
        """Tensors looked at through `values_for_sampling` that are damaged or not verified yet."""
        self._store = store
        self._verifier = store if isinstance(store, Verifies) else None
        self._source = source
        self._ops_by_key: dict[OpKey, Op] | None = None
        self._tensors_by_key: dict[TensorKey, Tensor] | None = None
        self._digest = ""

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open a run folder, finished or not; values are not touched.

        Raises InputError if there is no run at `path`, FormatError if it is damaged.
        """
        from syncpoint.run.storage.open_run import open_run

        return open_run(Path(path))

    def with_ops(self, ops: Sequence[Op]) -> Run:
        """The same tensors, and ops of which more is known, such as what they read."""
        made = copy(self)
        made.ops = ops
        made._ops_by_key = None
        made._digest = ""
        return made

    def op(self, key: OpKey) -> Op | None:
        """The op with this key."""
        if isinstance(self.ops, Records):
            return self.ops.find(key.row())
        if self._ops_by_key is None:
            self._ops_by_key = {op.key: op for op in self.ops}
        return self._ops_by_key.get(key)

    def tensor(self, key: TensorKey) -> Tensor | None:
        """The tensor with this key."""
        if isinstance(self.tensors, Records):
            return self.tensors.find(key.row())
        if self._tensors_by_key is None:
            self._tensors_by_key = {tensor.key: tensor for tensor in self.tensors}
        return self._tensors_by_key.get(key)

    def values(self, tensor: Tensor) -> Array:
        """All elements of a tensor in its shape and dtype, read-only.

        Mapped from the file where it can be; the mapping goes when the array does. Values that
        cannot be read are a FormatError, those that do not fit their checksum a DamagedError,
        values that were not kept an InputError.
        """
        self._check_kept(tensor)
        return self._store.read(tensor)

    def unverified_values(self, tensor: Tensor) -> Array:
        """The values for a caller that calls `verify` itself before it says anything of them, so
        that it can do so in another thread; deflated ones are checked all the same."""
        if isinstance(self._store, FileStore):
            return self.values(replace_fields(tensor, digest_kind=DEFERRED))
        return self.values(tensor)

    def values_for_sampling(self, tensor: Tensor) -> Array:
        """The values for a caller that looks at a few of them before others read them all.

        A large tensor is not verified yet, as that would read all of it from the disk once more.
        The caller, or whoever it works for, calls `verify` later: see `sampled`.
        """
        self._check_kept(tensor)
        if tensor.nbytes > _VERIFIED_AT_ONCE and self.has_checksum(tensor):
            self.sampled[tensor.key] = tensor
            return self.unverified_values(tensor)
        try:
            return self._store.read(tensor)
        except DamagedError:
            self.sampled[tensor.key] = tensor
            raise

    def dense_file(self, tensor: Tensor, *, verify: bool = True) -> Path | None:
        """The file in which the tensor's bytes lie dense at `tensor.offset`, for whoever maps
        them piece by piece; None where only `values` can tell.

        Without `verify` the caller verifies the tensor itself, while its pages are in memory.
        """
        self._check_kept(tensor)
        if not isinstance(self._store, FileStore):
            return None
        path = self._store.dense_file(tensor)
        if path is not None and verify:
            self._store.verify(tensor)
        return path

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the values were recorded with a checksum that can be computed here."""
        if tensor.kept is not Kept.VALUES or self._verifier is None:
            return False
        return self._verifier.has_checksum(tensor)

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """The checksum of a range of the tensor's file that covers its values, if there is one."""
        return self._store.checksum(tensor) if isinstance(self._store, FileStore) else None

    def verify(self, tensor: Tensor, values: Array | None = None) -> bool:
        """Check the values against their checksum, window by window; False where there is none.

        `values` may be what the method of that name gave, so that they are not mapped twice.
        Raises DamagedError where they do not fit, FormatError where they cannot be read.
        """
        if self._verifier is None or not self.has_checksum(tensor):
            return False
        content = None
        whole = values is not None and values.nbytes == tensor.nbytes
        # Only what lies in the file as it is read has the bytes that the checksum is of.
        if values is not None and whole and self.dense_file(tensor, verify=False) is not None:
            content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._verifier.verify(tensor, content)
        return True

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Elements `start` to `stop` in row-major order, mapped on their own, read-only."""
        self._check_kept(tensor)
        if not 0 <= start <= stop <= tensor.count:
            raise InputError(
                f"a window inside the {tensor.count} elements of {tensor.key}", f"{start}:{stop}"
            )
        return self._store.window(tensor, start, stop)

    def source_text(self, file: str) -> str | None:
        """The source file as it was when the run was recorded, if the run has a copy."""
        return None if self._source is None else self._source(file)

    def digest(self) -> str:
        """Identifies the content: equal for runs with the same ops, tensors and values."""
        if not self._digest:
            state = xxhash.xxh3_128()
            for op in self.ops:
                state.update(f"{op.key!r} {op.type} {op.inputs!r}\n".encode("utf-8", "replace"))
            for tensor in self.tensors:
                facts = f"{tensor.key!r} {tensor.dtype} {tensor.shape} {tensor.kept}"
                state.update(facts.encode("utf-8", "replace"))
                state.update(self.content_id(tensor).encode())
            self._digest = state.hexdigest()
        return self._digest

    def is_intact(self, tensor: Tensor) -> bool:
        """Whether the bytes are those that were recorded; True where there is no telling."""
        try:
            self.verify(tensor)
        except FormatError:
            return False
        return True

    def digests(self, tensor: Tensor, kind: str) -> frozenset[str]:
        """The digest of this kind, as it was recorded or else of the values; none where neither
        can be had. There are two of a bf16 tensor where tools do not agree on its
        bytes.

        Raises FormatError where values cannot be read.
        """
        if tensor.digest and tensor.digest_kind == kind:
            return frozenset({tensor.digest.lower()})
        if tensor.kept is not Kept.VALUES or not is_computable(kind):
            return frozenset()
        return compute_digests(kind, tensor.dtype, lambda: self._windows(tensor))

    def content_id(self, tensor: Tensor) -> str:
        """Identifies the values of one tensor; they are read where it comes without a digest."""
        if tensor.digest:
            return f"{tensor.digest_kind} {tensor.digest}"
        if tensor.kept is not Kept.VALUES:
            return repr(tensor.statistics)
        return self._hash(tensor)

    def _hash(self, tensor: Tensor) -> str:
        try:
            return f"{XXH3_128} {compute_digest(XXH3_128, self._windows(tensor), tensor.dtype)}"
        except FormatError as error:
            return f"unreadable {error.found}"

    def _windows(self, tensor: Tensor) -> Iterator[Array]:
        # An even window: a packed element never shares its byte with the next window.
        for start in range(0, tensor.count, _WINDOW):
            yield self.window(tensor, start, min(start + _WINDOW, tensor.count))

    def _check_kept(self, tensor: Tensor) -> None:
        if tensor.kept is not Kept.VALUES:
            raise InputError(
                f"recorded values of {tensor.key}",
                f"only its {tensor.kept}",
                "record it with --record values",
            )

    def __repr__(self) -> str:
        what = self.info.model or (self.path.name if self.path else "in memory")
        return f"<Run {what}: {len(self.ops)} ops, {len(self.tensors)} tensors>"


def in_memory(info: RunInfo, ops: Sequence[Op], values: Sequence[tuple[Tensor, Array]]) -> Run:
    """A run that never touches the disk."""
    from syncpoint.run.value_store import MemoryStore

    arrays = {tensor.key: np.asarray(array) for tensor, array in values}
    return Run(info, ops, [tensor for tensor, _ in values], MemoryStore(arrays))
