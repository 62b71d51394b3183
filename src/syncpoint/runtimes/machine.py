"""The processor, as far as it changes numbers: which instructions its kernels may choose from."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

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
