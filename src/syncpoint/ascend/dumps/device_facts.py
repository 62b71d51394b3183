"""What a device dump says of one tensor beyond what every run can hold."""

from __future__ import annotations

from typing import Any

from syncpoint.ascend.dumps.device_header import Block
from syncpoint.ascend.dumps.device_types import format_name, stored_type
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run


def facts_of(run: Run, tensor: Tensor) -> dict[str, Any]:
    """What a dump says of a tensor beyond what every run can hold."""
    op = run.op(tensor.key.op)
    said = op.attributes if op is not None else {}
    # Of an op that was executed for several tokens, each execution has facts of its own.
    said = said.get("parts", {}).get(str(tensor.key.part), said)
    listed = said.get(f"{tensor.key.role}s", ())
    return dict(listed[tensor.key.index]) if tensor.key.index < len(listed) else {}


def block_facts(block: Block) -> dict[str, Any]:
    """What the header of a dump file says of one tensor, as an attribute of its op."""
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
