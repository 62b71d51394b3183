"""The names that msProbe gives to what it hooks: an API call or a module, which call, which way."""

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
class Named:
    """A name in its parts."""

    name: str
    kind: str = ""
    """`Functional`, `Tensor`, `Torch`, `Distributed`, `NPU`, ... or `Module`."""
    api: str = ""
    """The function, or the class of the module."""
    call: int = 0
    way: str = ""
    """`forward`, `backward`, `parameters_grad`."""
    path: str = ""
    """Of a module: where it is in the model."""

    @property
    def is_module(self) -> bool:
        """Whether a module, and not a function, was hooked."""
        return self.kind in ("Module", "Cell")

    @property
    def type(self) -> str:
        """The type of the op: the function as torch's own ops are called, a module by its class;
        what is not the forward pass says so."""
        plain = f"Module.{self.api}" if self.is_module else _plain(self.api)
        return plain if self.way in ("", "forward") else f"{plain}.{self.way}"

    def of(self, way: str) -> str:
        """The name of the same call in another pass: the forward one of a backward one."""
        if self.is_module:
            return ".".join(p for p in (self.kind, self.path, self.api, way, str(self.call)) if p)
        return f"{self.kind}.{self.api}.{self.call}.{way}"


def named(name: str) -> Named:
    """The parts of a name; one of another form has none."""
    found = _MODULE.fullmatch(name) or _API.fullmatch(name)
    if found is None:
        return Named(name=name)
    parts = found.groupdict()
    return Named(
        name=name,
        kind=parts["kind"],
        api=parts["api"],
        call=int(parts["call"] or 0),
        way=parts["way"],
        path=parts.get("path") or "",
    )


def _plain(api: str) -> str:
    """`__add__` and `__iadd__` are `add`, as is `add_`."""
    dunder = _DUNDER.fullmatch(api)
    if dunder is None:
        return api
    return dunder[1]
