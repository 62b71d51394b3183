"""What a node of an ONNX graph says of itself: its type, attributes, module, source lines.

Exporters leave what they know in the metadata of the nodes. That of PyTorch (`dynamo=True`)
names the FX node, the modules and the stack of the user's lines; its optimiser adds the names of
the rules it applied.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from syncpoint.run.model import Frame
from syncpoint.runtimes.onnx.element_types import NAMES
from syncpoint.runtimes.parse_stack_trace import parse_frames, strip_call_number

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_STACK = "pkg.torch.onnx.stack_trace"
_RULE = "pkg.onnxscript.rewriter.rule_name"
_TORCH = re.compile(r"[\\/](site|dist)-packages[\\/]torch[\\/]")
_LONGEST = 1 << 16
"""Characters of a list in metadata; what is longer is not from an exporter."""
_FEW = 64
"""Elements of a tensor attribute that are written out."""
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli"}
)


@dataclass(frozen=True)
class Said:
    """What the metadata of a node says."""

    fx: str = ""
    """The FX node it was made from."""
    module: str = ""
    module_type: str = ""
    source: tuple[Frame, ...] = ()
    rule: str = ""
    """The rewrites of the exporter's optimiser that made it."""


def said(node: ir.Node) -> Said:
    """The metadata of a node in our words; empty where there is none."""
    found = node.metadata_props
    scopes, classes = _names(found.get(_SCOPES, "")), _names(found.get(_CLASSES, ""))
    return Said(
        scopes[-1] if scopes else "",
        strip_call_number(scopes[-2]) if len(scopes) > 1 else "",
        classes[-2].rpartition(".")[2] if len(classes) > 1 else "",
        _frames(found.get(_STACK, "")),
        found.get(_RULE, ""),
    )


def type_of(node: ir.Node) -> str:
    """`Conv`, or with its domain where that is not ONNX's own: `com.microsoft.FusedMatMul`."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def is_random(node: ir.Node) -> bool:
    """Whether the node draws random numbers."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
        training = ir.convenience.get_const_tensor(node.inputs[2])
        return training is None or bool(training.numpy().any())
    return node.op_type in _RANDOM


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """The attributes as JSON values, with the name of the node and the rules that made it."""
    found: dict[str, Any] = {}
    if node.name:
        found["node"] = node.name
    rule = node.metadata_props.get(_RULE)
    if rule:
        found["rewritten by"] = rule
    for name, attribute in node.attributes.items():
        found[name] = _plain(attribute)
    return found


def _plain(attribute: ir.Attr) -> Any:
    kind, value = attribute.type, attribute.value
    if kind == ir.AttributeType.TENSOR:
        if value.size > _FEW:
            return f"{NAMES.get(int(value.dtype), value.dtype)}{list(value.shape)}"
        return _numbers(value.numpy())
    if kind in (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING):
        return value
    if kind in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return list(value)
    return str(kind).rpartition(".")[2].lower()


def _numbers(array: np.ndarray) -> Any:
    if array.dtype.kind in "biuf":
        return array.tolist()
    return array.astype(np.float64).tolist() if array.dtype.kind == "V" else str(array.tolist())


def _names(text: str) -> list[str]:
    """A list of strings as Python writes it; empty where it is anything else."""
    if not text or len(text) > _LONGEST:
        return []
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return found if isinstance(found, list) and all(isinstance(n, str) for n in found) else []


def _frames(text: str) -> tuple[Frame, ...]:
    """The user's lines, innermost last; torch's own where there are none."""
    found = parse_frames(text)
    return tuple([f for f in found if not _TORCH.search(f.file)] or found)


def is_constant(node: ir.Node) -> bool:
    """Whether a node stands for a parameter."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")
