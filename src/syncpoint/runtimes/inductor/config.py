"""Parse the option `config` (name=value settings of torch._inductor.config): a value's text to
bool, number, None or text by the type of the default."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping
from typing import Any

from syncpoint.errors import InputError


def parse_inductor_config(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of torch._inductor.config that the options set."""
    import torch._inductor
    from torch._inductor import config

    config_values: dict[str, Any] = {}
    mode = options["compile_mode"]
    known_modes = tuple(dict.fromkeys(("default", *torch._inductor.list_mode_options())))
    if mode not in known_modes:
        raise InputError(
            f"torch.compile has no mode {mode!r}",
            cure=f"use one of: {', '.join(known_modes)}",
        )
    if mode != "default":
        config_values.update(torch._inductor.list_mode_options(mode))
    if options["device"].partition(":")[0] != "cpu":
        config_values["generate_intermediate_hooks"] = True
    defaults = config.get_config_copy()
    for text in filter(None, (t.strip() for t in options["config"].split(","))):
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(
                f"{text!r} in the option config is not name=value",
                cure="write config as name=value,name=value",
            )
        if name not in defaults:
            near_names = difflib.get_close_matches(name, defaults, 3)
            raise InputError(
                f"torch._inductor.config has no setting {name!r}",
                cure=(
                    f"use one of these similar names: {', '.join(near_names)}"
                    if near_names
                    else "check the name in torch._inductor.config"
                ),
            )
        config_values[name] = _parse_value(name, value, defaults[name])
    return config_values


def _parse_value(name: str, text: str, default: Any) -> Any:
    lowered = text.lower()
    if isinstance(default, bool):
        if lowered in ("true", "1", "yes", "on", "false", "0", "no", "off"):
            return lowered in ("true", "1", "yes", "on")
        raise InputError(
            f"{name} must be true or false, not {text!r}",
            cure=f"write {name}=true or {name}=false",
        )
    if lowered == "none":
        return None
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            raise InputError(
                f"{name} must be a number, not {text!r}",
                cure=f"write {name}={default}",
            ) from None
    if default is None:
        for number_type in (int, float):
            with contextlib.suppress(ValueError):
                return number_type(text)
    return text
