"""Parse the options that a runtime declares: text or values to typed values of each `Option`, with
defaults; settings inside `config`: inductor/config.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.errors import InputError
from syncpoint.runtimes.protocol import Option, Runtime

OptionValue = Any
"""The value of an option: text from the command line, or the typed value."""


def parse_options(runtime: Runtime, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a runtime: the settings of the user (text or values), and the defaults."""
    option_by_name = {option.name: option for option in runtime.options()}
    unknown_names = [name for name in settings if name not in option_by_name]
    if unknown_names:
        raise InputError(
            f"the runtime {runtime.name} has no option {unknown_names[0]!r}",
            cure=(
                f"use one of: {', '.join(option_by_name)}"
                if option_by_name
                else "leave it out: the runtime has no options"
            ),
        )
    options = {name: option.default for name, option in option_by_name.items()}
    for name, value in settings.items():
        options[name] = _parse_value(option_by_name[name], value)
    return options


def _parse_value(option: Option, value: OptionValue) -> OptionValue:
    parsed = value
    if isinstance(value, str) and option.type is not str:
        parsed = _parse_text(option, value)
    elif not isinstance(value, option.type) and value != option.default:
        if option.type is float and isinstance(value, int) and not isinstance(value, bool):
            parsed = float(value)
        else:
            raise _make_value_error(option, value)
    if option.choices and parsed not in option.choices and parsed != option.default:
        raise _make_value_error(option, value)
    return parsed


def _parse_text(option: Option, text: str) -> OptionValue:
    if option.type is bool:
        lowered = text.lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off"):
            return False
        raise _make_value_error(option, text)
    try:
        return option.type(text)
    except (TypeError, ValueError):
        raise _make_value_error(option, text) from None


def _make_value_error(option: Option, value: OptionValue) -> InputError:
    if option.choices:
        expected = "one of " + ", ".join(repr(choice) for choice in option.choices)
    else:
        expected = f"a value of type {option.type.__name__}"
    return InputError(
        f"the option {option.name} must be {expected}, not {value!r}",
        cure=f"correct it; {option.name} means: {option.help}",
    )
