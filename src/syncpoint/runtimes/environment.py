"""The machine, as far as it changes numbers: above all which instructions the kernels of its
processor may choose from."""

from __future__ import annotations

import contextlib
import platform
from functools import cache
from pathlib import Path

import numpy as np

_TELLING = (
    *("f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "asimddp", "bf16", "i8mm", "sve"),
)


@cache
def cpu_flags() -> str:
    """The extensions that decide between kernels, in a fixed order; "" where that is not known."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, said = line.partition(":")
            if name.strip() in ("flags", "Features"):
                have = set(said.split())
                return " ".join(flag for flag in _TELLING if flag in have)
    return ""


def environment_with(**packages: str) -> dict[str, str]:
    """What `run.json` says of where a run was made, with the versions of the runtime's packages."""
    return {
        "python": platform.python_version(),
        **packages,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cpu_flags": cpu_flags(),
    }


def cpu_name() -> str:
    """The model of the processor, as the machine names it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
