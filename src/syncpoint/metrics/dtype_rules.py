"""Settings of a measurement that follow from the dtypes of a pair: tolerances, mask value, overflow
limit, ULP, quantization step, coarser dtype."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

from syncpoint.metrics.pair import Operand, Pair
from syncpoint.run.dtypes import DTYPES, DType, Kind

_TOLERANCES = {
    "f64": (1e-7, 1e-7),
    "f32": (1.3e-6, 1e-5),
    "f16": (1e-3, 1e-5),
    "bf16": (1.6e-2, 1e-5),
}
"""Relative and absolute tolerances of torch.testing; other types must be exact."""


_MASK_DTYPES = frozenset(_TOLERANCES)
"""Types in which attention masks are numbers near the minimum of the type."""


_COMPONENT_DTYPES = {"c64": "f32", "c128": "f64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of a measurement that follow from the types of the pair."""

    rtol: float
    """Tolerance of torch.testing for the coarser type."""
    atol: float
    target_mask: float
    """Values at or below it are masked positions; -inf always is."""
    reference_mask: float
    overflow_limit: float | None
    """Maximum finite value of the target's type; None where overflow has no meaning."""
    ulp_unit: str
    """How ULPs are counted: "integer", "ordered", "fraction" or "none"."""
    ulp_type: DType
    """The coarser type, whose ULPs are counted."""
    step_of: str
    """The side whose quantization step is the unit of `lsb`: "target", "reference" or "none"."""


def rules_of(pair: Pair) -> Rules:
    """The rules of a pair, from its types alone."""
    return _rules(_traits(pair.target), _traits(pair.reference))


class _Traits(NamedTuple):
    """The facts of an operand that its rules depend on."""

    dtype: str
    quantized: bool
    table: bool
    mask_below: float | None

    @property
    def arithmetic(self) -> DType:
        """The type of its real numbers: the component type if complex, f32 if quantized."""
        return DTYPES["f32" if self.quantized else _COMPONENT_DTYPES.get(self.dtype, self.dtype)]

    @property
    def kind(self) -> Kind:
        return DTYPES[self.dtype].kind

    @property
    def mask(self) -> float:
        if self.mask_below is not None:
            return self.mask_below
        has_mask_values = self.dtype in _MASK_DTYPES and not self.quantized
        return -DTYPES[self.dtype].max / 2 if has_mask_values else -inf

    @property
    def has_steps(self) -> bool:
        """Whether its numbers are evenly spaced."""
        return self.quantized and not self.table and self.kind is Kind.INT


def _traits(side: Operand) -> _Traits:
    quantization = side.quantization
    if quantization is None:
        return _Traits(side.dtype, False, False, side.mask_below)
    return _Traits(side.dtype, True, bool(quantization.table), side.mask_below)


@lru_cache(maxsize=1024)
def _rules(target: _Traits, reference: _Traits) -> Rules:
    coarser = _coarser_dtype(target.arithmetic, reference.arithmetic)
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


def _coarser_dtype(target: DType, reference: DType) -> DType:
    """The float type with fewer mantissa bits; the target's if neither is a float."""
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
