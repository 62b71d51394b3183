"""The element types a tensor can have: their names here, in NumPy and in safetensors files.

The names are those of the command line, of `tensors.parquet` and of the reports. NumPy alone
knows neither bf16 nor fp8; ml_dtypes supplies them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import ml_dtypes
import numpy as np

from syncpoint.errors import InputError


class Kind(StrEnum):
    """What arithmetic an element type belongs to."""

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
    """Size of one element in a packed buffer; 4 for int4, two of which share a byte."""
    numpy: np.dtype[np.generic]
    """Unpacked: an int4 array has one byte an element."""
    safetensors: str
    """Name in a shard's header; "U8" for what safetensors cannot name (stored as bytes)."""
    mantissa: int = 0
    """Explicit fraction bits of a float."""
    min_exponent: int = 0
    """Exponent of the least normal number of a float."""
    max: float = 0.0
    """Greatest finite value of a float."""

    @property
    def long_name(self) -> str:
        """The name in NumPy and PyTorch, which is the one for people: float32 for f32."""
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
        """Bytes that `count` elements take in a packed buffer."""
        return (count * self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name


def _float(name: str, numpy: object, safetensors: str) -> DType:
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


def _plain(name: str, kind: Kind, bits: int, numpy: object, safetensors: str) -> DType:
    return DType(name=name, kind=kind, bits=bits, numpy=np.dtype(numpy), safetensors=safetensors)  # type: ignore[call-overload]


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _float("f64", np.float64, "F64"),
        _float("f32", np.float32, "F32"),
        _float("f16", np.float16, "F16"),
        _float("bf16", ml_dtypes.bfloat16, "BF16"),
        _float("f8_e4m3fn", ml_dtypes.float8_e4m3fn, "F8_E4M3"),
        _float("f8_e5m2", ml_dtypes.float8_e5m2, "F8_E5M2"),
        _plain("i64", Kind.INT, 64, np.int64, "I64"),
        _plain("i32", Kind.INT, 32, np.int32, "I32"),
        _plain("i16", Kind.INT, 16, np.int16, "I16"),
        _plain("i8", Kind.INT, 8, np.int8, "I8"),
        _plain("u64", Kind.INT, 64, np.uint64, "U64"),
        _plain("u32", Kind.INT, 32, np.uint32, "U32"),
        _plain("u16", Kind.INT, 16, np.uint16, "U16"),
        _plain("u8", Kind.INT, 8, np.uint8, "U8"),
        _plain("i4", Kind.INT, 4, ml_dtypes.int4, "U8"),
        _plain("u4", Kind.INT, 4, ml_dtypes.uint4, "U8"),
        _plain("bool", Kind.BOOL, 8, np.bool_, "BOOL"),
        _plain("c64", Kind.COMPLEX, 64, np.complex64, "C64"),
        _plain("c128", Kind.COMPLEX, 128, np.complex128, "U8"),
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
    """The element type called `name`; the long names of NumPy and PyTorch are understood too."""
    short = name.removeprefix("torch.").lower()
    found = DTYPES.get(_LONG_NAMES.get(short, short))
    if found is None:
        raise InputError(
            "an element type", repr(name), f"one of these is known: {', '.join(DTYPES)}"
        )
    return found


def long_name(name: str) -> str:
    """The long name of an element type; any other name as it is."""
    known = DTYPES.get(name)
    return known.long_name if known else name


def from_numpy(numpy: np.dtype[np.generic]) -> DType:
    """The element type of a NumPy array."""
    found = _BY_NUMPY.get(numpy.newbyteorder("=") if numpy.isnative is False else numpy)
    if found is None:
        raise InputError(
            "an array of numbers",
            f"NumPy dtype {numpy}",
            f"convert it to one of: {', '.join(DTYPES)}",
        )
    return found


def from_safetensors(name: str) -> DType | None:
    """The element type a safetensors header calls `name`, or None if it is not known here."""
    return _BY_SAFETENSORS.get(name)
