"""`Run`: read the ops, tensors and facts of one execution, open or in memory; values, windows,
digests, content id and verification on demand."""

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

_WINDOW_ELEMENTS = 1 << 22
"""Elements per window when a tensor without a digest is hashed."""
_MAX_EAGER_BYTES = 1 << 20
"""Size up to which a tensor is verified at once even if only samples of it are read."""


class Run:
    """The record of one execution. Values are read on demand and not cached."""

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
        """The path that it was opened from; None for a run in memory."""
        self.unverified = unverified
        """Why its files could not be verified when it was opened; "" if they were verified, or if
        none of them has our format. This does not cover the values."""
        self.session: object | None = None
        """The loaded model that produced it, if it still exists."""
        self.keep: object = None
        """An object that must live as long as the run, such as its temporary folder."""
        self.sampled: dict[TensorKey, Tensor] = {}
        """Tensors read through `values_for_sampling` that are damaged or not verified yet."""
        self._store = store
        self._verifier = store if isinstance(store, Verifies) else None
        self._source = source
        self._ops_by_key: dict[OpKey, Op] | None = None
        self._tensors_by_key: dict[TensorKey, Tensor] | None = None
        self._digest = ""

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open a run folder, finished or not; values are not read.

        Raises InputError if there is no run at `path`, FormatError if it is damaged.
        """
        from syncpoint.run.storage.open_run import open_run

        return open_run(Path(path))

    def with_ops(self, ops: Sequence[Op]) -> Run:
        """Copy the run with other ops, for example ops with more known inputs."""
        run = copy(self)
        run.ops = ops
        run._ops_by_key = None
        run._digest = ""
        return run

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

        Mapped from the file if possible; the mapping is freed with the array. Raises FormatError
        for values that cannot be read, DamagedError for values that do not match their checksum,
        InputError for values that were not recorded.
        """
        self._check_recorded(tensor)
        return self._store.read(tensor)

    def unverified_values(self, tensor: Tensor) -> Array:
        """The values without verification, for a caller that calls `verify` itself before it uses
        a result, so that it can do so in another thread. Deflated values are always verified."""
        if isinstance(self._store, FileStore):
            return self.values(replace_fields(tensor, digest_kind=DEFERRED))
        return self.values(tensor)

    def values_for_sampling(self, tensor: Tensor) -> Array:
        """The values for a caller that reads only a few of them, before others read them all.

        A large tensor is not verified yet, as that would read all of it from the disk one more
        time. The caller must make sure that `verify` is called later: see `sampled`.
        """
        self._check_recorded(tensor)
        if tensor.nbytes > _MAX_EAGER_BYTES and self.has_checksum(tensor):
            self.sampled[tensor.key] = tensor
            return self.unverified_values(tensor)
        try:
            return self._store.read(tensor)
        except DamagedError:
            self.sampled[tensor.key] = tensor
            raise

    def dense_file(self, tensor: Tensor, *, verify: bool = True) -> Path | None:
        """The file that holds the tensor's dense bytes at `tensor.offset`, for callers that map
        them piece by piece; None if the values can only be read through `values`.

        Without `verify` the caller verifies the tensor itself, while its pages are in memory.
        """
        self._check_recorded(tensor)
        if not isinstance(self._store, FileStore):
            return None
        path = self._store.dense_file(tensor)
        if path is not None and verify:
            self._store.verify(tensor)
        return path

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the values have a recorded checksum of a supported kind."""
        if tensor.kept is not Kept.VALUES or self._verifier is None:
            return False
        return self._verifier.has_checksum(tensor)

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """The checksum of a range of the tensor's file that covers its values, if there is one."""
        return self._store.checksum(tensor) if isinstance(self._store, FileStore) else None

    def verify(self, tensor: Tensor, values: Array | None = None) -> bool:
        """Check the values against their checksum, window by window; False if there is none.

        `values` may be the result of the method of that name, so that they are not mapped twice.
        Raises DamagedError if they do not match, FormatError if they cannot be read.
        """
        if self._verifier is None or not self.has_checksum(tensor):
            return False
        content = None
        is_complete = values is not None and values.nbytes == tensor.nbytes
        # The checksum is of the bytes in the file, so they must equal the bytes of the values.
        if values is not None and is_complete and self.dense_file(tensor, verify=False) is not None:
            content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._verifier.verify(tensor, content)
        return True

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Elements `start` to `stop` in row-major order, mapped on their own, read-only."""
        self._check_recorded(tensor)
        if not 0 <= start <= stop <= tensor.count:
            raise InputError(
                f"the window {start}:{stop} is outside of {tensor.key}, "
                f"which has {tensor.count} elements"
            )
        return self._store.window(tensor, start, stop)

    def source_text(self, file: str) -> str | None:
        """The source file at the time of the recording; None if the run has no copy."""
        return None if self._source is None else self._source(file)

    def digest(self) -> str:
        """A digest of the content: equal for runs with the same ops, tensors and values."""
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
        """Whether a tensor of this run has the bytes that were recorded; True if it has no
        checksum."""
        try:
            self.verify(tensor)
        except FormatError:
            return False
        return True

    def digests(self, tensor: Tensor, kind: str) -> frozenset[str]:
        """The digest of this kind, recorded or computed from the values; empty if neither is
        possible. A bf16 tensor may have two, since tools do not agree on its bytes.

        Raises FormatError if the values cannot be read.
        """
        if tensor.digest and tensor.digest_kind == kind:
            return frozenset({tensor.digest.lower()})
        if tensor.kept is not Kept.VALUES or not is_computable(kind):
            return frozenset()
        return compute_digests(kind, tensor.dtype, lambda: self._windows(tensor))

    def content_id(self, tensor: Tensor) -> str:
        """A text that identifies the values of a tensor; they are read only if it has no digest."""
        if tensor.digest:
            return f"{tensor.digest_kind} {tensor.digest}"
        if tensor.kept is not Kept.VALUES:
            return repr(tensor.statistics)
        return self._hash(tensor)

    def _hash(self, tensor: Tensor) -> str:
        try:
            return f"{XXH3_128} {compute_digest(XXH3_128, self._windows(tensor), tensor.dtype)}"
        except FormatError as error:
            return f"unreadable {error.problem}"

    def _windows(self, tensor: Tensor) -> Iterator[Array]:
        # An even number of elements: no byte of packed elements belongs to two windows.
        for start in range(0, tensor.count, _WINDOW_ELEMENTS):
            yield self.window(tensor, start, min(start + _WINDOW_ELEMENTS, tensor.count))

    def _check_recorded(self, tensor: Tensor) -> None:
        if tensor.kept is not Kept.VALUES:
            raise InputError(
                f"the values of {tensor.key} were not recorded, only its {tensor.kept}",
                cure="record it with --record values",
            )

    def __repr__(self) -> str:
        name = self.info.model or (self.path.name if self.path else "in memory")
        return f"<Run {name}: {len(self.ops)} ops, {len(self.tensors)} tensors>"


def in_memory(info: RunInfo, ops: Sequence[Op], values: Sequence[tuple[Tensor, Array]]) -> Run:
    """Create a run that is only in memory."""
    from syncpoint.run.value_store import MemoryStore

    arrays = {tensor.key: np.asarray(array) for tensor, array in values}
    return Run(info, ops, [tensor for tensor, _ in values], MemoryStore(arrays))
