"""Types of the native kernel; what the numbers mean is said in `native/pair.hpp`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

class Operand:
    def __init__(
        self,
        data: np.ndarray | tuple[str, int, int],
        dtype: str,
        shape: Sequence[int] | None,
        packed: bool,
        mask_below: float,
        scale: Sequence[float],
        zero_point: Sequence[float],
        table: Sequence[float],
        axis: int,
        block: int,
    ) -> None: ...

class Pair:
    def __init__(
        self,
        target: Operand,
        reference: Operand,
        rtol: float,
        atol: float,
        mask_rtol: float,
        overflow_limit: float,
        ulp_unit: str,
        mantissa: int,
        min_exponent: int,
        step_of: str,
    ) -> None: ...

def measure(
    pairs: Sequence[Pair],
    tier: str,
    threads: int,
    window: int,
    robust: bool,
    robust_above: float,
) -> list[tuple[Any, ...] | str]:
    """The fields of a Measurement for each pair, or why its file could not be read."""

def describe(operand: Operand) -> tuple[Any, ...] | str:
    """The fields of Statistics, None where there is no finite element; or as above."""

def isa() -> str:
    """The instruction set in use: "avx2" or "baseline"."""

def read_all(stretches: Sequence[tuple[int, int]]) -> int:
    """Reads memory, given as addresses and sizes, and nothing else: the benchmark's yardstick."""
