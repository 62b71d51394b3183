"""Manual recording (`syncpoint.record`): the user records tensors, ops and modules of any engine or
loop by name, step and rank, checked first.

    with sp.record("engine.run", rank=0) as rec:
        rec.attach(module)
        rec.tensor("layer3.attn", value, step=i, dims="b s h(tp) d")

Values are copied at once and written by a thread; the engine may change its own. If the program
raises or dies, what it recorded so far is a run that can be opened and is marked as incomplete.
"""

from __future__ import annotations

import operator
import os
import platform
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
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

_SOURCE_ROLES = (Role.MODEL_INPUT, Role.PARAMETER, Role.STATE)
"""Roles of tensors that no op computes."""


class Recording:
    """A run that is being recorded by hand; `syncpoint.record` creates one.

    It may be called from any thread of the process that created it. As a context manager it is
    closed at the end of the block; after an exception the run is incomplete and has the reason.
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
            raise InputError(f"record must be one of {', '.join(Kept)}, not {record!r}")
        self._rank = _check_number(rank, "rank")
        self.path = _add_rank(Path(path), self._rank)
        """The path of the run: with a rank, `engine.rank3.run` for `engine.run`."""
        info = RunInfo(
            model=model or self.path.name,
            runtime=runtime,
            options={} if rank is None else {"rank": self._rank},
            record=Kept(record),
            environment=_describe_environment(),
        )
        self._writer = _open_writer(self.path, info, overwrite, rank is None)
        self._recorder = Recorder(
            self._writer, record=Kept(record), filter=filter, max_bytes=max_bytes
        )
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._open = True
        self._step: int | None = None
        """The number of the step that `step()` began."""
        self._module_step: int | None = None
        """The step of the attached module that was called last."""
        self._attached: dict[str, Attachment] = {}
        self._source_counts: Counter[tuple[str, Part, Role]] = Counter()
        """Number of recorded tensors that no op computes, by name, part and role."""
        self._output_counts: Counter[Part] = Counter()
        self._last_keys: dict[tuple[str, Part], TensorKey] = {}
        self._devices: dict[str, None] = {}
        self._computed: Counter[str] = Counter()
        """Number of recorded elements, by floating-point type."""

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
        """Record one tensor: the output of an op called `name`, unless `role` says otherwise.

        `step` defaults to that of `step()`, or else to that of the attached module that was called
        last. A name that is repeated in one step and sample is the next call of that op. `dims`
        names the axes. The returned key can be one of the `inputs` of later ops.
        """
        tensor_role = _parse_role(role)
        with self._lock:
            self._check_open()
            part = self._part(step, sample)
            value, layout = self._read(name, value, dims)
            if tensor_role in _SOURCE_ROLES:
                call = self._source_counts[name, part, tensor_role]
                self._source_counts[name, part, tensor_role] += 1
                return self._write(OpKey(name, call), value, tensor_role, 0, part, name, layout)
            key = self._record_op(name, part, type, module, inputs, {})
            index = 0
            if tensor_role is Role.MODEL_OUTPUT:
                index = self._output_counts[part]
                self._output_counts[part] += 1
            path = name if tensor_role is Role.MODEL_OUTPUT else ""
            return self._write(key, value, tensor_role, index, part, path, layout)

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
        """Record one op with its inputs and all its outputs.

        `inputs` are keys that `tensor` and `op` returned, or names: a name refers to the tensor
        that was last recorded under it in this part.
        """
        values = list(outputs)
        output_dims = [None] * len(values) if dims is None else list(dims)
        if len(output_dims) != len(values):
            raise InputError(
                f"dims has {len(output_dims)} entries for {len(values)} outputs of {name}",
                cure="give one entry per output",
            )
        with self._lock:
            self._check_open()
            part = self._part(step, sample)
            arrays = [self._read(name, v, d) for v, d in zip(values, output_dims, strict=True)]
            key = self._record_op(name, part, type, module, inputs, attributes or {})
            return [
                self._write(key, value, Role.OUTPUT, index, part, "", layout)
                for index, (value, layout) in enumerate(arrays)
            ]

    def attach(self, module: Any, name: str = "", *, steps: bool = True) -> None:
        """Record every call of an nn.Module and of all its submodules from now on.

        Each call of `module` is a step, unless `step()` counts the steps or `steps` is false: then
        calls differ by their call index. `name` distinguishes several attached modules.
        """
        with self._lock:
            self._check_open()
            if name in self._attached:
                raise InputError(
                    f"a module is already attached under the name {name!r}",
                    cure='use another name: attach(module, "draft")',
                )
            from syncpoint.runtimes.torch.module_hooks import Attachment

            self._attached[name] = Attachment(self, module, name, steps)

    def step(self, number: int | None = None) -> int:
        """Begin the next step, or the one with this number; later tensors belong to it."""
        with self._lock:
            self._check_open()
            next_step = 0 if self._step is None else self._step + 1
            self._step = next_step if number is None else _check_number(number, "step")
            return self._step

    def note(self, text: str) -> None:
        """Add a note for readers of the results."""
        with self._lock:
            self._check_open()
            self._recorder.note(text)

    def flush(self) -> None:
        """Wait until everything recorded is on the disk."""
        with self._lock:
            self._check_open()
            self._recorder.flush()

    def close(self) -> None:
        """Detach from all modules and finish the run; may be called repeatedly."""
        self.__exit__(None, None)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if os.getpid() != self._process:
            return  # a forked child: the run belongs to its parent
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
                self._writer.__exit__(kind, error)

    # Called by the hooks of attached modules.

    @property
    def lock(self) -> threading.RLock:
        """The lock to hold while an op and its tensors are recorded, so that they stay together."""
        return self._lock

    @property
    def listening(self) -> bool:
        """Whether the recording is open in this process."""
        return self._open and os.getpid() == self._process

    def begin(self, step: int | None) -> Part:
        """Begin a call of an attached module; returns its part, with the step `step` unless
        `step()` counts the steps."""
        if step is not None:
            self._module_step = step
        return self._part(step if self._step is None else self._step, None)

    @property
    def whole(self) -> Part:
        """The part of tensors that belong to no step, such as parameters."""
        return Part(rank=self._rank)

    def add_op(self, op: Op, part: Part) -> OpKey:
        """Record an op; returns its key with the call index."""
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
        """Record a tensor, or add a note if that fails: the model must not stop for it."""
        try:
            value = to_recordable(value)
        except SyncpointError as error:
            self._recorder.note(f"{op} {role} {index} was not recorded: {error}")
            return None
        return self._write(op, value, role, index, part, name, "", alias_of)

    def _read(self, name: Any, value: Any, dims: str | None) -> tuple[RecordableArray, str]:
        """Return the value and the text of its axes, both checked before anything is recorded."""
        if not isinstance(name, str) or not name:
            raise InputError(
                f"the name of a tensor must be a non-empty string, not {repr(name)[:80]}"
            )
        try:
            array = to_recordable(value)
        except SyncpointError as error:
            raise InputError(f"cannot record {name}: {error.problem}", cure=error.cure) from error
        if dims is None:
            return array, ""
        axes = Dims.parse(dims)
        axes.check(array.array.shape)
        return array, str(axes)

    def _record_op(
        self,
        name: str,
        part: Part,
        type: str,
        module: str,
        inputs: Iterable[TensorKey | str],
        attributes: Mapping[str, Any],
    ) -> OpKey:
        edges = tuple(self._find_edge(source, part) for source in inputs)
        op = Op(OpKey(name), type, edges, attributes=dict(attributes), module=module)
        return self._recorder.for_part(part).op(op)

    def _find_edge(self, source: TensorKey | str, part: Part) -> Edge:
        key = source if isinstance(source, TensorKey) else None
        if isinstance(source, str):
            stepless_key = self._last_keys.get((source, self.whole))
            key = self._last_keys.get((source, part), stepless_key)
        if key is None:
            raise InputError(
                f"the input {repr(source)[:80]} was not recorded before",
                cure="use the key or the name of a recorded tensor",
            )
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
        self._last_keys[op.op, part] = key
        if role not in _SOURCE_ROLES:
            if value.device:
                self._devices[value.device] = None
            dtype = value.dtype or dtype_of(value.array.dtype).name
            if DTYPES[dtype].kind is Kind.FLOAT:
                self._computed[dtype] += value.array.size
        return key

    def _part(self, step: int | None, sample: int | None) -> Part:
        number = next((n for n in (step, self._step, self._module_step) if n is not None), None)
        return Part(_check_number(sample, "sample"), _check_number(number, "step"), self._rank)

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise InputError(
                f"the recording {self.path} was opened by another process; this one is a fork",
                cure="open another recording in the forked process, with rank=",
            )
        if not self._open:
            raise InputError(
                f"the recording {self.path} is closed", cure="record before it is closed"
            )


def _open_writer(path: Path, info: RunInfo, overwrite: bool, is_single_rank: bool) -> RunWriter:
    try:
        return RunWriter(path, info, overwrite=overwrite)
    except AnotherWriter as error:
        if not is_single_rank:
            raise
        cure = "if several ranks record, give each its own run with rank=; or wait for it"
        raise AnotherWriter(error.folder, cure) from error


def _add_rank(path: Path, rank: int) -> Path:
    """`engine.run` -> `engine.rank3.run`: a run has one writer, so each rank has its own run."""
    return path if rank < 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _check_number(number: int | None, name: str) -> int:
    """Return the number of a sample, step or rank; -1 for None."""
    if number is None:
        return -1
    try:
        index = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        index = -1
    if index < 0:
        raise InputError(f"{name} must be a non-negative integer, not {repr(number)[:80]}")
    return index


def _parse_role(role: str) -> Role:
    if role not in set(Role):
        raise InputError(f"role must be one of {', '.join(Role)}, not {repr(role)[:80]}")
    return Role(role)


def _describe_environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
    }
