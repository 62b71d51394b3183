"""What an ONNX graph declares that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncpoint.runtimes.onnx.element_types import NAMES
from syncpoint.runtimes.protocol import InputSpec

if TYPE_CHECKING:
    import onnx_ir as ir


def declared(inputs: Sequence[ir.Value], optional: frozenset[str]) -> tuple[InputSpec, ...]:
    """The inputs of a graph as it declares them."""
    found = []
    for value in inputs:
        name = value.name or ""
        shape = None
        if value.shape is not None:
            shape = tuple(n if isinstance(n, int) else -1 for n in value.shape)
        kind = NAMES.get(int(value.dtype), "") if value.dtype is not None else ""
        found.append(InputSpec(name, shape, kind, name not in optional))
    return tuple(found)


def input_spec_of_proto(value: Any) -> InputSpec:
    """One input of a graph, from its protobuf message."""
    kind = value.type.tensor_type
    shape = None
    if kind.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)
    return InputSpec(value.name, shape, NAMES.get(kind.elem_type, ""))
