"""Tables of ONNX's element types, from number to our dtype name and back; importing it needs no
onnx package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncpoint.errors import Unsupported

if TYPE_CHECKING:
    import onnx

DTYPE_NAMES: Mapping[int, str] = {
    1: "f32",
    2: "u8",
    3: "i8",
    4: "u16",
    5: "i16",
    6: "i32",
    7: "i64",
    9: "bool",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    14: "c64",
    15: "c128",
    16: "bf16",
    17: "f8_e4m3fn",
    19: "f8_e5m2",
    21: "u4",
    22: "i4",
}
"""Number of an element type in ONNX -> our name."""
DTYPE_CODES = {name: number for number, name in DTYPE_NAMES.items()}
"""Our name of an element type -> its number in ONNX."""
_SEQUENCE = re.compile(r"seq\(tensor\((\w+)\)\)")
_ONNX_NAMES = {"float": "FLOAT", "double": "DOUBLE"}
"""Names of ONNX Runtime that are not ONNX's in lower case -> ONNX's name."""


def onnx_type_of(value: Any) -> onnx.TypeProto:
    """Return the ONNX type of an OrtValue, without its shape."""
    import onnx
    from onnx import helper

    if value.is_tensor():
        return helper.make_tensor_type_proto(value.element_type(), None)
    match = _SEQUENCE.fullmatch(value.data_type())
    if match is None:
        raise Unsupported(
            f"an op cannot be computed on its own on a value of type {value.data_type()}"
        )
    element = getattr(onnx.TensorProto, _ONNX_NAMES.get(match[1], match[1].upper()))
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
