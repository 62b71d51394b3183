"""Writes the tensors that a filter selects, as Apple's `save_intermediates` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from syncpoint.dumps.aimodelintermediates.save_folder import IntermediatesWriter
from syncpoint.errors import CaptureError, describe_error
from syncpoint.intermediates.categories import categorize_node

NodeFilter = Callable[[Node, Any], bool]


class FilteredTensorsWriter:
    """Writes the tensors that a filter selects, to the byte as Apple's function does."""

    def __init__(
        self, writer: IntermediatesWriter, output_names: set[str], node_filter: NodeFilter
    ) -> None:
        self._writer = writer
        self._output_names = output_names
        self._node_filter = node_filter

    def __call__(self, node: Node, value: object, _: object) -> None:
        """Write the value of a node, if the filter selects it and NumPy can hold it."""
        try:
            is_selected = self._node_filter(node, value)
        except Exception as error:
            raise CaptureError(
                f"node_filter failed for the node {node.name}: {describe_error(error)}",
                cure="correct node_filter",
            ) from error
        if not is_selected or not isinstance(value, torch.Tensor):
            return
        file = ""
        try:
            tensor = (value.dequantize() if value.is_quantized else value).detach().cpu()
            file = self._writer.reserve_file(node.name)
            if tensor.dtype is torch.bfloat16:
                tensor = tensor.to(torch.float32)
            array = tensor.numpy()
        except Exception:
            # Apple's function skips what NumPy cannot hold too, and leaves its number unused.
            return
        self._writer.write_array(file, array)
        self._writer.add_entry(
            categorize_node(node, self._output_names),
            node.name,
            node.op,
            str(node.target),
            file,
            array.shape,
            str(tensor.dtype),
        )
