"""The machine and the packages that a PyTorch model runs on."""

from __future__ import annotations

import os
import platform

import numpy as np
import torch

from syncpoint.errors import InputError
from syncpoint.runtimes.environment import cpu_flags, cpu_name
from syncpoint.runtimes.exception_text import one_line


def device_named(name: str) -> torch.device:
    """A device that torch can use, with its number where it has one."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError("a device that torch can use", repr(name), one_line(error)) from None
    return torch.empty(0, device=device).device


def environment() -> dict[str, str]:
    """What `run.json` says of where the run was made."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_flags": cpu_flags(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": str(os.cpu_count() or 0),
        "threads": str(torch.get_num_threads()),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "subnormals": "zero" if _flushes() else "kept",
        "deterministic": str(torch.are_deterministic_algorithms_enabled()).lower(),
    }


def _flushes() -> bool:
    """Whether numbers below the least normal one are taken for zero. Torch has a switch for it
    and no way to ask."""
    return float(torch.tensor([1e-39]) * 1) == 0.0
