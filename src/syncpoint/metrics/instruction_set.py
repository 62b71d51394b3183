"""Check that the kernel uses the instruction set that SYNCPOINT_ISA asks for (AVX2 or baseline)."""

from __future__ import annotations

import os

from syncpoint.errors import InputError
from syncpoint.metrics import _kernel

VARIABLE = "SYNCPOINT_ISA"
KNOWN_ISAS = ("avx2", "baseline")


def check_isa() -> None:
    """Raise InputError if the kernel does not use the instruction set of SYNCPOINT_ISA."""
    requested = os.environ.get(VARIABLE)
    if not requested or _kernel.isa() == requested:
        return
    if requested in KNOWN_ISAS:
        raise InputError(
            f"{VARIABLE}={requested} is set, but this processor supports only {_kernel.isa()}",
            cure=f"unset {VARIABLE}",
        )
    raise InputError(
        f"{VARIABLE} must be {' or '.join(KNOWN_ISAS)}, not {requested!r}",
        cure=f"change or unset {VARIABLE}",
    )
