"""Writes the tensors that a filter lets pass, as Apple's `save_intermediates` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from syncpoint.dumps.aimodelintermediates.folder_writer import IntermediatesWriter
from syncpoint.errors import CaptureError, describe_error
from syncpoint.intermediates.categories import category_of

NodeFilter = Callable[[Node, Any], bool]


class Filtered:
    """Writes the tensors that a filter lets pass, as Apple's function does."""

    def __init__(self, writer: IntermediatesWriter, listed: set[str], passes: NodeFilter) -> None:
        self._writer = writer
        self._listed = listed
        self._passes = passes

    def __call__(self, node: Node, result: object, _: object) -> None:
        """Take what a node gave."""
        try:
            passes = self._passes(node, result)
        except Exception as error:
            raise CaptureError(
                f"node_filter to judge the node {node.name}", f"it raised {describe_error(error)}"
            ) from error
        if not passes or not isinstance(result, torch.Tensor):
            return
        file = ""
        try:
            tensor = (result.dequantize() if result.is_quantized else result).detach().cpu()
            file = self._writer.reserve(node.name)
            if tensor.dtype is torch.bfloat16:
                tensor = tensor.to(torch.float32)
            array = tensor.numpy()
        except Exception:
            # What NumPy cannot hold is left out there too, and its number stays unused.
            return
        self._writer.array(file, array)
        self._writer.entry(
            category_of(node, self._listed),
            node.name,
            node.op,
            str(node.target),
            file,
            array.shape,
            str(tensor.dtype),
        )
