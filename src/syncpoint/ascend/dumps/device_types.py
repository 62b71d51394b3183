"""The element types and layouts of device dumps by number: names, decoders such as HiFloat8 and
4-bit types, the precision that each type counts as.

Types that NumPy and ml_dtypes lack are decoded to wider ones, exactly. A type whose definition or
packing is not known for certain is named and not read: a wrong number is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from syncpoint.run.array_bytes import Bytes, unpack
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Op

Array = NDArray[Any]


@dataclass(frozen=True)
class StoredType:
    """How elements lie in a dump file."""

    name: str
    """The device's name of the type."""
    dtype: str
    """The element type that a tensor of it has here; "" where it cannot be read."""
    bits: int
    """Of one element in the file."""
    decode: Callable[[Bytes, int], Array] | None = None
    """From bytes and a number of elements; None where the bytes can be used as they lie."""

    def nbytes(self, count: int) -> int:
        """Bytes that `count` elements take in the file."""
        return (count * self.bits + 7) // 8


def _hifloat8(byte: int) -> float:
    """One HiFloat8: after the sign a prefix code says how many bits the exponent has, from four
    down to none, so that numbers near one have more bits of fraction.

    The exponent is a sign and a magnitude whose first bit is not stored. The last code is for
    powers of two below the others, among them zero and, with the sign, NaN. The greatest exponent
    with a fraction of one is infinity. (arXiv 2409.16626)
    """
    sign = -1.0 if byte & 0x80 else 1.0
    rest = byte & 0x7F
    if rest == 0:
        return 0.0 if byte == 0 else float("nan")
    if rest == 0x6F:
        return sign * float("inf")
    if rest < 0x08:
        return float(sign * 2.0 ** (rest - 23))
    width, code = next((w, c) for w, c in _PREFIXES if rest >> (7 - c) == _CODES[w])
    below = 7 - code - width
    exponent = 0
    if width:
        stored = rest >> below & (1 << width) - 1
        magnitude = 1 << width - 1 | stored & (1 << width - 1) - 1
        exponent = -magnitude if stored >> width - 1 else magnitude
    fraction = rest & (1 << below) - 1
    return float(sign * 2.0**exponent * (1 + fraction / (1 << below)))


_PREFIXES = ((4, 2), (3, 2), (2, 2), (1, 3), (0, 4))
"""Bits of the exponent, and bits of the code that says so."""
_CODES = {4: 0b11, 3: 0b10, 2: 0b01, 1: 0b001, 0: 0b0001}


@cache
def _table(name: str) -> NDArray[np.float32]:
    """The value of every code of a type."""
    codes = np.arange(256, dtype=np.uint8)
    if name == "HIFLOAT8":
        values = np.array([_hifloat8(c) for c in range(256)], np.float32)
    elif name == "FLOAT8_E8M0":
        values = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    elif name == "FLOAT4_E2M1":
        values = codes[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    else:  # FLOAT4_E1M2: quarters up to 1.75, and a sign
        quarters = np.arange(8, dtype=np.float32) / 4
        values = np.concatenate([quarters, -quarters])
    values.flags.writeable = False
    return values


def _by_table(name: str) -> Callable[[Bytes, int], Array]:
    def decode(raw: Bytes, count: int) -> Array:
        decoded: Array = _table(name)[raw[:count]]
        return decoded

    return decode


def _by_nibbles(name: str) -> Callable[[Bytes, int], Array]:
    def decode(raw: Bytes, count: int) -> Array:
        decoded: Array = _table(name)[unpack(raw, count)]
        return decoded

    return decode


def _complex32(raw: Bytes, count: int) -> Array:
    halves = np.frombuffer(raw.tobytes(), "<f2", count * 2)
    return halves.astype(np.float32).view(np.complex64)


_DECODED = {
    32: StoredType("COMPLEX32", "c64", 32, _complex32),
    33: StoredType("HIFLOAT8", "f32", 8, _by_table("HIFLOAT8")),
    36: StoredType("FLOAT8_E8M0", "f32", 8, _by_table("FLOAT8_E8M0")),
    39: StoredType("FLOAT4_E2M1", "f32", 4, _by_nibbles("FLOAT4_E2M1")),
    40: StoredType("FLOAT4_E1M2", "f32", 4, _by_nibbles("FLOAT4_E1M2")),
}
_PLAIN = {
    0: ("UNDEFINED", "i8"),
    1: ("FLOAT", "f32"),
    2: ("FLOAT16", "f16"),
    3: ("INT8", "i8"),
    4: ("UINT8", "u8"),
    5: ("INT16", "i16"),
    6: ("UINT16", "u16"),
    7: ("INT32", "i32"),
    8: ("INT64", "i64"),
    9: ("UINT32", "u32"),
    10: ("UINT64", "u64"),
    11: ("BOOL", "bool"),
    12: ("DOUBLE", "f64"),
    14: ("DUAL_SUB_INT8", "i8"),
    15: ("DUAL_SUB_UINT8", "u8"),
    16: ("COMPLEX64", "c64"),
    17: ("COMPLEX128", "c128"),
    18: ("QINT8", "i8"),
    19: ("QINT16", "i16"),
    20: ("QINT32", "i32"),
    21: ("QUINT8", "u8"),
    22: ("QUINT16", "u16"),
    23: ("RESOURCE", "i64"),
    27: ("BF16", "bf16"),
    28: ("INT4", "i4"),
    34: ("FLOAT8_E5M2", "f8_e5m2"),
    35: ("FLOAT8_E4M3FN", "f8_e4m3fn"),
}
_UNREAD = {
    13: "STRING",
    24: "STRING_REF",
    25: "DUAL",
    26: "VARIANT",
    29: "UINT1",  # in which order the bits of a byte lie is not documented, nor for the next two
    30: "INT2",
    31: "UINT2",
    37: "FLOAT6_E3M2",  # nor how elements of six bits are packed
    38: "FLOAT6_E2M3",
    41: "HIFLOAT4",  # values make sense only with scales that lie elsewhere
    42: "HIFLOAT4_SCALE",
}
UNDEFINED = 0
"""The dumper did not know the type: bytes, as many as there are."""

_FORMATS = (
    "NCHW",
    "NHWC",
    "ND",
    "NC1HWC0",
    "FRACTAL_Z",
    "NC1C0HWPAD",
    "NHWC1C0",
    "FSR_NCHW",
    "FRACTAL_DECONV",
    "C1HWNC0",
    "FRACTAL_DECONV_TRANSPOSE",
    "FRACTAL_DECONV_SP_STRIDE_TRANS",
    "NC1HWC0_C04",
    "FRACTAL_Z_C04",
    "CHWN",
    "FRACTAL_DECONV_SP_STRIDE8_TRANS",
    "HWCN",
    "NC1KHKWHWC0",
    "BN_WEIGHT",
    "FILTER_HWCK",
    "HASHTABLE_LOOKUP_LOOKUPS",
    "HASHTABLE_LOOKUP_KEYS",
    "HASHTABLE_LOOKUP_VALUE",
    "HASHTABLE_LOOKUP_OUTPUT",
    "HASHTABLE_LOOKUP_HITS",
    "C1HWNCoC0",
    "MD",
    "NDHWC",
    "FRACTAL_ZZ",
    "FRACTAL_NZ",
    "NCDHW",
    "DHWCN",
    "NDC1HWC0",
    "FRACTAL_Z_3D",
    "CN",
    "NC",
    "DHWNC",
    "FRACTAL_Z_3D_TRANSPOSE",
    "FRACTAL_ZN_LSTM",
    "FRACTAL_Z_G",
    "RESERVED",
    "ALL",
    "NULL",
    "ND_RNN_BIAS",
    "FRACTAL_ZN_RNN",
    "NYUV",
    "NYUV_A",
    "NCL",
    "FRACTAL_Z_WINO",
    "C1HWC0",
)


def stored_type(code: int) -> StoredType:
    """The element type of a number; one that is not known is named by it and cannot be read."""
    if code in _DECODED:
        return _DECODED[code]
    if code in _PLAIN:
        name, dtype = _PLAIN[code]
        return StoredType(name, dtype, DTYPES[dtype].bits)
    return StoredType(_UNREAD.get(code, f"data_type {code}"), "", 0)


def format_name(code: int) -> str:
    """The name of a layout; one that is not known is named by its number."""
    return _FORMATS[code] if 0 <= code < len(_FORMATS) else f"format {code}"


def layout(code: int) -> str:
    """The layout as a tensor says it: "" where the axes have no names."""
    return "" if format_name(code) == "ND" else format_name(code)


def preset_of_decoded(op: Op) -> str:
    """The preset for numbers of a type that is read as a wider one."""
    stored_names = {str(facts.get("stored_type", "")) for facts in op.attributes.get("outputs", ())}
    if stored_names & {"FLOAT4_E2M1", "FLOAT4_E1M2"}:
        return "int4"
    return "fp8" if stored_names & {"HIFLOAT8", "FLOAT8_E8M0"} else ""
