"""Read type, attributes (as JSON), module and source lines of an ONNX node, and whether it is
random or a constant.

Exporters write metadata into the nodes. PyTorch's (`dynamo=True`) has the FX node, the modules and
the stack of the user's lines; its optimiser adds the names of the rules that it applied.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from syncpoint.run.model import Frame
from syncpoint.runtimes.onnx.element_types import DTYPE_NAMES
from syncpoint.runtimes.parse_stack_trace import parse_frames, strip_call_number

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_STACK = "pkg.torch.onnx.stack_trace"
_RULE = "pkg.onnxscript.rewriter.rule_name"
_TORCH = re.compile(r"[\\/](site|dist)-packages[\\/]torch[\\/]")
_MAX_LIST_CHARACTERS = 1 << 16
"""Longest list in metadata; a longer one is not from an exporter."""
_MAX_ATTRIBUTE_ELEMENTS = 64
"""Largest tensor attribute whose values are recorded."""
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli"}
)


@dataclass(frozen=True)
class ExporterMetadata:
    """What an exporter wrote about a node."""

    fx: str = ""
    """The FX node that it was exported from."""
    module: str = ""
    module_type: str = ""
    source: tuple[Frame, ...] = ()
    rule: str = ""
    """The rewrite rules of the exporter's optimiser that created it."""


def read_metadata(node: ir.Node) -> ExporterMetadata:
    """Read the exporter's metadata of a node; empty where there is none."""
    metadata = node.metadata_props
    scopes, classes = (
        _parse_names(metadata.get(_SCOPES, "")),
        _parse_names(metadata.get(_CLASSES, "")),
    )
    return ExporterMetadata(
        scopes[-1] if scopes else "",
        strip_call_number(scopes[-2]) if len(scopes) > 1 else "",
        classes[-2].rpartition(".")[2] if len(classes) > 1 else "",
        _user_frames(metadata.get(_STACK, "")),
        metadata.get(_RULE, ""),
    )


def type_of(node: ir.Node) -> str:
    """Return the type, with the domain if it is not ONNX's: `Conv`, `com.microsoft.FusedMatMul`."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def is_random(node: ir.Node) -> bool:
    """Whether the node generates random numbers."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
        training = ir.convenience.get_const_tensor(node.inputs[2])
        return training is None or bool(training.numpy().any())
    return node.op_type in _RANDOM


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Return the attributes as JSON values, with the node's name and the rules that created it."""
    attributes: dict[str, Any] = {}
    if node.name:
        attributes["node"] = node.name
    rule = node.metadata_props.get(_RULE)
    if rule:
        attributes["rewritten by"] = rule
    for name, attribute in node.attributes.items():
        attributes[name] = _to_json(attribute)
    return attributes


def _to_json(attribute: ir.Attr) -> Any:
    kind, value = attribute.type, attribute.value
    if kind == ir.AttributeType.TENSOR:
        if value.size > _MAX_ATTRIBUTE_ELEMENTS:
            return f"{DTYPE_NAMES.get(int(value.dtype), value.dtype)}{list(value.shape)}"
        return _array_to_json(value.numpy())
    if kind in (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING):
        return value
    if kind in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return list(value)
    return str(kind).rpartition(".")[2].lower()


def _array_to_json(array: np.ndarray) -> Any:
    if array.dtype.kind in "biuf":
        return array.tolist()
    return array.astype(np.float64).tolist() if array.dtype.kind == "V" else str(array.tolist())


def _parse_names(text: str) -> list[str]:
    """Parse a list of strings in Python's notation; anything else gives an empty list."""
    if not text or len(text) > _MAX_LIST_CHARACTERS:
        return []
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return names if isinstance(names, list) and all(isinstance(n, str) for n in names) else []


def _user_frames(text: str) -> tuple[Frame, ...]:
    """The user's lines, innermost last; torch's own lines where there are no others."""
    frames = parse_frames(text)
    return tuple([f for f in frames if not _TORCH.search(f.file)] or frames)


def is_constant(node: ir.Node) -> bool:
    """Whether a node is a constant, which is recorded as a parameter."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")
