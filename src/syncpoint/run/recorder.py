"""`Recorder`, with which every capture records ops and tensors: copies values, filters by pattern,
finds aliases, keeps values, statistics or digest.

It copies values at once, because the runtime will overwrite them, and leaves hashing and writing
to a thread with a bounded queue. A part of the run (a sample, a step, a rank) is recorded through
`for_part`, into the same run.
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

_INFO_FIELDS = {f.name for f in fields(RunInfo)}


class Recorder:
    """Records the ops and tensors of a capture into a run."""

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
        """`filter` is searched in op names and module paths; tensors of other ops are left out.

        After `max_bytes` of values only statistics are recorded. Model inputs are always recorded
        as values, whatever filter, mode and budget are. `events` receives `OpsRecorded`.
        """
        self.part = part
        self._shared = _SharedState(writer, record, _compile_filter(filter), max_bytes, events)

    @property
    def writer(self) -> RunWriter:
        """The run that is being written."""
        return self._shared.writer

    def for_part(self, part: Part) -> Recorder:
        """Return a recorder of another part of the same run."""
        other = object.__new__(Recorder)
        other.part = part
        other._shared = self._shared
        return other

    def op(self, op: Op) -> OpKey:
        """Record an op; returns its key, with a call index if its name is repeated.

        An op that occurs in several parts is recorded once.
        """
        shared = self._shared
        first_key = replace(op.key, call=0) if op.key.call else op.key
        counter = (first_key.row(), self.part.sample, self.part.step, self.part.rank)
        call = shared.calls.get(counter, 0)
        shared.calls[counter] = call + 1
        key = replace(first_key, call=call) if call else first_key
        row = key.row()
        if row not in shared.op_filter:
            shared.op_filter[row] = shared.matches_filter(key.op, op.module)
            numbered_op = op if key is op.key else replace(op, key=key)
            shared.queue.put(partial(shared.writer.op, numbered_op))
            for frame in op.source:
                self.source(frame.file)
            shared.events.send(OpsRecorded(len(shared.op_filter)))
        else:
            shared.queue.check()
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

        A model output without `alias_of` becomes an alias of the last op output of the same part
        that has the same bits, element type and shape.

        `dtype` is the real element type of the bytes of `value`. For int4 and uint4 an array of
        bytes is treated as packed, two elements per byte; ml_dtypes arrays are used unchanged.
        """
        shared = self._shared
        key = TensorKey(op, role, index, self.part)
        row = key.row()
        if row in shared.tensors:
            raise InputError(
                f"the tensor {key} is recorded twice",
                cure="record the second one under a different index",
            )
        if role is not Role.MODEL_INPUT and not shared.records_tensors_of(op):
            shared.tensors.add(row)
            shared.queue.check()
            return key
        array, kind = _copy_value(value, dtype)
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
        shared.queue.put(partial(shared.write, tensor, array, kind), array.nbytes)
        return key

    def facts(self, **changes: Any) -> None:
        """Set facts of the run: device, precision, observer ...; notes are appended."""
        unknown = set(changes) - _INFO_FIELDS
        if unknown:
            raise TypeError(f"RunInfo has no {', '.join(sorted(unknown))}")
        writer = self._shared.writer
        self._shared.queue.put(lambda: writer.update(**changes))

    def note(self, text: str) -> None:
        """Add a note for readers of the results."""
        self.facts(notes=(text,))

    def source(self, path: str | Path) -> None:
        """Copy a source file into the run; each file once, and only text files.

        The files in the source stacks of ops are copied automatically.
        """
        shared = self._shared
        text = str(path)
        if text not in shared.sources:
            shared.sources.add(text)
            shared.queue.put(lambda: shared.writer.source(text))

    def flush(self) -> None:
        """Wait until everything recorded is on the disk; raises the errors of the thread."""
        self._shared.queue.put(self._shared.writer.flush)
        self._shared.queue.drain()

    def finish(self) -> None:
        """Wait for the thread and end it; the writer also does this when it finishes."""
        self._shared.queue.finish()


class _SharedState:
    """The state that the recorders of all parts of a run share."""

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
        # Keyed by the rows of keys; see the writer for the reason.
        self.calls: dict[tuple[Any, ...], int] = {}
        self.op_filter: dict[tuple[Any, ...], bool] = {}
        """The ops recorded so far, and whether they match the filter."""
        self.tensors: set[tuple[Any, ...]] = set()
        self.sources: set[str] = set()
        self._output_by_content: dict[tuple[Any, ...], str] = {}
        """The key of the last op output with each content, as text."""
        self._record = record
        self._pattern = pattern
        self._max_bytes = max_bytes
        self._is_budget_spent = False
        self.queue = WriteQueue(idle=writer.flush)
        writer.update(record=record)
        writer.before_finish(self.queue.finish)

    def matches_filter(self, name: str, module: str) -> bool:
        """Whether tensors of an op of this name and module are recorded."""
        search = None if self._pattern is None else self._pattern.search
        return search is None or bool(search(name) or search(module))

    def records_tensors_of(self, op: OpKey) -> bool:
        """Whether tensors of this op are recorded."""
        matches = self.op_filter.get(op.row())
        return self.matches_filter(op.op, "") if matches is None else matches

    def write(self, tensor: Tensor, array: Array, dtype: dtypes.DType) -> None:
        """Hash a tensor, decide what to record of it, and pass it to the writer. Runs in the
        thread."""
        raw = to_bytes(array, dtype)
        digest = xxhash.xxh3_128_hexdigest(raw.data)
        record = self._choose_record(tensor.key, digest, dtype.name, raw.size)
        statistics = compute_statistics(array) if record is Kept.STATISTICS else None
        alias_of = self._find_alias(tensor, digest)
        tensor = replace_fields(
            tensor,
            kept=record,
            statistics=statistics,
            digest=digest,
            digest_kind=XXH3_128,
            alias_of=alias_of,
        )
        self.writer.tensor(tensor, raw if record is Kept.VALUES else None)

    def _find_alias(self, tensor: Tensor, digest: str) -> str:
        """Find the tensor that this one is an alias of. Manual recordings seldom say that a model
        output is the output of an op; without the alias the two would be counted twice."""
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
            self._output_by_content[content] = str(key)
        elif key.role is Role.MODEL_OUTPUT and not tensor.alias_of:
            return self._output_by_content.get(content, "")
        return tensor.alias_of

    def _choose_record(self, key: TensorKey, digest: str, dtype: str, nbytes: int) -> Kept:
        if key.role is Role.MODEL_INPUT:
            return Kept.VALUES
        if self._record is not Kept.VALUES or self._max_bytes is None:
            return self._record
        if not self._is_budget_spent and not self.writer.has_content(digest, dtype, nbytes):
            self._is_budget_spent = self.writer.stored_bytes + nbytes > self._max_bytes
            if self._is_budget_spent:
                self.writer.note(
                    f"the budget of {self._max_bytes} bytes was used up at {key}: "
                    "after it only statistics were recorded, no values"
                )
        return Kept.STATISTICS if self._is_budget_spent else Kept.VALUES


def _compile_filter(filter: str | re.Pattern[str] | None) -> Pattern | re.Pattern[str] | None:
    return Pattern(filter, "--filter") if isinstance(filter, str) else filter


def _copy_value(value: NDArray[Any], dtype: str | None) -> tuple[Array, dtypes.DType]:
    """Return a dense copy in native byte order, and its element type."""
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    else:
        array = np.array(array, order="C", copy=True)
    if dtype is None:
        return array, dtypes.from_numpy(array.dtype)
    kind = dtypes.parse_dtype(dtype)
    return reinterpret(array, kind), kind
