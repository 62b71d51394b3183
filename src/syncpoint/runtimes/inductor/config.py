"""The settings of torch._inductor.config that the options of the runtime ask for."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping
from typing import Any

from syncpoint.errors import InputError


def inductor_config(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of inductor that the options ask for."""
    import torch._inductor
    from torch._inductor import config

    found: dict[str, Any] = {}
    mode = options["compile_mode"]
    known_modes = tuple(dict.fromkeys(("default", *torch._inductor.list_mode_options())))
    if mode not in known_modes:
        raise InputError(f"a mode of torch.compile: {', '.join(known_modes)}", repr(mode))
    if mode != "default":
        found.update(torch._inductor.list_mode_options(mode))
    if options["device"].partition(":")[0] != "cpu":
        found["generate_intermediate_hooks"] = True
    known = config.get_config_copy()
    for text in filter(None, (t.strip() for t in options["config"].split(","))):
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError("config as name=value,name=value", repr(text))
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise InputError(
                "a setting that torch._inductor.config has",
                repr(name),
                f"near to it: {', '.join(near)}" if near else "",
            )
        found[name] = _value(name, value, known[name])
    return found


def _value(name: str, text: str, default: Any) -> Any:
    lowered = text.lower()
    if isinstance(default, bool):
        if lowered in ("true", "1", "yes", "on", "false", "0", "no", "off"):
            return lowered in ("true", "1", "yes", "on")
        raise InputError(f"true or false for {name}", repr(text))
    if lowered == "none":
        return None
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            raise InputError(f"a number for {name}", repr(text)) from None
    if default is None:
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(text)
    return text
