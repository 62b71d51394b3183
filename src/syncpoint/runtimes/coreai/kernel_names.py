"""What kernels are called: their short type, and the name under which each is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syncpoint.runtimes.coreai.debug_info import Debug

_PREFIXES = ("call.", "coreai.", "decomposable.", "broadcasting_")


def short(name: str) -> str:
    """The name of a kernel or an op without what the two spell differently."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


@dataclass
class Names:
    """What kernels are called, the same in all parts of a run."""

    debug: Mapping[int, Debug]
    names: dict[int, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def of(self, kernel: int, type: str, said: Debug) -> str:
        """The torch node it completes, or else its type and id."""
        if kernel not in self.names:
            name = said.origins[-1] if said.completes and said.origins else ""
            if not name or name.startswith("@") or name in self.used:
                name = f"{short(type)}_{kernel}"
            self.names[kernel] = name
            self.used.add(name)
        return self.names[kernel]
