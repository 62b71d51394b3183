"""Types of the native kernel; `native/pair.hpp`, `native/on_demand.hpp` and `native/compat.hpp`
explain the numbers."""

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
    bulk_below: float,
) -> list[tuple[Any, ...] | str]:
    """For each pair the fields of a Measurement, or why its file could not be read."""

def describe(operand: Operand) -> tuple[Any, ...] | str:
    """The fields of Statistics, or why the file could not be read; None without finite elements."""

def isa() -> str:
    """The instruction set in use: "avx2" or "baseline"."""

def dense(source: np.ndarray, to: np.ndarray) -> None:
    """Copy into a row-major array of the same shape and element size."""

def read_all(stretches: Sequence[tuple[int, int]]) -> int:
    """Read memory at these addresses and sizes; the baseline of the benchmarks."""

class WorstSlice:
    @property
    def index(self) -> int: ...
    @property
    def rel_l2(self) -> float: ...

class ValueRange:
    @property
    def least(self) -> float: ...
    @property
    def greatest(self) -> float: ...

class ValueCounts:
    @property
    def bins(self) -> list[int]: ...
    @property
    def masked(self) -> int: ...
    @property
    def non_finite(self) -> int: ...

class Histograms:
    @property
    def target(self) -> ValueCounts: ...
    @property
    def reference(self) -> ValueCounts: ...

class RowDivergence:
    @property
    def rows(self) -> int: ...
    @property
    def undefined(self) -> int: ...
    @property
    def sum(self) -> float: ...
    @property
    def greatest(self) -> float: ...
    @property
    def greatest_row(self) -> int: ...

class Divergence:
    @property
    def count(self) -> int: ...
    @property
    def value(self) -> float: ...

class Agreement:
    @property
    def rows(self) -> int: ...
    @property
    def undefined(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def overlap(self) -> float: ...

def worst_slices(pair: Pair, axes: Sequence[tuple[int, int]]) -> list[WorstSlice]: ...
def value_range(pair: Pair) -> ValueRange: ...
def value_histograms(pair: Pair, edges: Sequence[float]) -> Histograms: ...
def softmax_divergence(pair: Pair, length: int) -> RowDivergence: ...
def minmax_divergence(pair: Pair) -> Divergence: ...
def rank_agreement(pair: Pair, length: int, k: int) -> Agreement: ...

class CompatFirst:
    @property
    def x_squares(self) -> float: ...
    @property
    def y_squares(self) -> float: ...
    @property
    def errors(self) -> float: ...
    @property
    def error_squares(self) -> float: ...
    @property
    def ratios(self) -> float: ...
    @property
    def greatest_error(self) -> float: ...
    @property
    def greatest_ratio(self) -> float: ...
    @property
    def x_min(self) -> float: ...
    @property
    def x_max(self) -> float: ...
    @property
    def y_min(self) -> float: ...
    @property
    def y_max(self) -> float: ...
    @property
    def x_total(self) -> float: ...
    @property
    def y_total(self) -> float: ...

class CompatSecond:
    @property
    def cosine(self) -> float: ...
    @property
    def x_shares(self) -> float: ...
    @property
    def y_shares(self) -> float: ...
    @property
    def x_deviations(self) -> float: ...
    @property
    def y_deviations(self) -> float: ...

def compat_first(target: Operand, reference: Operand) -> CompatFirst: ...
def compat_second(
    target: Operand,
    reference: Operand,
    x: tuple[float, float, float, float],
    y: tuple[float, float, float, float],
) -> CompatSecond:
    """`x` and `y`: norm, lowest value, range and mean of each side."""

def compat_quotients(
    target: Operand,
    reference: Operand,
    x: tuple[float, float, float],
    y: tuple[float, float, float],
    begin: int,
    p: np.ndarray,
    of_q: np.ndarray,
) -> None:
    """`x` and `y`: lowest value, range and sum of the shares of each side; fills `p` and `of_q`."""

def compat_divergence(
    target: Operand,
    reference: Operand,
    x: tuple[float, float, float],
    y: tuple[float, float, float],
) -> tuple[float, float]: ...
def compat_both(target: Operand, reference: Operand, term: float) -> float: ...
