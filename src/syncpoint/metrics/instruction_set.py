"""The instruction set that the kernel works with: the best there is, or what a user asks for."""

from __future__ import annotations

import os

from syncpoint.errors import InputError
from syncpoint.metrics import _kernel

VARIABLE = "SYNCPOINT_ISA"
KNOWN_ISAS = ("avx2", "baseline")


def check_isa() -> None:
    """An InputError if the kernel does not do what the variable asks for."""
    asked = os.environ.get(VARIABLE)
    if not asked or _kernel.isa() == asked:
        return
    if asked in KNOWN_ISAS:
        raise InputError(
            f"a processor that can do what {VARIABLE}={asked} asks for",
            f"one that can do {_kernel.isa()}",
            f"unset {VARIABLE}",
        )
    raise InputError(f"{VARIABLE} to be {' or '.join(KNOWN_ISAS)}, or unset", repr(asked))
