"""Write the tensors of a program's nodes with metadata entries: all of them, or as Apple's filter
selects; category of a node, getitem, model outputs.

All tensors are written with what a run of ours knows of them. A filter selects as Apple's
`save_intermediates` does, to the byte. The category of a node in `metadata.json` is inputs, outputs
or intermediates.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.dumps.aimodelintermediates.save_folder import IntermediatesWriter
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import make_entry_facts
from syncpoint.dumps.aimodelintermediates.widened_values import widen
from syncpoint.errors import CaptureError, Unsupported, describe_error
from syncpoint.intermediates.run_nodes import input_paths_of_nodes, unpack_weight
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.runtimes.torch.arrays import dtype_name, to_numpy
from syncpoint.runtimes.torch.node_metadata import (
    collect_attributes,
    describe_op,
    fetch_attribute,
    is_op,
)
from syncpoint.runtimes.torch.program import Edges
from syncpoint.runtimes.torch.tree_paths import output_paths

NodeFilter = Callable[[Node, Any], bool]


def list_output_names(program: ExportedProgram) -> set[str]:
    """List the nodes that Apple's tools call outputs: also those with new values of buffers."""
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    return {leaf.name for leaf in pytree.tree_leaves(list(output.args)) if isinstance(leaf, Node)}


def categorize_node(node: Node, outputs: set[str]) -> str:
    """Return the category of a node's entry."""
    if node.op == "placeholder":
        return "inputs"
    return "outputs" if node.name in outputs else "intermediates"


@dataclass(frozen=True)
class _WrittenTensor:
    """The entry and file of a tensor."""

    name: str
    file: str
    version: int
    """How often its memory had been written to when the tensor was saved."""


class AllTensorsWriter:
    """Writes the tensors of all nodes of one program."""

    def __init__(
        self,
        writer: IntermediatesWriter,
        output_names: set[str],
        program: ExportedProgram,
        module: GraphModule,
    ) -> None:
        self.notes: list[str] = []
        self.devices: set[str] = set()
        self._writer = writer
        self._output_names = output_names
        self._module = module
        nodes = list(module.graph.nodes)
        self._parameter_nodes = [
            node
            for node in nodes
            if node.op == "get_attr"
            and isinstance(fetch_attribute(module, str(node.target)), torch.Tensor)
        ]
        targets = {str(node.target) for node in self._parameter_nodes}
        self._edges = Edges({target: target for target in targets})
        self._input_paths = input_paths_of_nodes(
            program, [n.name for n in nodes if n.op == "placeholder"]
        )
        self._model_outputs = self._find_model_outputs(program, module)
        self._written: dict[Edge, _WrittenTensor] = {}

    def __call__(self, node: Node, value: object, env: Mapping[Node, Any]) -> None:
        """Write the tensors in the value of a node."""
        if node.op in ("placeholder", "get_attr") or node.target is operator.getitem:
            edge = self._edges.edge_of(node)
            if edge is None or not isinstance(value, torch.Tensor):
                return
            if node.target is operator.getitem:
                self._write_getitem(node, edge, value)
            elif edge in self._written:  # two nodes may fetch one parameter
                self._add_second_name(node, self._written[edge], value)
            else:
                self._write_tensor(node, node.name, edge, value, None)
        elif is_op(node):
            self._write_outputs(node, value, env)

    def write_states(self) -> None:
        """Write the new values of the buffers that the program wrote to, after it has run."""
        for node in self._parameter_nodes:
            edge = self._edges.edge_of(node)
            written = self._written.get(edge) if edge is not None else None
            value = fetch_attribute(self._module, str(node.target))
            if edge is not None and written is not None and written.version != _version(value):
                state = Edge(edge.op, role=Role.STATE)
                if state not in self._written:
                    self._write_tensor(node, f"{node.name}!state", state, value, None)

    def _write_outputs(self, node: Node, node_value: object, env: Mapping[Node, Any]) -> None:
        op: Op | None = replace(
            describe_op(node),
            inputs=self._edges.inputs_of(node),
            attributes=collect_attributes(node, lambda n: env.get(n, n)),
        )
        for index, value in enumerate(pytree.tree_leaves(node_value)):
            if isinstance(value, torch.Tensor):
                name = f"{node.name}:{index}" if index else node.name
                if self._write_tensor(node, name, Edge(OpKey(node.name), index), value, op):
                    op = None

    def _write_tensor(
        self, node: Node, name: str, edge: Edge, value: torch.Tensor, op: Op | None
    ) -> bool:
        """Write a tensor; returns whether NumPy can hold it."""
        value = unpack_weight(value)
        dense = value.dequantize() if value.is_quantized else value
        try:
            array = to_numpy(dense)
        except Unsupported as error:
            self.notes.append(f"{name} was not saved: {error}")
            return False
        dtype = DTYPES[dtype_name(dense.dtype)]
        self.devices.add(str(value.device))
        tensor = Tensor(
            TensorKey(edge.op, edge.role, edge.index),
            dtype.name,
            tuple(array.shape),
            strides=tuple(dense.stride()) if dense.layout is torch.strided else None,
            device=str(value.device),
            requires_grad=value.requires_grad,
            name=self._input_paths.get(name, "") if node.op == "placeholder" else "",
        )
        outputs = [
            replace(tensor, key=key, name=path, alias_of=str(tensor.key))
            for key, path in self._model_outputs.get(edge, ())
        ]
        file = self._writer.reserve_file(name)
        self._writer.write_array(file, widen(array, dtype))
        facts = make_entry_facts(tensor, op, outputs)
        self._add_entry(node, name, file, dense, facts)
        self._written[edge] = _WrittenTensor(name, file, _version(value))
        return True

    def _write_getitem(self, node: Node, edge: Edge, value: torch.Tensor) -> None:
        """Name the file of the op's output for a getitem; write it anew if it has changed."""
        written = self._written.get(edge)
        if written is None:
            return
        if written.version == _version(value):
            self._add_second_name(node, written, value)
            return
        key = OpKey(node.name)
        op = Op(key, "getitem", (edge,), origins=(node.name,))
        self._write_tensor(node, node.name, Edge(key), value, op)

    def _add_second_name(self, node: Node, written: _WrittenTensor, value: torch.Tensor) -> None:
        self._add_entry(node, node.name, written.file, value, {"same_as": written.name})

    def _add_entry(
        self, node: Node, name: str, file: str, value: torch.Tensor, facts: Mapping[str, Any]
    ) -> None:
        self._writer.add_entry(
            categorize_node(node, self._output_names if name == node.name else set()),
            name,
            node.op,
            str(node.target),
            file,
            tuple(value.shape),
            str(value.dtype),
            facts,
        )

    def _find_model_outputs(
        self, program: ExportedProgram, module: GraphModule
    ) -> dict[Edge, list[tuple[TensorKey, str]]]:
        """Find the tensors that are model outputs: the key and path of each output, by edge."""
        outputs: dict[Edge, list[tuple[TensorKey, str]]] = {}
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        leaves = pytree.tree_leaves(output.args[0])
        paths = output_paths(program.call_spec.out_spec)
        for position, (leaf, path) in enumerate(zip(leaves, paths, strict=False)):
            edge = self._edges.edge_of(leaf) if isinstance(leaf, Node) else None
            if edge is not None:
                key = TensorKey(edge.op, Role.MODEL_OUTPUT, position)
                outputs.setdefault(edge, []).append((key, path))
        return outputs


def _version(value: torch.Tensor) -> int:
    try:
        return int(value._version)
    except RuntimeError:  # tensors of inference mode have no version
        return -1


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
