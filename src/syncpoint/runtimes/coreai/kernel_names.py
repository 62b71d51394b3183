"""Names of kernels: the short type, and the name under which each kernel is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syncpoint.runtimes.coreai.debug_info import DebugInfo

_PREFIXES = ("call.", "coreai.", "decomposable.", "broadcasting_")


def short_type(name: str) -> str:
    """Return the type of a kernel or an op without the prefixes in which the two differ."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


@dataclass
class KernelNames:
    """The names of kernels, the same in all parts of a run."""

    debug: Mapping[int, DebugInfo]
    """By the id of a kernel."""
    names: dict[int, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def name_of(self, kernel: int, type: str, debug: DebugInfo) -> str:
        """Return the torch node that a kernel completes, or else its type and id."""
        if kernel not in self.names:
            name = debug.origins[-1] if debug.completes and debug.origins else ""
            if not name or name.startswith("@") or name in self.used:
                name = f"{short_type(type)}_{kernel}"
            self.names[kernel] = name
            self.used.add(name)
        return self.names[kernel]
