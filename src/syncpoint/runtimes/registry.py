"""Which runtimes there are, which of them takes a model, and how their options are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.errors import InputError
from syncpoint.plugins import Seam
from syncpoint.runtimes.protocol import API, Option, Runtime

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


Value = Any
"""Of an option: text from the command line, or what the text stands for."""


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


def parse_options(runtime: Runtime, texts: Mapping[str, Any]) -> dict[str, Any]:
    """The full set of a runtime's options from what the user gave, as text or as values."""
    known = {option.name: option for option in runtime.options()}
    unknown = [name for name in texts if name not in known]
    if unknown:
        raise InputError(
            f"an option of the runtime {runtime.name}",
            repr(unknown[0]),
            f"these are known: {', '.join(known)}" if known else "it has none",
        )
    options = {name: option.default for name, option in known.items()}
    for name, value in texts.items():
        options[name] = _parse(known[name], value)
    return options


def _parse(option: Option, value: Value) -> Value:
    parsed = value
    if isinstance(value, str) and option.type is not str:
        parsed = _from_text(option, value)
    elif not isinstance(value, option.type) and value != option.default:
        if option.type is float and isinstance(value, int) and not isinstance(value, bool):
            parsed = float(value)
        else:
            raise _refused(option, value)
    if option.choices and parsed not in option.choices and parsed != option.default:
        raise _refused(option, value)
    return parsed


def _from_text(option: Option, text: str) -> Value:
    if option.type is bool:
        lowered = text.lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off"):
            return False
        raise _refused(option, text)
    try:
        return option.type(text)
    except (TypeError, ValueError):
        raise _refused(option, text) from None


def _refused(option: Option, value: Value) -> InputError:
    if option.choices:
        wanted = "one of " + ", ".join(repr(choice) for choice in option.choices)
    else:
        wanted = f"a value of type {option.type.__name__}"
    return InputError(f"{wanted} for the option {option.name}", repr(value), option.help)


def _cure(asked: Runtime) -> str:
    if asked.version() is None:
        return f"it is not installed: {installation_of(asked)}"
    return f"leave the runtime out to let the model choose among: {', '.join(names())}"


def _accepts(candidate: Runtime, model: object) -> bool:
    return RUNTIMES.ask(candidate.name, lambda: candidate.accepts(model))
