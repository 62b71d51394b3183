"""Parse the names that msProbe gives to hooked API calls and modules: kind, function or class, call
number, forward or backward, module path."""

from __future__ import annotations

import re
from dataclasses import dataclass

_API = re.compile(r"(?P<kind>[^.]+)\.(?P<api>.+)\.(?P<call>[0-9]{1,12})\.(?P<way>forward|backward)")
_MODULE = re.compile(
    r"(?P<kind>Module|Cell)\.(?:(?P<path>.+)\.)?(?P<api>[^.]+)"
    r"\.(?P<way>forward|backward|parameters_grad)(?:\.(?P<call>[0-9]{1,12}))?"
)
_DUNDER = re.compile(r"__i?(\w+?)__")
GRADIENTS = "parameters_grad"


@dataclass(frozen=True, kw_only=True)
class HookedName:
    """The parts of a name."""

    name: str
    kind: str = ""
    """`Functional`, `Tensor`, `Torch`, `Distributed`, `NPU`, ... or `Module`."""
    api: str = ""
    """Function, or class of the module."""
    call: int = 0
    way: str = ""
    """`forward`, `backward`, `parameters_grad`."""
    path: str = ""
    """Path of a module in the model."""

    @property
    def is_module(self) -> bool:
        """Whether a module, and not a function, was hooked."""
        return self.kind in ("Module", "Cell")

    @property
    def type(self) -> str:
        """Type of the op: the function, or the class of a module, with the pass if it is not the
        forward pass."""
        plain = f"Module.{self.api}" if self.is_module else _plain(self.api)
        return plain if self.way in ("", "forward") else f"{plain}.{self.way}"

    def of(self, way: str) -> str:
        """Return the name of the same call in another pass."""
        if self.is_module:
            return ".".join(p for p in (self.kind, self.path, self.api, way, str(self.call)) if p)
        return f"{self.kind}.{self.api}.{self.call}.{way}"


def parse_name(name: str) -> HookedName:
    """Split a name into its parts; a name of another form has none."""
    match = _MODULE.fullmatch(name) or _API.fullmatch(name)
    if match is None:
        return HookedName(name=name)
    parts = match.groupdict()
    return HookedName(
        name=name,
        kind=parts["kind"],
        api=parts["api"],
        call=int(parts["call"] or 0),
        way=parts["way"],
        path=parts.get("path") or "",
    )


def _plain(api: str) -> str:
    """Return `add` for `__add__` and `__iadd__`."""
    dunder = _DUNDER.fullmatch(api)
    if dunder is None:
        return api
    return dunder[1]
