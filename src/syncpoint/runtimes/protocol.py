"""What every runtime offers: the seam between live models and everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from syncpoint.run.model import WHOLE, Edge, OpKey, Part, TensorKey

if TYPE_CHECKING:
    from syncpoint.run.recorder import Recorder

API = 1
"""Version of this protocol; a runtime from elsewhere declares the one it was written for."""

Array = NDArray[Any]
"""A dense tensor in the dtype of `syncpoint.run.dtypes` (ml_dtypes for bf16 and fp8)."""

EdgeValues = Mapping[Edge, NDArray[Any]]
"""Values of tensors of a model, by where they come from."""

Replacement = Callable[[TensorKey, tuple[int, ...]], "NDArray[Any] | None"]
"""Gives the value to put in the place of a tensor of this shape; None leaves it."""

Tree = Any
"""A value, or any nesting of tuples, lists and dicts of values: arrays, tensors, plain ones."""


@dataclass(frozen=True)
class Option:
    """A setting of a runtime: from it come `--set`, the session form, doctor and run.json."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """What one execution is given: the arguments of the model, as pytrees of arrays."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InputSpec:
    """One input that a model says it takes."""

    name: str
    shape: tuple[int, ...] | None = None
    """None where the model does not say; -1 for an axis it leaves open."""
    dtype: str = ""
    """Element type by our name; "" where the model does not say."""
    required: bool = True


@dataclass(frozen=True)
class Region:
    """A piece of a model between sync points, to be run on its own."""

    ops: tuple[OpKey, ...]
    """In execution order."""
    inputs: tuple[Edge, ...]
    """Tensors that are given from outside; parameters are not among them."""
    outputs: tuple[Edge, ...]
    part: Part = WHOLE
    """Which execution it is a piece of; tells apart the graphs of samples of different shapes."""


class Session(Protocol):
    """A model that is loaded and can be run."""

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Execute once and tell the recorder of every op and tensor.

        Sets the facts of the run (`recorder.facts`): effective device and precision, the
        observer check, notes. A model that raises becomes a CaptureError; what was recorded
        before it stays.
        """


@runtime_checkable
class Evaluates(Protocol):
    """A session that can run pieces of its model on given values."""

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs with all floating-point arithmetic done in `dtype`.

        `inputs` may hold parameters too, which then take the place of the model's own: a live
        model may have been changed since it was recorded. Explicit casts and dtype arguments
        inside the region are rewritten to `dtype`, quantize
        and cast ops count as identity. With `parameter_dtype`, floating-point parameters are
        first rounded to that type. None stands for an output that is not a tensor.
        """


@runtime_checkable
class Replays(Protocol):
    """A session whose ops can be fed other values than their predecessors gave."""

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Execute once. Record what each op gives, then put `value(key, shape)` in its place
        before anything reads it; None leaves it.

        Gives the ops with which this could not be done, and why; nothing of those is recorded.
        """


@runtime_checkable
class Declares(Protocol):
    """A session that knows what its model takes."""

    def inputs(self) -> tuple[InputSpec, ...]:
        """The model's inputs in order."""


@runtime_checkable
class Prepares(Protocol):
    """A session that evaluates, and whose pieces depend on the form of the inputs."""

    def prepare(self, inputs: Inputs, part: Part = WHOLE) -> None:
        """Make `evaluate` possible for inputs of this form without running the model.

        Not needed after `run` with such inputs.
        """

    def parameters_of(self, region: Region) -> list[OpKey]:
        """The parameters that the region's ops read, each once."""


@runtime_checkable
class Runtime(Protocol):
    """A way to execute models."""

    name: str
    extra: str
    """The extra of this package that installs what the runtime needs."""

    def version(self) -> str | None:
        """Version of the underlying package, or None when it is not installed."""

    def accepts(self, model: object) -> bool:
        """Whether `model`, a path or a live object, looks like one of this runtime's."""

    def options(self) -> tuple[Option, ...]:
        """The settings that `open` understands."""

    def open(self, model: object, options: Mapping[str, Any]) -> Session:
        """Load the model; a missing package is a MissingExtra."""


class Cutter(Protocol):
    """A model that can be run up to a chosen tensor."""

    def run(self, edges: Sequence[Edge], inputs: Inputs, part: Part) -> Sequence[Array | None]:
        """The values of these tensors, computed by the model that ends in them."""

    def save(self, edges: Sequence[Edge], inputs: Inputs, part: Part, path: Path) -> Path:
        """Write the model that ends in these tensors; the suffix is the cutter's."""


@runtime_checkable
class Truncates(Protocol):
    """A runtime whose models can be cut at a tensor, as bisection needs."""

    def guide_options(self, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The runtime and the options that record the ops one by one, each of which can be cut at.

        `options` are those that the user gave for the model.
        """

    def reference_options(self) -> Mapping[str, Any]:
        """Options of a reference run in which every op has a value."""

    def cutter(self, guide: Session, options: Mapping[str, Any]) -> Cutter:
        """A cutter of the model that `guide` has open, which runs it with the full `options`."""


@runtime_checkable
class Unfuses(Protocol):
    """A runtime that fuses ops and can run them one by one instead."""

    fused_types: tuple[str, ...]
    """Prefixes of the op types that it puts in the place of several ops."""
    fusion_advice: str
    """How a user keeps an op from being fused."""

    def unfused_options(self) -> Mapping[str, Any]:
        """The options with which it runs the ops one by one."""


@runtime_checkable
class Compiles(Protocol):
    """A runtime that compiles the graph of a model, and whose sessions can run that graph op by
    op, in float64 and with other values in it, as an analysis needs."""

    uncompiled: str
    """The runtime that runs the same models as they were written."""
    shared_options: tuple[str, ...]
    """Options that mean the same to both."""

    def can_replace_values(self, options: Mapping[str, Any]) -> bool:
        """Whether compiled code with these options can go on from another value of a tensor."""


class CompiledSession(Session, Declares, Protocol):
    """A session of a runtime that compiles."""

    def run_op_by_op(self, inputs: Inputs, recorder: Recorder) -> None:
        """The ops of the compiled graph, run one by one uncompiled."""

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """The same in float64."""

    def with_value(
        self, inputs: Inputs, key: TensorKey | None, value: Array | None
    ) -> Sequence[Array | None]:
        """The flattened outputs of the compiled code when one tensor holds another value; a key of
        None leaves all of them. None stands for an output that is not a tensor."""


@dataclass(frozen=True)
class Repro:
    """A model with its inputs, as a compiler writes them for the report of a bug."""

    model: object
    inputs: tuple[Any, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know of them."""


@runtime_checkable
class LoadsRepros(Protocol):
    """A runtime that reads the files which its compiler writes to have a failure repeated."""

    def load_repro(self, path: str) -> Repro | None:
        """The model and the inputs of such a file, which is run for that; None for any other."""


@dataclass(frozen=True)
class ModelPreview:
    """What a model file says of itself."""

    ops: int
    precision: str
    """Element type of most of its floating-point weights; "" where it has none."""
    inputs: tuple[InputSpec, ...]


@runtime_checkable
class Previews(Protocol):
    """A runtime that can describe a model file without its weights and without running it."""

    def preview(self, path: Path) -> ModelPreview | None:
        """What the file says; None where it cannot be read here, or not in a moment."""
