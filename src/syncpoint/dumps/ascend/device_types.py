"""Element types and layouts by the numbers that device dumps have for them."""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.run.dtypes import DTYPES


@dataclass(frozen=True)
class Stored:
    """How elements lie in a dump file."""

    name: str
    """The device's name of the type."""
    dtype: str
    """The element type that a tensor of it has here; "" where it cannot be read."""
    bits: int
    """Of one element in the file."""

    @property
    def plain(self) -> bool:
        """Whether the bytes can be used as they lie."""
        return bool(self.dtype) and self.bits == DTYPES[self.dtype].bits

    def nbytes(self, count: int) -> int:
        """Bytes that `count` elements take in the file."""
        return (count * self.bits + 7) // 8


_TYPES = {
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
    13: ("STRING", ""),
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
    24: ("STRING_REF", ""),
    25: ("DUAL", ""),
    26: ("VARIANT", ""),
    27: ("BF16", "bf16"),
    28: ("INT4", "i4"),
    29: ("UINT1", ""),
    30: ("INT2", ""),
    31: ("UINT2", ""),
    32: ("COMPLEX32", ""),
    33: ("HIFLOAT8", ""),
    34: ("FLOAT8_E5M2", "f8_e5m2"),
    35: ("FLOAT8_E4M3FN", "f8_e4m3fn"),
    36: ("FLOAT8_E8M0", ""),
    37: ("FLOAT6_E3M2", ""),
    38: ("FLOAT6_E2M3", ""),
    39: ("FLOAT4_E2M1", ""),
    40: ("FLOAT4_E1M2", ""),
    41: ("HIFLOAT4", ""),
    42: ("HIFLOAT4_SCALE", ""),
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


def stored_type(code: int) -> Stored:
    """The element type of a number; one that is not known is named by it and cannot be read."""
    name, dtype = _TYPES.get(code, (f"data_type {code}", ""))
    return Stored(name, dtype, DTYPES[dtype].bits if dtype else 0)


def format_name(code: int) -> str:
    """The name of a layout; one that is not known is named by its number."""
    return _FORMATS[code] if 0 <= code < len(_FORMATS) else f"format {code}"


def layout(code: int) -> str:
    """The layout as a tensor says it: "" where the axes have no names."""
    return "" if format_name(code) == "ND" else format_name(code)
