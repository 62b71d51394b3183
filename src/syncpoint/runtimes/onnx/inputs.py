"""Inputs that an ONNX graph or file declares: names, shapes and types; open axes are -1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncpoint.runtimes.onnx.element_types import DTYPE_NAMES
from syncpoint.runtimes.protocol import InputSpec

if TYPE_CHECKING:
    import onnx_ir as ir


def list_input_specs(inputs: Sequence[ir.Value], optional: frozenset[str]) -> tuple[InputSpec, ...]:
    """List the inputs that a graph declares; an open axis is -1."""
    specs = []
    for value in inputs:
        name = value.name or ""
        shape = None
        if value.shape is not None:
            shape = tuple(n if isinstance(n, int) else -1 for n in value.shape)
        dtype = DTYPE_NAMES.get(int(value.dtype), "") if value.dtype is not None else ""
        specs.append(InputSpec(name, shape, dtype, name not in optional))
    return tuple(specs)


def parse_input_spec(value: Any) -> InputSpec:
    """Parse an input of a graph from its protobuf message; an open axis is -1."""
    tensor_type = value.type.tensor_type
    shape = None
    if tensor_type.HasField("shape"):
        dims = tensor_type.shape.dim
        shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)
    return InputSpec(value.name, shape, DTYPE_NAMES.get(tensor_type.elem_type, ""))
