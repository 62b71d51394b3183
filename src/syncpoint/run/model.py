"""Data classes of a run: ops, tensors, keys, parts, edges, roles, source frames (from text),
quantization and its misfit, statistics, facts of the run.

Plain frozen records without behaviour beyond naming. `syncpoint.run.storage.table_columns` defines
their form on disk; `syncpoint.run.recorder` produces them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from math import prod
from typing import Any

from syncpoint.run.non_tensor_outputs import OtherOutput


class Role(StrEnum):
    """The role of a tensor in its op or its model."""

    MODEL_INPUT = "model-input"
    PARAMETER = "parameter"
    STATE = "state"
    INPUT = "input"
    """An input of an op that was recorded separately, as in the dumps of accelerators."""
    OUTPUT = "output"
    MODEL_OUTPUT = "model-output"

    # The hash of an enumeration is slow Python code, and keys of tensors are hashed very often.
    __hash__ = str.__hash__


class Kept(StrEnum):
    """How much of a tensor was recorded."""

    VALUES = "values"
    STATISTICS = "statistics"
    DIGEST = "digest"


@dataclass(frozen=True, order=True)
class Part:
    """Which of many executions a tensor belongs to; -1 if the run has only one."""

    sample: int = -1
    step: int = -1
    rank: int = -1

    def __str__(self) -> str:
        numbers = (("sample", self.sample), ("step", self.step), ("rank", self.rank))
        return " ".join(f"{name}={value}" for name, value in numbers if value >= 0)


WHOLE = Part()
"""The part of a run that was executed once, in one process."""


@dataclass(frozen=True, order=True)
class OpKey:
    """Identifies one executed op of a run."""

    op: str
    call: int = 0
    """Number of ops of this name that were executed before it in the same graph and iteration."""
    graph: str = ""
    """Which of several graphs of the model (functions, graph breaks); "" for the only one."""
    path: str = ""
    """Sub-graph inside the graph, such as the body of a loop; "" for the top."""
    iteration: int = 0
    """Which iteration of that sub-graph."""

    def row(self) -> tuple[str, int, str, str, int]:
        """The fields in the order of tables and journals."""
        return (self.op, self.call, self.graph, self.path, self.iteration)

    def __str__(self) -> str:
        text = "/".join(p for p in (self.graph, self.path, self.op) if p)
        if self.iteration:
            text += f"^{self.iteration}"
        return f"{text}#{self.call}" if self.call else text


@dataclass(frozen=True, order=True)
class TensorKey:
    """Identifies one tensor of a run. A key occurs once in a run."""

    op: OpKey
    role: Role = Role.OUTPUT
    index: int = 0
    part: Part = WHOLE

    def row(self) -> tuple[str, int, str, str, int, str, int, int, int, int]:
        """The fields in the order of tables. The garbage collector stops tracking such a tuple,
        unlike a key; this matters if a key is stored for every tensor."""
        op, part = self.op, self.part
        return (
            *(op.op, op.call, op.graph, op.path, op.iteration),
            *(self.role.value, self.index, part.sample, part.step, part.rank),
        )

    def __str__(self) -> str:
        text = str(self.op)
        if self.role is not Role.OUTPUT:
            text += f"!{self.role}"
        if self.index:
            text += f":{self.index}"
        part = str(self.part)
        return f"{text}@{part.replace(' ', ',')}" if part else text


@dataclass(frozen=True)
class Edge:
    """An input of an op: which tensor of the same run and part it reads."""

    op: OpKey
    index: int = 0
    role: Role = Role.OUTPUT


@dataclass(frozen=True)
class Frame:
    """One line of the source stack of an op."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def from_text(cls, text: str) -> Frame | None:
        """Inverse of `str`, for the column `source` of tables; None if there is no line."""
        file, _, line = text.rpartition(":")
        return cls(file, int(line)) if file and line.isdecimal() else None


RECORDER_ATTRIBUTES = frozenset({"node", "rewritten by", "part_of"})
"""Attributes of an op that a recorder adds: its name in the file, the rule that created it, the op
that it is a step of. They are no arguments."""


@dataclass(frozen=True)
class Op:
    """One executed operation."""

    key: OpKey
    type: str
    """The runtime's own name of the operation: `aten.linear.default`, `Conv`, `MatMulV2`."""
    inputs: tuple[Edge, ...] = ()
    _: KW_ONLY
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """All arguments of the operation that are not tensors; JSON values only."""
    module: str = ""
    """Dotted path of the module that contains it: `layers.0.attention`; "" at the top."""
    module_type: str = ""
    source: tuple[Frame, ...] = ()
    """Innermost frame of the user's code last."""
    origins: tuple[str, ...] = ()
    """Names of the ops in earlier forms of the model that this one comes from."""
    random: bool = False
    """Whether it draws random numbers: two runs need not agree here."""


@dataclass(frozen=True)
class Quantization:
    """How stored integers represent real numbers: real = scale * (stored - zero_point)."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None
    """The axis along which scale and zero point change; None if there is only one pair."""
    block: int = 0
    """With an axis: number of neighbours that share a scale; 0 means one scale per index."""
    table: tuple[float, ...] = ()
    """Look-up table: stored - zero_point is an index into it, so that several tables can be
    concatenated; the scale is applied afterwards."""

    def describe_misfit(self, shape: tuple[int, ...]) -> str:
        """Say why it does not fit a tensor of this shape; "" if it fits."""
        scale_count = 1
        if self.axis is not None:
            if not -len(shape) <= self.axis < len(shape):
                return f"its axis is {self.axis}, and the tensor has {len(shape)} axes"
            block = max(self.block, 1)
            scale_count = (shape[self.axis] + block - 1) // block
        if len(self.scale) not in (1, scale_count):
            what = f"index of axis {self.axis}" if self.block <= 1 else f"block of axis {self.axis}"
            each = f", one for each {what}" if self.axis is not None else ""
            return f"it has {len(self.scale)} scales instead of {scale_count}{each}"
        if len(self.zero_point) not in (1, len(self.scale)):
            return f"it has {len(self.zero_point)} zero points for {len(self.scale)} scales"
        return ""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of a tensor, recorded instead of or in addition to its values. Over finite
    elements.

    A NaN means that the number is not known. A count of -1 means not known but not zero: other
    tools record less. If there is no `std`, the numbers are as the other tool computed them.
    """

    count: int
    min: float
    max: float
    mean: float
    std: float
    l2: float
    nan: int = 0
    inf: int = 0
    zero: int = 0


@dataclass(frozen=True)
class Tensor:
    """One recorded tensor of a run; its values are read through the run."""

    key: TensorKey
    dtype: str
    shape: tuple[int, ...]
    _: KW_ONLY
    kept: Kept = Kept.VALUES
    strides: tuple[int, ...] | None = None
    """In elements, as in the runtime; the stored bytes are always dense and row-major."""
    layout: str = ""
    """Names of the axes or of a device layout, if the runtime reports it: NCHW, NC1HWC0."""
    device: str = ""
    alias_of: str = ""
    """Key of the tensor whose memory this one shares."""
    quantization: Quantization | None = None
    requires_grad: bool | None = None
    address: int | None = None
    shard: str = ""
    offset: int = 0
    """Offset of the first byte in the file of the shard."""
    nbytes: int = 0
    statistics: Statistics | None = None
    digest: str = ""
    digest_kind: str = ""
    """Kind of the digest: xxh3-128 of the dense bytes in runs of this package; other tools use
    other kinds."""
    name: str = ""
    """For model inputs and outputs: the path that users see, such as `out["logits"][0]`."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def replace_fields(tensor: Tensor, **changes: Any) -> Tensor:
    """Copy a tensor with some fields changed, like `dataclasses.replace` but seven times faster:
    a capture does this twice for every tensor."""
    copied = object.__new__(Tensor)
    copied.__dict__.update(tensor.__dict__)
    copied.__dict__.update(changes)
    return copied


@dataclass(frozen=True)
class Observer:
    """The observer check: whether capturing changed the outputs of the model."""

    equal: bool
    """Whether all final outputs have the same bits with and without capturing."""
    detail: str = ""
    """What differs, and by how much, if they are not equal."""
    explained: bool = False
    """The model itself takes another path where it is not recorded, such as a fused encoder;
    without that path the outputs are equal."""


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The facts of a run that are not ops or tensors; `run.json` on disk."""

    model: str = ""
    """The model as the user named it: a path, `file.py:attribute`, or the class of an object."""
    runtime: str = ""
    runtime_version: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    """The device that was really used."""
    precision: str = ""
    """The element type that was really computed in; several are joined by "+"."""
    fusion: str = ""
    """`as-executed` or `unfused`; "" if the runtime does not fuse."""
    record: Kept = Kept.VALUES
    observer: Observer | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Notes for readers of the results: byte budget used up, training mode, fallbacks."""
    other_outputs: Mapping[str, OtherOutput] = field(default_factory=dict)
    """Model outputs that are not tensors, by name."""
    complete: bool = True
    """False if the writer died or the model raised; `missing` then says what is missing."""
    missing: str = ""
    compiled: bool = False
    """Whether the ops are those of a compiler's graph, or of its compiled code. Their attributes
    `value_of` and `output` then say whose value they hold."""
