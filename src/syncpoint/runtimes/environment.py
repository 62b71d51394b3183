"""Facts about the machine and installed packages that a run keeps: CPU model, CPU instructions,
versions."""

from __future__ import annotations

import contextlib
import platform
from functools import cache
from pathlib import Path

import numpy as np

_KERNEL_CPU_FLAGS = (
    *("f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "asimddp", "bf16", "i8mm", "sve"),
)


@cache
def read_cpu_flags() -> str:
    """The CPU extensions that kernels are chosen by, in a fixed order; "" where unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition(":")
            if name.strip() in ("flags", "Features"):
                flags = set(text.split())
                return " ".join(flag for flag in _KERNEL_CPU_FLAGS if flag in flags)
    return ""


def describe_environment(**packages: str) -> dict[str, str]:
    """The `environment` of `run.json`, with the versions of the runtime's packages."""
    return {
        "python": platform.python_version(),
        **packages,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cpu_flags": read_cpu_flags(),
    }


def read_cpu_name() -> str:
    """The model name of the CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
