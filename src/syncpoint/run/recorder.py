"""The recorder that all captures talk to.

It takes ops and tensors while the model runs, copies values at once because the runtime will
overwrite them, and leaves hashing and writing to a thread behind a bounded queue. A part of
the run (a sample, a step, a rank) is recorded through `for_part`, into the same run.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from syncpoint.errors import InputError
from syncpoint.run import dtypes
from syncpoint.run.array_bytes import Array, reinterpret, to_bytes
from syncpoint.run.digests import XXH3_128
from syncpoint.run.events import NULL_SINK, EventSink, OpsRecorded
from syncpoint.run.model import (
    WHOLE,
    Kept,
    Op,
    OpKey,
    Part,
    Quantization,
    Role,
    RunInfo,
    Tensor,
    TensorKey,
    replace_fields,
)
from syncpoint.run.statistics import compute_statistics
from syncpoint.run.storage.write_queue import WriteQueue
from syncpoint.run.storage.writer import RunWriter
from syncpoint.run.user_regex import Pattern

_FIELDS = {f.name for f in fields(RunInfo)}


class Recorder:
    """Takes ops and tensors from a capture and writes them into a run."""

    def __init__(
        self,
        writer: RunWriter,
        *,
        record: Kept = Kept.VALUES,
        filter: str | re.Pattern[str] | None = None,
        max_bytes: int | None = None,
        part: Part = WHOLE,
        events: EventSink = NULL_SINK,
    ) -> None:
        """`filter` is searched in op names and module paths; other ops' tensors are left out.

        After `max_bytes` of values only statistics are kept. Model inputs are always kept as
        values, whatever the filter, the mode or the budget. `events` receives `OpsRecorded`.
        """
        self.part = part
        self._shared = _Shared(writer, record, _pattern(filter), max_bytes, events)

    @property
    def writer(self) -> RunWriter:
        """The run that is being written."""
        return self._shared.writer

    def for_part(self, part: Part) -> Recorder:
        """A recorder of another part of the same run."""
        other = object.__new__(Recorder)
        other.part = part
        other._shared = self._shared
        return other

    def op(self, op: Op) -> OpKey:
        """Record an op and get its key, with the call index that repeated names need.

        The same op seen in another part is recorded once.
        """
        shared = self._shared
        place = replace(op.key, call=0) if op.key.call else op.key
        where = (place.row(), self.part.sample, self.part.step, self.part.rank)
        call = shared.calls.get(where, 0)
        shared.calls[where] = call + 1
        key = replace(place, call=call) if call else place
        row = key.row()
        if row not in shared.wanted:
            shared.wanted[row] = shared.wants(key.op, op.module)
            made = op if key is op.key else replace(op, key=key)
            shared.pipeline.put(partial(shared.writer.op, made))
            for frame in op.source:
                self.source(frame.file)
            shared.events.send(OpsRecorded(len(shared.wanted)))
        else:
            shared.pipeline.check()
        return key

    def tensor(
        self,
        op: OpKey,
        value: NDArray[Any],
        *,
        role: Role = Role.OUTPUT,
        index: int = 0,
        dtype: str | None = None,
        name: str = "",
        strides: tuple[int, ...] | None = None,
        layout: str = "",
        device: str = "",
        alias_of: str | TensorKey = "",
        quantization: Quantization | None = None,
        requires_grad: bool | None = None,
        address: int | None = None,
    ) -> TensorKey:
        """Record a tensor; `value` is copied before this returns.

        A model output without `alias_of` is taken to be the last op output of the same part that
        has the same bits, element type and shape.

        `dtype` says what the bytes of `value` really are. For int4 and uint4 an array of
        bytes is taken as packed, two elements in each; ml_dtypes arrays are taken as they are.
        """
        shared = self._shared
        key = TensorKey(op, role, index, self.part)
        row = key.row()
        if row in shared.tensors:
            raise InputError("each tensor recorded once", f"{key} again")
        if role is not Role.MODEL_INPUT and not shared.wants_of(op):
            shared.tensors.add(row)
            shared.pipeline.check()
            return key
        array, kind = _owned(value, dtype)
        shared.tensors.add(row)
        tensor = Tensor(
            key,
            kind.name,
            array.shape,
            strides=strides,
            layout=layout,
            device=device,
            alias_of=str(alias_of),
            quantization=quantization,
            requires_grad=requires_grad,
            address=address,
            name=name,
        )
        shared.pipeline.put(partial(shared.write, tensor, array, kind), array.nbytes)
        return key

    def facts(self, **changes: Any) -> None:
        """Set facts of the run: device, precision, observer ...; notes are added."""
        unknown = set(changes) - _FIELDS
        if unknown:
            raise TypeError(f"RunInfo has no {', '.join(sorted(unknown))}")
        writer = self._shared.writer
        self._shared.pipeline.put(lambda: writer.update(**changes))

    def note(self, text: str) -> None:
        """Say what a reader of the results must know."""
        self.facts(notes=(text,))

    def source(self, path: str | Path) -> None:
        """Keep a copy of a source file with the run; of each file once, and only of text.

        Those that the ops point to are kept without being asked for.
        """
        shared = self._shared
        text = str(path)
        if text not in shared.sources:
            shared.sources.add(text)
            shared.pipeline.put(lambda: shared.writer.source(text))

    def flush(self) -> None:
        """Wait until all that was recorded is safe on disk; errors of the thread are raised."""
        self._shared.pipeline.put(self._shared.writer.flush)
        self._shared.pipeline.drain()

    def finish(self) -> None:
        """Wait for the thread and end it; the writer does so too when it finishes."""
        self._shared.pipeline.finish()


class _Shared:
    """What the recorders of all parts of a run have in common."""

    def __init__(
        self,
        writer: RunWriter,
        record: Kept,
        pattern: Pattern | re.Pattern[str] | None,
        max_bytes: int | None,
        events: EventSink,
    ) -> None:
        self.writer = writer
        self.events = events
        # By the rows of keys; the writer says why.
        self.calls: dict[tuple[Any, ...], int] = {}
        self.wanted: dict[tuple[Any, ...], bool] = {}
        """The ops recorded so far, and whether the filter lets their tensors pass."""
        self.tensors: set[tuple[Any, ...]] = set()
        self.sources: set[str] = set()
        self._results: dict[tuple[Any, ...], str] = {}
        """The last op output that has each content, by its text."""
        self._record = record
        self._pattern = pattern
        self._max_bytes = max_bytes
        self._spent = False
        self.pipeline = WriteQueue(idle=writer.flush)
        writer.update(record=record)
        writer.before_finish(self.pipeline.finish)

    def wants(self, name: str, module: str) -> bool:
        """Whether tensors of an op of this name and module are recorded."""
        search = None if self._pattern is None else self._pattern.search
        return search is None or bool(search(name) or search(module))

    def wants_of(self, op: OpKey) -> bool:
        found = self.wanted.get(op.row())
        return self.wants(op.op, "") if found is None else found

    def write(self, tensor: Tensor, array: Array, dtype: dtypes.DType) -> None:
        """Runs in the thread: hash, decide what is kept, hand to the writer."""
        raw = to_bytes(array, dtype)
        digest = xxhash.xxh3_128_hexdigest(raw.data)
        kept = self._kept(tensor.key, digest, dtype.name, raw.size)
        figures = compute_statistics(array) if kept is Kept.STATISTICS else None
        alias_of = self._alias(tensor, digest)
        tensor = replace_fields(
            tensor,
            kept=kept,
            statistics=figures,
            digest=digest,
            digest_kind=XXH3_128,
            alias_of=alias_of,
        )
        self.writer.tensor(tensor, raw if kept is Kept.VALUES else None)

    def _alias(self, tensor: Tensor, digest: str) -> str:
        """What a tensor is another name of. Who records by hand seldom says that a model output
        is what its last op gave, and then the two are counted and judged as if unrelated."""
        key = tensor.key
        content = (
            digest,
            tensor.dtype,
            tensor.shape,
            key.part.sample,
            key.part.step,
            key.part.rank,
        )
        if key.role is Role.OUTPUT:
            self._results[content] = str(key)
        elif key.role is Role.MODEL_OUTPUT and not tensor.alias_of:
            return self._results.get(content, "")
        return tensor.alias_of

    def _kept(self, key: TensorKey, digest: str, dtype: str, nbytes: int) -> Kept:
        if key.role is Role.MODEL_INPUT:
            return Kept.VALUES
        if self._record is not Kept.VALUES or self._max_bytes is None:
            return self._record
        if not self._spent and not self.writer.has_content(digest, dtype, nbytes):
            self._spent = self.writer.stored_bytes + nbytes > self._max_bytes
            if self._spent:
                self.writer.note(
                    f"the budget of {self._max_bytes} bytes was used up at {key}: "
                    "from there on statistics were kept in place of values"
                )
        return Kept.STATISTICS if self._spent else Kept.VALUES


def _pattern(filter: str | re.Pattern[str] | None) -> Pattern | re.Pattern[str] | None:
    return Pattern(filter, "--filter") if isinstance(filter, str) else filter


def _owned(value: NDArray[Any], dtype: str | None) -> tuple[Array, dtypes.DType]:
    """A dense copy of our own, in native byte order, and its element type."""
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    else:
        array = np.array(array, order="C", copy=True)
    if dtype is None:
        return array, dtypes.from_numpy(array.dtype)
    kind = dtypes.parse_dtype(dtype)
    return reinterpret(array, kind), kind
