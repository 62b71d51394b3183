"""The list of runtimes: load one by name or of a run, find those that accept a model, say how to
install one."""

from __future__ import annotations

from syncpoint.errors import InputError
from syncpoint.plugins import Seam
from syncpoint.runtimes.protocol import API, Runtime

RUNTIMES: Seam[Runtime] = Seam(
    "syncpoint.runtimes",
    "runtime",
    Runtime,
    API,
    {
        "torch": "syncpoint.runtimes.torch.runtime:TorchRuntime",
        "inductor": "syncpoint.runtimes.inductor.runtime:InductorRuntime",
        "onnxruntime": "syncpoint.runtimes.onnx.runtime:OnnxRuntime",
        "coreai": "syncpoint.runtimes.coreai.runtime:CoreAIRuntime",
    },
)
"""All runtimes, built in or from plugins. They import no framework before a model is opened."""


def runtime_names() -> tuple[str, ...]:
    """The names of all runtimes, built in or from plugins, without loading any."""
    return RUNTIMES.names()


def load_runtime(name: str) -> Runtime:
    """Load the runtime called `name`."""
    return RUNTIMES.load(name)


def load_recorded_runtime(recorded: str) -> Runtime | None:
    """The runtime that a run was recorded with; None where it is not installed."""
    try:
        return RUNTIMES.load(recorded)
    except InputError:
        return None


def load_runtimes() -> list[Runtime]:
    """Load all runtimes: the built-in ones, then the usable ones of other packages."""
    return [*RUNTIMES.built_in_members(), *RUNTIMES.plugins()]


def find_runtimes_accepting(model: object) -> list[Runtime]:
    """The runtimes that accept the model, the preferred one first."""
    return [candidate for candidate in load_runtimes() if _accepts(candidate, model)]


def describe_installation(runtime: Runtime) -> str:
    """How to install the packages that a runtime needs."""
    if runtime.name in RUNTIMES.built_in:
        return f"pip install 'syncpoint[{runtime.extra}]'"
    return f"install the packages that {RUNTIMES.package_of(runtime.name)} needs"


def find_runtime(model: object, name: str | None = None) -> Runtime:
    """The runtime called `name`, or else the first that accepts the model."""
    description = repr(model) if isinstance(model, str) else f"a {type(model).__qualname__} object"
    if name is not None:
        chosen = load_runtime(name)
        if not chosen.accepts(model):
            raise InputError(
                f"the runtime {name} does not accept {description}",
                cure=_suggest_cure(chosen),
            )
        return chosen
    for candidate in load_runtimes():
        if _accepts(candidate, model):
            return candidate
    cure = f"give a model for one of: {', '.join(candidate.name for candidate in load_runtimes())}"
    if isinstance(model, str) and model.endswith(".py"):
        cure = f"add the attribute that holds the model: {model}:attribute"
    raise InputError(
        f"no runtime accepts {description}",
        cure=cure,
    )


def _suggest_cure(runtime: Runtime) -> str:
    if runtime.version() is None:
        return f"install it: {describe_installation(runtime)}"
    return f"leave the runtime out, or use another of: {', '.join(runtime_names())}"


def _accepts(candidate: Runtime, model: object) -> bool:
    return RUNTIMES.ask(candidate.name, lambda: candidate.accepts(model))
