"""The element types of ONNX by their numbers; needs neither onnx nor onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[int, str] = {
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
CODES = {name: number for number, name in NAMES.items()}
