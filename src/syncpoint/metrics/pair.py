"""What is measured: two tensors in their own memory and types, and the rules their types imply.

Nothing is copied: an operand is a view of memory with any strides, and the kernel reads it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np

from syncpoint.run.dtypes import DTYPES, DType, Kind, from_numpy
from syncpoint.run.model import Quantization

_TOLERANCES = {
    "f64": (1e-7, 1e-7),
    "f32": (1.3e-6, 1e-5),
    "f16": (1e-3, 1e-5),
    "bf16": (1.6e-2, 1e-5),
}
"""Relative and absolute, as torch.testing has them; every other type must be exact."""

_MASKING = frozenset(_TOLERANCES)
"""Types in which attention masks are written as numbers near the lowest one."""

_COMPONENTS = {"c64": "f32", "c128": "f64"}


@dataclass(frozen=True, slots=True)
class FileRegion:
    """A dense row-major tensor in this machine's byte order inside a file.

    The kernel maps it itself, a window at a time, so that a tensor of any size takes no memory.
    """

    path: str
    offset: int
    """Of its first byte."""
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One side of a pair, read in place."""

    data: np.ndarray | FileRegion
    """An array's shape is the logical shape; any strides. See `shape` for packed 4-bit integers
    and for file regions."""
    dtype: str
    """Name of the element type; `data` may hold it as unsigned integers or void of that size."""
    quantization: Quantization | None = None
    """Its axis is one of the logical shape."""
    mask_below: float | None = None
    """Values at or below it are mask positions; None takes half the lowest finite value of
    f64, f32, f16 and bf16, and none for other and for quantized types. -inf: no finite value of
    this side is a mask."""
    shape: tuple[int, ...] | None = None
    """For a file region, and for packed i4 and u4: the logical shape. Packed `data` is 1-D uint8,
    two elements a byte, low nibble first, row-major without gaps; 4-bit integers in a file are
    always packed."""

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape that is compared and indexed."""
        if self.shape is not None:
            return self.shape
        if isinstance(self.data, FileRegion):
            raise ValueError(f"no shape is given for the tensor in {self.data.path}")
        return self.data.shape

    @property
    def array(self) -> np.ndarray:
        """The data of an operand that is in memory."""
        if isinstance(self.data, FileRegion):
            raise TypeError(f"the tensor in {self.data.path} is not in memory")
        return self.data


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A target tensor and the reference tensor it should equal."""

    target: Operand
    reference: Operand
    rtol: float | None = None
    """Of `allclose`; None takes what torch.testing allows for the coarser of the two types."""
    atol: float | None = None


def operand(array: np.ndarray) -> Operand:
    """An operand of an ordinary array, its element type taken from it."""
    return Operand(array, from_numpy(array.dtype).name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the types of a pair imply for its measurement."""

    rtol: float
    """What torch.testing allows for the coarser type."""
    atol: float
    target_mask: float
    """At or below this a value is a mask position; -inf always is one."""
    reference_mask: float
    overflow_limit: float | None
    """The greatest finite value of the target's type; None where overflow has no meaning."""
    ulp_unit: str
    """How units in the last place are counted: "integer", "ordered", "fraction" or "none"."""
    ulp_type: DType
    """The coarser type, whose units they are."""
    step_of: str
    """Whose quantization step `lsb` is counted in: "target", "reference" or "none"."""


def rules_of(pair: Pair) -> Rules:
    """The rules for a pair; which values it has does not matter."""
    return _rules(_traits(pair.target), _traits(pair.reference))


class _Traits(NamedTuple):
    """As much of an operand as its rules depend on."""

    dtype: str
    quantized: bool
    table: bool
    mask_below: float | None

    @property
    def arithmetic(self) -> DType:
        """The type its real numbers have: that of a component if complex, f32 if quantized."""
        return DTYPES["f32" if self.quantized else _COMPONENTS.get(self.dtype, self.dtype)]

    @property
    def kind(self) -> Kind:
        return DTYPES[self.dtype].kind

    @property
    def mask(self) -> float:
        if self.mask_below is not None:
            return self.mask_below
        masking = self.dtype in _MASKING and not self.quantized
        return -DTYPES[self.dtype].max / 2 if masking else -inf

    @property
    def has_steps(self) -> bool:
        """Whether it stands for evenly spaced numbers."""
        return self.quantized and not self.table and self.kind is Kind.INT


def _traits(side: Operand) -> _Traits:
    quantization = side.quantization
    if quantization is None:
        return _Traits(side.dtype, False, False, side.mask_below)
    return _Traits(side.dtype, True, bool(quantization.table), side.mask_below)


@lru_cache(maxsize=1024)
def _rules(target: _Traits, reference: _Traits) -> Rules:
    coarser = _coarser(target.arithmetic, reference.arithmetic)
    rtol, atol = _TOLERANCES.get(coarser.name, (0.0, 0.0))
    plain_float = target.kind is Kind.FLOAT and not target.quantized
    if target.has_steps:
        step_of = "target"
    else:
        step_of = "reference" if reference.has_steps else "none"
    return Rules(
        rtol=rtol,
        atol=atol,
        target_mask=target.mask,
        reference_mask=reference.mask,
        overflow_limit=DTYPES[target.dtype].max if plain_float else None,
        ulp_unit=_ulp_unit(target, reference),
        ulp_type=coarser,
        step_of=step_of,
    )


def _coarser(target: DType, reference: DType) -> DType:
    """The float with fewer fraction bits; against an integer, the float; else the target's."""
    floats = [dtype for dtype in (target, reference) if dtype.kind is Kind.FLOAT]
    return min(floats, key=lambda dtype: dtype.mantissa, default=target)


def _ulp_unit(target: _Traits, reference: _Traits) -> str:
    kinds = {target.kind, reference.kind}
    if Kind.BOOL in kinds or target.quantized or reference.quantized:
        return "none"
    if kinds == {Kind.INT}:
        return "integer"
    both_f64 = target.arithmetic.name == reference.arithmetic.name == "f64"
    return "ordered" if both_f64 else "fraction"
