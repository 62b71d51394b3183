"""How much memory this process can still allocate, by the machine and its container."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Bytes that can be allocated without swapping or exceeding the limit of the container; a very
    large number if that is unknown."""
    return min(_free_on_machine(), _free_in_container())


def _free_on_machine() -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    with suppress(OSError, ValueError, AttributeError):
        # The total memory: an upper bound of the free memory.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _free_in_container() -> int:
    with suppress(OSError, ValueError):
        # Without a limit the file says "max", which is a ValueError here.
        limit = int((_CGROUP / "memory.max").read_text())
        return max(limit - int((_CGROUP / "memory.current").read_text()), 0)
    return sys.maxsize
