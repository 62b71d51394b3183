"""Which runtimes there are, which of them takes a model, and how their options are read."""

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
"""These modules import no framework before a model is opened."""


def names() -> tuple[str, ...]:
    """The names of all runtimes, built in or added, without loading any."""
    return RUNTIMES.names()


def runtime(name: str) -> Runtime:
    """The runtime called `name`."""
    return RUNTIMES.load(name)


def runtime_of(recorded: str) -> Runtime | None:
    """The runtime that a run was recorded with; None where this installation has none so named."""
    try:
        return RUNTIMES.load(recorded)
    except InputError:
        return None


def runtimes() -> list[Runtime]:
    """All runtimes: those built in, then the usable ones of other packages."""
    return [*RUNTIMES.built_in_members(), *RUNTIMES.plugins()]


def runtimes_accepting(model: object) -> list[Runtime]:
    """The runtimes that accept the model, the first choice first."""
    return [candidate for candidate in runtimes() if _accepts(candidate, model)]


def installation_of(runtime: Runtime) -> str:
    """How to install what a runtime needs; the extra of another package is not ours to name."""
    if runtime.name in RUNTIMES.built_in:
        return f"pip install 'syncpoint[{runtime.extra}]'"
    return f"install what {RUNTIMES.package_of(runtime.name)} needs for it"


def find(model: object, name: str | None = None) -> Runtime:
    """The runtime called `name`, or else the first that accepts the model."""
    said = repr(model) if isinstance(model, str) else f"a {type(model).__qualname__} object"
    if name is not None:
        asked = runtime(name)
        if not asked.accepts(model):
            raise InputError(f"a model for the runtime {name}", said, _cure(asked))
        return asked
    for candidate in runtimes():
        if _accepts(candidate, model):
            return candidate
    cure = f"tried: {', '.join(candidate.name for candidate in runtimes())}"
    if isinstance(model, str) and model.endswith(".py"):
        cure = f"name what gives the model: {model}:attribute"
    raise InputError("a model that some runtime accepts", said, cure)


def _cure(asked: Runtime) -> str:
    if asked.version() is None:
        return f"it is not installed: {installation_of(asked)}"
    return f"leave the runtime out to let the model choose among: {', '.join(names())}"


def _accepts(candidate: Runtime, model: object) -> bool:
    return RUNTIMES.ask(candidate.name, lambda: candidate.accepts(model))
