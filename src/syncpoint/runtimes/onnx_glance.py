"""A glance at an ONNX file: what it says of itself, without its weights and without a session."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path

from syncpoint.errors import FormatError
from syncpoint.runtimes.loading import one_line
from syncpoint.runtimes.protocol import InputSpec

_LARGEST = 512 << 20
"""Files beyond this are not parsed just to be described."""
_NAMES = {
    1: "f32",
    10: "f16",
    11: "f64",
    16: "bf16",
    2: "u8",
    3: "i8",
    6: "i32",
    7: "i64",
    9: "bool",
}
_FLOATS = (1, 10, 11, 16)


@dataclass(frozen=True)
class Glance:
    """What was seen."""

    ops: int
    precision: str
    """Element type of most of its floating-point weights; "" where it has none."""
    inputs: tuple[InputSpec, ...]


def glance(path: Path) -> Glance | None:
    """What the file says; None where it cannot be read here or is too large for a glance."""
    if find_spec("onnx") is None or path.stat().st_size > _LARGEST:
        return None
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise FormatError(f"{path.name} as ONNX", one_line(error)) from error
    graph = model.graph
    weights: Counter[int] = Counter()
    for weight in graph.initializer:
        if weight.data_type in _FLOATS:
            weights[weight.data_type] += prod(weight.dims)
    given = {weight.name for weight in graph.initializer}
    declared = [value for value in graph.input if value.name not in given]
    kinds = weights or Counter(
        v.type.tensor_type.elem_type for v in declared if v.type.tensor_type.elem_type in _FLOATS
    )
    precision = _NAMES[kinds.most_common(1)[0][0]] if kinds else ""
    if not len(graph.node):
        raise FormatError(f"{path.name} as ONNX", "no ops in it")
    return Glance(len(graph.node), precision, tuple(_spec(value) for value in declared))


def _spec(value: object) -> InputSpec:
    kind = value.type.tensor_type  # type: ignore[attr-defined]
    shape = None
    if kind.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)
    return InputSpec(value.name, shape, _NAMES.get(kind.elem_type, ""))  # type: ignore[attr-defined]
