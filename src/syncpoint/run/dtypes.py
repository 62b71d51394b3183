"""The element types of tensors: their kinds and sizes, and their names in Syncpoint, NumPy and
safetensors.

The names are those of the command line, of `tensors.parquet` and of the reports. NumPy alone has
neither bf16 nor fp8; ml_dtypes adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import ml_dtypes
import numpy as np

from syncpoint.errors import InputError


class Kind(StrEnum):
    """The kind of arithmetic of an element type."""

    FLOAT = "float"
    INT = "int"
    BOOL = "bool"
    COMPLEX = "complex"


@dataclass(frozen=True, kw_only=True)
class DType:
    """One element type."""

    name: str
    kind: Kind
    bits: int
    """Size of one element in a packed buffer; 4 for int4: two elements share a byte."""
    numpy: np.dtype[np.generic]
    """Unpacked: an int4 array has one byte per element."""
    safetensors: str
    """Name in the header of a shard; "U8" if safetensors has no name for it (stored as bytes)."""
    mantissa: int = 0
    """Explicit fraction bits of a float."""
    min_exponent: int = 0
    """Exponent of the least normal number of a float."""
    max: float = 0.0
    """Greatest finite value of a float."""

    @property
    def long_name(self) -> str:
        """The name in NumPy and PyTorch, which reports show: float32 for f32."""
        return self.numpy.name

    @property
    def packed(self) -> bool:
        """Whether elements are smaller than a byte."""
        return self.bits < 8

    @property
    def unit(self) -> float:
        """Half the distance from 1 to the next float: the unit roundoff u."""
        return float(2.0 ** -(self.mantissa + 1)) if self.kind is Kind.FLOAT else 0.0

    def nbytes(self, count: int) -> int:
        """Number of bytes of `count` elements in a packed buffer."""
        return (count * self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name


def _float_dtype(name: str, numpy: object, safetensors: str) -> DType:
    dtype: np.dtype[np.generic] = np.dtype(numpy)  # type: ignore[call-overload]
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # it has no annotations
    least_normal = float(info.smallest_normal)
    return DType(
        name=name,
        kind=Kind.FLOAT,
        bits=dtype.itemsize * 8,
        numpy=dtype,
        safetensors=safetensors,
        mantissa=int(info.nmant),
        min_exponent=int(np.log2(least_normal)),
        max=float(info.max),
    )


def _other_dtype(name: str, kind: Kind, bits: int, numpy: object, safetensors: str) -> DType:
    return DType(name=name, kind=kind, bits=bits, numpy=np.dtype(numpy), safetensors=safetensors)  # type: ignore[call-overload]


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _float_dtype("f64", np.float64, "F64"),
        _float_dtype("f32", np.float32, "F32"),
        _float_dtype("f16", np.float16, "F16"),
        _float_dtype("bf16", ml_dtypes.bfloat16, "BF16"),
        _float_dtype("f8_e4m3fn", ml_dtypes.float8_e4m3fn, "F8_E4M3"),
        _float_dtype("f8_e5m2", ml_dtypes.float8_e5m2, "F8_E5M2"),
        _other_dtype("i64", Kind.INT, 64, np.int64, "I64"),
        _other_dtype("i32", Kind.INT, 32, np.int32, "I32"),
        _other_dtype("i16", Kind.INT, 16, np.int16, "I16"),
        _other_dtype("i8", Kind.INT, 8, np.int8, "I8"),
        _other_dtype("u64", Kind.INT, 64, np.uint64, "U64"),
        _other_dtype("u32", Kind.INT, 32, np.uint32, "U32"),
        _other_dtype("u16", Kind.INT, 16, np.uint16, "U16"),
        _other_dtype("u8", Kind.INT, 8, np.uint8, "U8"),
        _other_dtype("i4", Kind.INT, 4, ml_dtypes.int4, "U8"),
        _other_dtype("u4", Kind.INT, 4, ml_dtypes.uint4, "U8"),
        _other_dtype("bool", Kind.BOOL, 8, np.bool_, "BOOL"),
        _other_dtype("c64", Kind.COMPLEX, 64, np.complex64, "C64"),
        _other_dtype("c128", Kind.COMPLEX, 128, np.complex128, "U8"),
    )
}

_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}
FLOATS = frozenset(d.name for d in DTYPES.values() if d.kind is Kind.FLOAT)
"""The floating-point types by name."""
_BY_SAFETENSORS = {d.safetensors: d for d in DTYPES.values() if d.safetensors != "U8"} | {
    "U8": DTYPES["u8"]
}
_LONG_NAMES = {d.long_name: d.name for d in DTYPES.values()} | {
    "double": "f64",
    "float": "f32",
    "half": "f16",
    "fp64": "f64",
    "fp32": "f32",
    "fp16": "f16",
}


def parse_dtype(name: str) -> DType:
    """The element type called `name`; the long names of NumPy and PyTorch are accepted too."""
    short = name.removeprefix("torch.").lower()
    element_type = DTYPES.get(_LONG_NAMES.get(short, short))
    if element_type is None:
        raise InputError(
            f"there is no element type {name!r}", cure=f"use one of: {', '.join(DTYPES)}"
        )
    return element_type


def long_name(name: str) -> str:
    """The long name of an element type; any other name is returned unchanged."""
    element_type = DTYPES.get(name)
    return element_type.long_name if element_type else name


def from_numpy(numpy: np.dtype[np.generic]) -> DType:
    """The element type of a NumPy array."""
    element_type = _BY_NUMPY.get(numpy.newbyteorder("=") if numpy.isnative is False else numpy)
    if element_type is None:
        raise InputError(
            f"the array is not of a supported numeric type (NumPy dtype {numpy})",
            cure=f"leave it out, or convert it to one of: {', '.join(DTYPES)}",
        )
    return element_type


def from_safetensors(name: str) -> DType | None:
    """The element type that safetensors headers call `name`; None if it is not supported."""
    return _BY_SAFETENSORS.get(name)
