"""Reads the options of a runtime: text or values -> typed values, with the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.errors import InputError
from syncpoint.runtimes.protocol import Option, Runtime

Value = Any
"""Of an option: text from the command line, or what the text stands for."""


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
