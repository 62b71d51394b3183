"""The torch device of a name, and the facts of a run: versions, CPU, threads, numeric settings."""

from __future__ import annotations

import os
import platform

import numpy as np
import torch

from syncpoint.errors import InputError
from syncpoint.runtimes.environment import read_cpu_flags, read_cpu_name
from syncpoint.runtimes.exception_text import one_line


def resolve_device(name: str) -> torch.device:
    """The torch device called `name`, with its index where it has one."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"torch cannot use the device {name!r}: {one_line(error)}",
            cure="choose a device such as cpu or cuda:0",
        ) from None
    return torch.empty(0, device=device).device


def describe_torch_environment() -> dict[str, str]:
    """The `environment` of `run.json`: versions, CPU, threads and numeric settings."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": read_cpu_name(),
        "cpu_flags": read_cpu_flags(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": str(os.cpu_count() or 0),
        "threads": str(torch.get_num_threads()),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "subnormals": "zero" if _flushes_subnormals() else "kept",
        "deterministic": str(torch.are_deterministic_algorithms_enabled()).lower(),
    }


def _flushes_subnormals() -> bool:
    """Whether subnormal numbers are flushed to zero: torch can set this, but not query it."""
    return float(torch.tensor([1e-39]) * 1) == 0.0
