"""The facts of a run with torch: versions, CPU, threads, numeric settings."""

from __future__ import annotations

import os
import platform

import numpy as np
import torch

from syncpoint.runtimes.environment import read_cpu_flags, read_cpu_name


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
