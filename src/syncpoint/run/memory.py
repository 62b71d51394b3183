"""How much memory this machine has free."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def available_bytes() -> int:
    """Bytes that can be allocated without swapping; a very large number where that is unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    with suppress(OSError, ValueError, AttributeError):
        # Not what is free, but more than that there is not.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize
