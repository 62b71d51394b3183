"""Recording by hand: any engine, any loop, tensor by tensor, into an ordinary run.

    with sp.record("engine.run", rank=0) as rec:
        rec.attach(module)
        rec.tensor("layer3.attn", value, step=i, dims="b s h(tp) d")

Values are copied at once and written by a thread; the engine goes on with its own. What a program
that raises or dies has recorded so far is a run that opens and says that it is incomplete.
"""

from __future__ import annotations

import operator
import os
import platform
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from syncpoint.errors import InputError, SyncpointError
from syncpoint.files.writer_lock import AnotherWriter
from syncpoint.run.dims import Dims
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.dtypes import from_numpy as dtype_of
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, RunInfo, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.arrays import RecordableArray, to_recordable

if TYPE_CHECKING:
    from syncpoint.runtimes.torch.module_hooks import Attachment

_GIVEN = (Role.MODEL_INPUT, Role.PARAMETER, Role.STATE)
"""What an execution is given: no op makes it."""


class Recording:
    """A run that is being recorded by hand; `syncpoint.record` makes one.

    Calls may come from any thread of the process that made it. As a context manager it is closed
    at the end of the block; by an exception the run ends as incomplete, and says why.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        rank: int | None = None,
        record: str = "values",
        filter: str | None = None,
        max_bytes: int | None = None,
        overwrite: bool = False,
        model: str = "",
        runtime: str = "by hand",
    ) -> None:
        """The options are those of `syncpoint.record`."""
        if record not in set(Kept):
            raise InputError(f"record to be one of {', '.join(Kept)}", repr(record))
        self._rank = _counted(rank, "rank")
        self.path = _path_of(Path(path), self._rank)
        """Where the run is: with a rank, `engine.rank3.run` for `engine.run`."""
        info = RunInfo(
            model=model or self.path.name,
            runtime=runtime,
            options={} if rank is None else {"rank": self._rank},
            record=Kept(record),
            environment=_environment(),
        )
        self._writer = _writer(self.path, info, overwrite, rank is None)
        self._recorder = Recorder(
            self._writer, record=Kept(record), filter=filter, max_bytes=max_bytes
        )
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._open = True
        self._step: int | None = None
        """What `step()` counts."""
        self._called: int | None = None
        """The step of the attached module that was called last."""
        self._attached: dict[str, Attachment] = {}
        self._given: Counter[tuple[str, Part, Role]] = Counter()
        """How often a name was recorded in a role that no op stands for."""
        self._outputs: Counter[Part] = Counter()
        self._last: dict[tuple[str, Part], TensorKey] = {}
        self._devices: dict[str, None] = {}
        self._computed: Counter[str] = Counter()
        """Elements recorded, by floating-point type."""

    def tensor(
        self,
        name: str,
        value: Any,
        *,
        step: int | None = None,
        sample: int | None = None,
        dims: str | None = None,
        role: str = "output",
        type: str = "",
        module: str = "",
        inputs: Iterable[TensorKey | str] = (),
    ) -> TensorKey:
        """Record one tensor: the output of an op called `name`, or what `role` says.

        `step` is by default that of `step()`, else that of the attached module called last. The
        same name again in one step and sample is the next call of that op. `dims` names the axes.
        The key that is returned may be given as one of the `inputs` of later ops.
        """
        known = _role(role)
        with self._lock:
            self._check_open()
            part = self._part(step, sample)
            value, layout = self._read(name, value, dims)
            if known in _GIVEN:
                call = self._given[name, part, known]
                self._given[name, part, known] += 1
                return self._write(OpKey(name, call), value, known, 0, part, name, layout)
            key = self._op(name, part, type, module, inputs, {})
            index = 0
            if known is Role.MODEL_OUTPUT:
                index = self._outputs[part]
                self._outputs[part] += 1
            path = name if known is Role.MODEL_OUTPUT else ""
            return self._write(key, value, known, index, part, path, layout)

    def op(
        self,
        name: str,
        outputs: Iterable[Any],
        *,
        inputs: Iterable[TensorKey | str] = (),
        type: str = "",
        attributes: Mapping[str, Any] | None = None,
        module: str = "",
        dims: Iterable[str | None] | None = None,
        step: int | None = None,
        sample: int | None = None,
    ) -> list[TensorKey]:
        """Record one op with all its outputs, for those who know what it read.

        `inputs` are keys that `tensor` and `op` returned, or names, which stand for what was last
        recorded under them in this part.
        """
        values = list(outputs)
        named = [None] * len(values) if dims is None else list(dims)
        if len(named) != len(values):
            raise InputError(f"names of axes for {len(values)} outputs", f"for {len(named)}")
        with self._lock:
            self._check_open()
            part = self._part(step, sample)
            read = [self._read(name, v, d) for v, d in zip(values, named, strict=True)]
            key = self._op(name, part, type, module, inputs, attributes or {})
            return [
                self._write(key, value, Role.OUTPUT, index, part, "", layout)
                for index, (value, layout) in enumerate(read)
            ]

    def attach(self, module: Any, name: str = "", *, steps: bool = True) -> None:
        """Record every call of an nn.Module and of all modules inside it until the end.

        Each call of `module` is a step, unless `step()` counts them or `steps` is false: then
        calls are told apart by their call index. Several modules are kept apart by `name`.
        """
        with self._lock:
            self._check_open()
            if name in self._attached:
                raise InputError(
                    "a name of its own for each attached module",
                    f"{name!r} again",
                    'give one: attach(module, "draft")',
                )
            from syncpoint.runtimes.torch.module_hooks import Attachment

            self._attached[name] = Attachment(self, module, name, steps)

    def step(self, number: int | None = None) -> int:
        """Begin the next step, or the one with this number; what follows belongs to it."""
        with self._lock:
            self._check_open()
            following = 0 if self._step is None else self._step + 1
            self._step = following if number is None else _counted(number, "step")
            return self._step

    def note(self, text: str) -> None:
        """Say what a reader of the results must know."""
        with self._lock:
            self._check_open()
            self._recorder.note(text)

    def flush(self) -> None:
        """Wait until all that was recorded is safe on disk."""
        with self._lock:
            self._check_open()
            self._recorder.flush()

    def close(self) -> None:
        """Detach from all modules and finish the run; harmless when repeated."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.getpid() != self._process:
            return  # a forked child: the run is its parent's
        with self._lock:
            if not self._open:
                return
            self._open = False
            for attached in self._attached.values():
                attached.detach()
            try:
                self._recorder.facts(
                    device="+".join(self._devices),
                    precision="+".join(name for name, _ in self._computed.most_common()),
                )
            finally:
                self._writer.__exit__(kind, error, trace)

    # What the hooks of attached modules call.

    @property
    def lock(self) -> threading.RLock:
        """Held while an op and its tensors are recorded, so that they stay together."""
        return self._lock

    @property
    def listening(self) -> bool:
        """Whether this process still records."""
        return self._open and os.getpid() == self._process

    def begin(self, step: int | None) -> Part:
        """The part of a call that begins, and that is the step `step` unless `step()` counts."""
        if step is not None:
            self._called = step
        return self._part(step if self._step is None else self._step, None)

    @property
    def whole(self) -> Part:
        """The part of what belongs to no step, such as parameters."""
        return Part(rank=self._rank)

    def add_op(self, op: Op, part: Part) -> OpKey:
        """Record an op; gives its key with the call index."""
        return self._recorder.for_part(part).op(op)

    def add_tensor(
        self,
        op: OpKey,
        value: Any,
        *,
        part: Part,
        role: Role = Role.OUTPUT,
        index: int = 0,
        name: str = "",
        alias_of: str = "",
    ) -> TensorKey | None:
        """Record a tensor, or note why it cannot be: a model must not stop for that."""
        try:
            value = to_recordable(value)
        except SyncpointError as error:
            self._recorder.note(f"{op} {role} {index} was not recorded: {error}")
            return None
        return self._write(op, value, role, index, part, name, "", alias_of)

    def _read(self, name: Any, value: Any, dims: str | None) -> tuple[RecordableArray, str]:
        """The value and the text of its axes, both checked before anything is recorded."""
        if not isinstance(name, str) or not name:
            raise InputError("the name of a tensor", repr(name)[:80])
        try:
            found = to_recordable(value)
        except SyncpointError as error:
            raise InputError(f"for {name} {error.expected}", error.found, error.cure) from error
        if dims is None:
            return found, ""
        axes = Dims.parse(dims)
        axes.check(found.array.shape)
        return found, str(axes)

    def _op(
        self,
        name: str,
        part: Part,
        type: str,
        module: str,
        inputs: Iterable[TensorKey | str],
        attributes: Mapping[str, Any],
    ) -> OpKey:
        edges = tuple(self._edge(item, part) for item in inputs)
        made = Op(OpKey(name), type, edges, attributes=dict(attributes), module=module)
        return self._recorder.for_part(part).op(made)

    def _edge(self, item: TensorKey | str, part: Part) -> Edge:
        key = item if isinstance(item, TensorKey) else None
        if isinstance(item, str):
            key = self._last.get((item, part), self._last.get((item, self.whole)))
        if key is None:
            raise InputError("inputs that were recorded before, by key or name", repr(item)[:80])
        return Edge(key.op, key.index, key.role)

    def _write(
        self,
        op: OpKey,
        value: RecordableArray,
        role: Role,
        index: int,
        part: Part,
        name: str,
        layout: str,
        alias_of: str = "",
    ) -> TensorKey:
        key = self._recorder.for_part(part).tensor(
            op,
            value.array,
            role=role,
            index=index,
            dtype=value.dtype,
            name=name,
            strides=value.strides,
            layout=layout,
            device=value.device,
            alias_of=alias_of,
            requires_grad=value.requires_grad,
        )
        self._last[op.op, part] = key
        if role not in _GIVEN:
            if value.device:
                self._devices[value.device] = None
            dtype = value.dtype or dtype_of(value.array.dtype).name
            if DTYPES[dtype].kind is Kind.FLOAT:
                self._computed[dtype] += value.array.size
        return key

    def _part(self, step: int | None, sample: int | None) -> Part:
        number = next((n for n in (step, self._step, self._called) if n is not None), None)
        return Part(_counted(sample, "sample"), _counted(number, "step"), self._rank)

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise InputError(
                f"the process that opened the recording {self.path}",
                "a process forked from it",
                "open a recording of its own there, with rank=",
            )
        if not self._open:
            raise InputError(f"a recording that is open at {self.path}", "one that is closed")


def _writer(path: Path, info: RunInfo, overwrite: bool, alone: bool) -> RunWriter:
    try:
        return RunWriter(path, info, overwrite=overwrite)
    except AnotherWriter as error:
        if not alone:
            raise
        cure = "where several ranks record, give each its own run with rank=; or wait for it"
        raise AnotherWriter(error.folder, cure) from error


def _path_of(path: Path, rank: int) -> Path:
    """`engine.run` as `engine.rank3.run`: a run has one writer, so each rank has a run."""
    return path if rank < 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _counted(number: int | None, what: str) -> int:
    """A number of a part; -1 where there is none."""
    if number is None:
        return -1
    try:
        found = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        found = -1
    if found < 0:
        raise InputError(f"{what} to be a number from 0 on", repr(number)[:80])
    return found


def _role(role: str) -> Role:
    if role not in set(Role):
        raise InputError(f"role to be one of {', '.join(Role)}", repr(role)[:80])
    return Role(role)


def _environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
    }
