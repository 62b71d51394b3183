"""The interfaces that runtimes and sessions implement (open, run, evaluate, replay, cut, compile,
preview), and the classes they exchange."""

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
"""Version of this protocol; a runtime of another package declares the one it was written for."""

Array = NDArray[Any]
"""A dense tensor in the dtype of `syncpoint.run.dtypes` (ml_dtypes for bf16 and fp8)."""

EdgeValues = Mapping[Edge, NDArray[Any]]
"""Values of tensors of a model, by edge."""

Replacement = Callable[[TensorKey, tuple[int, ...]], "NDArray[Any] | None"]
"""Returns the value to replace a tensor of this shape with; None leaves it as it is."""

Tree = Any
"""A value, or any nesting of tuples, lists and dicts of values: arrays, tensors, plain ones."""


@dataclass(frozen=True)
class Option:
    """A setting of a runtime, for `--set`, the session form, doctor and run.json."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """The inputs of one execution: the arguments of the model, as pytrees of arrays."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InputSpec:
    """One input that a model declares."""

    name: str
    shape: tuple[int, ...] | None = None
    """None where the model does not declare it; -1 for an axis of any size."""
    dtype: str = ""
    """Element type by our name; "" where the model does not declare it."""
    required: bool = True


@dataclass(frozen=True)
class Region:
    """A piece of a model between sync points, to be run on its own."""

    ops: tuple[OpKey, ...]
    """In execution order."""
    inputs: tuple[Edge, ...]
    """Tensors that come from outside the region, without parameters."""
    outputs: tuple[Edge, ...]
    part: Part = WHOLE
    """The execution it is a piece of; samples of different shapes have different graphs."""


class Session(Protocol):
    """A model that is loaded and can be run."""

    def run(self, inputs: Inputs, recorder: Recorder) -> None:
        """Execute once and record every op and tensor.

        Sets the facts of the run (`recorder.facts`): effective device and precision, the
        observer check, notes. A model that raises becomes a CaptureError; what was recorded
        before stays in the run.
        """


@runtime_checkable
class Evaluates(Protocol):
    """A session that can run pieces of its model on given values."""

    def evaluate(
        self, region: Region, inputs: EdgeValues, dtype: str, parameter_dtype: str | None = None
    ) -> Sequence[Array | None]:
        """The region's outputs with all floating-point arithmetic done in `dtype`.

        `inputs` may hold parameters too, which then replace those of the model: a live model may
        have changed since it was recorded. Explicit casts and dtype arguments inside the region
        are rewritten to `dtype`; quantize and cast ops count as identity. With `parameter_dtype`,
        floating-point parameters are first rounded to that type. None in the result means that
        the output is not a tensor.
        """


@runtime_checkable
class Replays(Protocol):
    """A session whose ops can be run on other values than the ops before them computed."""

    def replay(self, inputs: Inputs, value: Replacement, recorder: Recorder) -> Mapping[OpKey, str]:
        """Execute once. Record the output of each op, then replace it by `value(key, shape)`
        before any op reads it; None leaves it as it is.

        Returns the ops for which this is not possible, and why; they are not recorded.
        """


@runtime_checkable
class Declares(Protocol):
    """A session that knows the inputs of its model."""

    def inputs(self) -> tuple[InputSpec, ...]:
        """The model's inputs in order."""


@runtime_checkable
class TakesAnyName(Protocol):
    """A session whose model may take inputs by names that it does not declare."""

    def takes_any_name(self) -> bool:
        """Whether it does, as a `forward` with `**kwargs`."""


@runtime_checkable
class Prepares(Protocol):
    """A session that evaluates, and whose regions depend on the form of the inputs."""

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
        """Whether `model`, a path or a live object, looks like a model of this runtime."""

    def options(self) -> tuple[Option, ...]:
        """The settings that `open` understands."""

    def open(self, model: object, options: Mapping[str, Any]) -> Session:
        """Load the model; a missing package is a MissingExtra."""


class Cutter(Protocol):
    """A model that can be run up to a chosen tensor."""

    def run(self, edges: Sequence[Edge], inputs: Inputs, part: Part) -> Sequence[Array | None]:
        """The values of these tensors, computed by the model cut off after them."""

    def save(self, edges: Sequence[Edge], inputs: Inputs, part: Part, path: Path) -> Path:
        """Write the model cut off after these tensors; the cutter chooses the suffix."""


@runtime_checkable
class Truncates(Protocol):
    """A runtime whose models can be cut at a tensor, as bisection needs."""

    def guide_options(self, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The runtime and the options that record each op at which the model can be cut.

        `options` are those of the user for the model.
        """

    def reference_options(self) -> Mapping[str, Any]:
        """Options of a reference run in which every op has a value."""

    def cutter(self, guide: Session, options: Mapping[str, Any]) -> Cutter:
        """A cutter of the model that `guide` has open, which runs it with the full `options`."""


@runtime_checkable
class Unfuses(Protocol):
    """A runtime that fuses ops and can run them one by one instead."""

    fused_types: tuple[str, ...]
    """Prefixes of the op types that replace several ops."""
    fusion_advice: str
    """How a user prevents the fusion of an op."""

    def unfused_options(self) -> Mapping[str, Any]:
        """The options that make it run the ops one by one."""


@runtime_checkable
class Compiles(Protocol):
    """A runtime that compiles the graph of a model. Its sessions can run that graph op by op, in
    float64 and with replaced values, as an analysis needs."""

    uncompiled: str
    """The runtime that runs the same models uncompiled."""
    shared_options: tuple[str, ...]
    """Options that mean the same in both runtimes."""

    def can_replace_values(self, options: Mapping[str, Any]) -> bool:
        """Whether compiled code with these options can run on with a replaced tensor."""


class CompiledSession(Session, Declares, Protocol):
    """A session of a runtime that compiles."""

    def run_op_by_op(self, inputs: Inputs, recorder: Recorder) -> None:
        """The ops of the compiled graph, run one by one uncompiled."""

    def run_wide(self, inputs: Inputs, recorder: Recorder) -> None:
        """The same in float64."""

    def with_value(
        self, inputs: Inputs, key: TensorKey | None, value: Array | None
    ) -> Sequence[Array | None]:
        """The flattened outputs of the compiled code with one tensor replaced; a key of None
        replaces nothing. None in the result means that the output is not a tensor."""


@dataclass(frozen=True)
class Repro:
    """A model with its inputs, as a compiler writes them for a bug report."""

    model: object
    inputs: tuple[Any, ...]
    notes: tuple[str, ...] = ()
    """Notes for the reader of the results."""


@runtime_checkable
class LoadsRepros(Protocol):
    """A runtime that reads the files that its compiler writes to reproduce a failure."""

    def load_repro(self, path: str) -> Repro | None:
        """The model and the inputs of such a file, which is executed; None for any other file."""


@dataclass(frozen=True)
class ModelPreview:
    """What a model file declares, without running it."""

    ops: int
    precision: str
    """Element type of most of its floating-point weights; "" where it has none."""
    inputs: tuple[InputSpec, ...]


@runtime_checkable
class Previews(Protocol):
    """A runtime that can describe a model file without its weights and without running it."""

    def preview(self, path: Path) -> ModelPreview | None:
        """What the file declares; None where it cannot be read here, or not quickly."""
