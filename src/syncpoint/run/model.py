"""The data model of a run: what one execution of one model left behind.

Plain frozen records, no behaviour beyond naming. How they lie on disk is the business of
`syncpoint.run.storage.table_columns`; how they are produced, of `syncpoint.run.recorder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from math import prod
from typing import Any


class Role(StrEnum):
    """What a tensor is to its op or to its model."""

    MODEL_INPUT = "model-input"
    PARAMETER = "parameter"
    STATE = "state"
    INPUT = "input"
    """An op's input that was recorded on its own, as the dumps of accelerators do."""
    OUTPUT = "output"
    MODEL_OUTPUT = "model-output"

    # That of an enumeration is written in Python, and keys of tensors are hashed all the time.
    __hash__ = str.__hash__


class Kept(StrEnum):
    """How much of a tensor was recorded."""

    VALUES = "values"
    STATISTICS = "statistics"
    DIGEST = "digest"


@dataclass(frozen=True, order=True)
class Part:
    """Which of many executions a tensor belongs to; -1 where the run has only one."""

    sample: int = -1
    step: int = -1
    rank: int = -1

    def __str__(self) -> str:
        said = (("sample", self.sample), ("step", self.step), ("rank", self.rank))
        return " ".join(f"{name}={value}" for name, value in said if value >= 0)


WHOLE = Part()
"""The part of a run that was executed once, in one process."""


@dataclass(frozen=True, order=True)
class OpKey:
    """Identifies one executed op of a run."""

    op: str
    call: int = 0
    """How many ops of this name were executed before it in the same place."""
    graph: str = ""
    """Which of several graphs of the model (functions, graph breaks); "" for the only one."""
    path: str = ""
    """Sub-graph inside the graph, such as the body of a loop; "" for the top."""
    iteration: int = 0
    """Which round of that sub-graph."""

    def row(self) -> tuple[str, int, str, str, int]:
        """The fields in order, as tables and journals have them."""
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
        """All of it in order, as tables have it. Unlike a key, the cyclic collector lets go of
        it, which matters to those who remember a key for every tensor."""
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
        """Inverse of `str`, for the column `source` of tables; None where there is no line."""
        file, _, line = text.rpartition(":")
        return cls(file, int(line)) if file and line.isdecimal() else None


@dataclass(frozen=True)
class Op:
    """One executed operation."""

    key: OpKey
    type: str
    """The runtime's own name of the operation: `aten.linear.default`, `Conv`, `MatMulV2`."""
    inputs: tuple[Edge, ...] = ()
    _: KW_ONLY
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Everything but tensors that the operation was given; JSON values only."""
    module: str = ""
    """Dotted path of the module that made it: `layers.0.attention`; "" at the top."""
    module_type: str = ""
    source: tuple[Frame, ...] = ()
    """Innermost frame of the user's code last."""
    origins: tuple[str, ...] = ()
    """Names of the ops in earlier forms of the model that this one was made from."""
    random: bool = False
    """Draws random numbers: two runs are not expected to agree here."""


@dataclass(frozen=True)
class Quantization:
    """How stored integers stand for real numbers: real = scale * (stored - zero_point)."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None
    """The axis along which scale and zero point change; None when one pair serves all."""
    block: int = 0
    """With an axis: so many neighbours share a scale; 0 means one scale an index."""
    table: tuple[float, ...] = ()
    """Look-up table: stored - zero_point is an index into it, so that several tables may lie one
    behind the other; the scale is applied after."""

    def describe_misfit(self, shape: tuple[int, ...]) -> str:
        """What is wrong with it for a tensor of this shape; "" if nothing is."""
        wanted = 1
        if self.axis is not None:
            if not -len(shape) <= self.axis < len(shape):
                return f"axis {self.axis} of {len(shape)}"
            block = max(self.block, 1)
            wanted = (shape[self.axis] + block - 1) // block
        if len(self.scale) not in (1, wanted):
            return f"{len(self.scale)} scales for {wanted}"
        if len(self.zero_point) not in (1, len(self.scale)):
            return f"{len(self.zero_point)} zero points for {len(self.scale)} scales"
        return ""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What is kept of a tensor in place of, or beside, its values. Over finite elements.

    A figure that is NaN is not known, and neither is a number of elements that is -1, save that it
    is not zero: other tools keep less. The figures of those that give no `std` are theirs.
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
    """One recorded value of a run; its bytes are read through the run."""

    key: TensorKey
    dtype: str
    shape: tuple[int, ...]
    _: KW_ONLY
    kept: Kept = Kept.VALUES
    strides: tuple[int, ...] | None = None
    """In elements, as the runtime had it; the stored bytes are always dense and row-major."""
    layout: str = ""
    """Names of the axes or of a device layout where the runtime says so: NCHW, NC1HWC0."""
    device: str = ""
    alias_of: str = ""
    """Key of the tensor whose memory this one shares."""
    quantization: Quantization | None = None
    requires_grad: bool | None = None
    address: int | None = None
    shard: str = ""
    offset: int = 0
    """Of the first byte in the shard's file."""
    nbytes: int = 0
    statistics: Statistics | None = None
    digest: str = ""
    digest_kind: str = ""
    """xxh3-128 of the dense bytes for our own recordings; other tools' digests say theirs."""
    name: str = ""
    """For model inputs and outputs: the path a user knows, such as `out["logits"][0]`."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def replace_fields(tensor: Tensor, **changes: Any) -> Tensor:
    """What `dataclasses.replace` gives, in a seventh of its time: this is done twice for every
    tensor of a capture."""
    made = object.__new__(Tensor)
    made.__dict__.update(tensor.__dict__)
    made.__dict__.update(changes)
    return made


@dataclass(frozen=True)
class Observer:
    """Whether looking changed what was looked at: the captured run against a plain one."""

    equal: bool
    """All final outputs have the same bits in both."""
    detail: str = ""
    """What differs, and by how much, where they are not equal."""


@dataclass(frozen=True)
class OtherOutput:
    """A model output that is no tensor."""

    text: str
    """The number or text itself as Python writes it, or the name of its type."""
    is_opaque: bool = False
    """Whether only its type is known, so that two of them cannot be told apart."""

    def to_json(self) -> str:
        """As files keep it: a question mark before the name of a type."""
        return f"?{self.text}" if self.is_opaque else self.text

    @classmethod
    def from_json(cls, text: str) -> OtherOutput:
        """Inverse of `to_json`; no number or text begins with a question mark, as both are
        written as Python code."""
        is_opaque = text.startswith("?")
        return cls(text[1:] if is_opaque else text, is_opaque)


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The facts of a run that are not ops or tensors; `run.json` on disk."""

    model: str = ""
    """What the user named: a path, `file.py:attribute`, or the class of an object."""
    runtime: str = ""
    runtime_version: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    """Where it really ran, whatever was asked for."""
    precision: str = ""
    """Element type it really computed in; several are joined by "+"."""
    fusion: str = ""
    """`as-executed` or `unfused`; "" where the question does not arise."""
    record: Kept = Kept.VALUES
    observer: Observer | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader of the results must know: budget used up, training mode, fallbacks."""
    other_outputs: Mapping[str, OtherOutput] = field(default_factory=dict)
    """Model outputs that are no tensors, by their names."""
    complete: bool = True
    """False when the writer died or the model raised; `missing` then says what is not there."""
    missing: str = ""
    compiled: bool = False
    """Whether the ops are those of a compiler's graph, or the compiled code of one, and say in
    their attributes `value_of` and `output` whose value they hold."""
