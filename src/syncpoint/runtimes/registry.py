"""Which runtimes there are, which of them takes a model, and how their options are read."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from syncpoint.errors import InputError, SyncpointError, SyncpointWarning
from syncpoint.runtimes.loading import one_line
from syncpoint.runtimes.protocol import API, Option, Runtime

BUILT_IN: dict[str, str] = {
    "torch": "syncpoint.runtimes.torch_export:TorchRuntime",
    "inductor": "syncpoint.runtimes.torch_inductor:InductorRuntime",
    "onnxruntime": "syncpoint.runtimes.onnx_runtime:OnnxRuntime",
    "coreai": "syncpoint.runtimes.coreai_runtime:CoreAIRuntime",
}
"""Name -> where its class is. These modules import no framework before a model is opened."""

GROUP = "syncpoint.runtimes"
"""Entry points of this group add runtimes from elsewhere; ours win where names are equal."""


Value = Any
"""Of an option: text from the command line, or what the text stands for."""


def names() -> tuple[str, ...]:
    """The names of all runtimes, built in or added, without loading any."""
    return (*BUILT_IN, *(name for name in _added() if name not in BUILT_IN))


def runtime(name: str) -> Runtime:
    """The runtime called `name`."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return _made(name, getattr(importlib.import_module(module), attribute))
    added = _added().get(name)
    if added is None:
        raise InputError("a runtime", repr(name), f"these are known: {', '.join(names())}")
    return _load(name, added)


def runtimes() -> list[Runtime]:
    """All runtimes that load; one from elsewhere that does not is warned about and left out."""
    found = []
    for name in names():
        try:
            found.append(runtime(name))
        except SyncpointError as error:
            warnings.warn(str(error), SyncpointWarning, stacklevel=2)
    return found


def find(model: object, name: str | None = None) -> Runtime:
    """The runtime called `name`, or else the first that accepts the model."""
    said = repr(model) if isinstance(model, str) else f"a {type(model).__qualname__} object"
    if name is not None:
        asked = runtime(name)
        if not asked.accepts(model):
            raise InputError(f"a model for the runtime {name}", said, _cure(asked))
        return asked
    tried = []
    for candidate in runtimes():
        if candidate.accepts(model):
            return candidate
        tried.append(candidate.name)
    cure = f"tried: {', '.join(tried)}"
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
        return f"it is not installed: pip install 'syncpoint[{asked.extra}]'"
    return f"leave the runtime out to let the model choose among: {', '.join(names())}"


def _added() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(name: str, entry: EntryPoint) -> Runtime:
    try:
        loaded = entry.load()
    except Exception as error:
        raise InputError(
            f"the runtime {name} to load from {entry.value}", f"it raised {one_line(error)}"
        ) from error
    declared = getattr(loaded, "API", None)
    if declared != API:
        raise InputError(
            f"the runtime {name} to declare API = {API}",
            f"API = {declared!r} in {entry.value}",
            "install a version of it made for this one",
        )
    return _made(name, loaded)


@cache
def _made(name: str, loaded: object) -> Runtime:
    made = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(made, Runtime):
        raise InputError(
            f"the runtime {name} to follow the protocol", f"a {type(made).__qualname__}"
        )
    return made
