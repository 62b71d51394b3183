"""Facts of a device dump about a tensor that the data model of a run does not hold."""

from __future__ import annotations

from typing import Any

from syncpoint.ascend.dumps.device_header import Block
from syncpoint.ascend.dumps.device_types import format_name, stored_type
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run


def tensor_facts(run: Run, tensor: Tensor) -> dict[str, Any]:
    """Return the facts of a dump about a tensor."""
    op = run.op(tensor.key.op)
    attributes = op.attributes if op is not None else {}
    # An op that runs for several tokens has facts for each execution.
    attributes = attributes.get("parts", {}).get(str(tensor.key.part), attributes)
    tensors = attributes.get(f"{tensor.key.role}s", ())
    return dict(tensors[tensor.key.index]) if tensor.key.index < len(tensors) else {}


def block_facts(block: Block) -> dict[str, Any]:
    """Return the header's description of a tensor, as an attribute of its op."""
    return {
        "format": format_name(block.format),
        "shape": list(block.shape),
        "original_shape": list(block.original_shape),
        "sub_format": block.sub_format,
        "address": block.address,
        "data_type": block.data_type,
        "stored_type": stored_type(block.data_type).name,
        "size": block.size,
    } | block.facts
