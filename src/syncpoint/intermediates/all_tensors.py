"""Every tensor of a program, with what a run of ours knows of it.

An op's output 0 has the name of its node, its output k the name and `:k`. Nodes that take one
output out of several (`getitem`) have their own names besides, for the same file.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.dumps.aimodelintermediates.folder_writer import IntermediatesWriter
from syncpoint.dumps.aimodelintermediates.syncpoint_keys import entry_facts
from syncpoint.dumps.aimodelintermediates.widened_values import widened
from syncpoint.errors import Unsupported
from syncpoint.intermediates.categories import category_of
from syncpoint.intermediates.run_nodes import unpacked
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.runtimes.torch.arrays import dtype_name, to_numpy
from syncpoint.runtimes.torch.edges import Edges
from syncpoint.runtimes.torch.node_metadata import attribute, attributes, describe, is_op
from syncpoint.runtimes.torch.tree_paths import input_path, output_paths


@dataclass(frozen=True)
class _Written:
    """Where a tensor was written."""

    name: str
    file: str
    version: int
    """How often the memory had been written to by then."""


class Complete:
    """Writes all that the nodes of one program give."""

    def __init__(
        self,
        writer: IntermediatesWriter,
        listed: set[str],
        program: ExportedProgram,
        module: GraphModule,
    ) -> None:
        self.notes: list[str] = []
        self.devices: set[str] = set()
        self._writer = writer
        self._listed = listed
        self._module = module
        nodes = list(module.graph.nodes)
        self._fetched = [
            node
            for node in nodes
            if node.op == "get_attr"
            and isinstance(attribute(module, str(node.target)), torch.Tensor)
        ]
        targets = {str(node.target) for node in self._fetched}
        self._edges = Edges({target: target for target in targets})
        self._paths = _input_paths(program, [n.name for n in nodes if n.op == "placeholder"])
        self._outputs_at = self._final(program, module)
        self._written: dict[Edge, _Written] = {}

    def __call__(self, node: Node, result: object, env: Mapping[Node, Any]) -> None:
        """Take what a node gave."""
        if node.op in ("placeholder", "get_attr") or node.target is operator.getitem:
            edge = self._edges.of(node)
            if edge is None or not isinstance(result, torch.Tensor):
                return
            if node.target is operator.getitem:
                self._other_name(node, edge, result)
            elif edge in self._written:  # two nodes may fetch one parameter
                self._same(node, self._written[edge], result)
            else:
                self._tensor(node, node.name, edge, result, None)
        elif is_op(node):
            self._outputs(node, result, env)

    def states(self) -> None:
        """Write the new values of the buffers that the program wrote to, when it has run."""
        for node in self._fetched:
            edge = self._edges.of(node)
            known = self._written.get(edge) if edge is not None else None
            value = attribute(self._module, str(node.target))
            if edge is not None and known is not None and known.version != _version(value):
                state = Edge(edge.op, role=Role.STATE)
                if state not in self._written:
                    self._tensor(node, f"{node.name}!state", state, value, None)

    def _outputs(self, node: Node, result: object, env: Mapping[Node, Any]) -> None:
        op: Op | None = replace(
            describe(node),
            inputs=self._edges.inputs(node),
            attributes=attributes(node, lambda n: env.get(n, n)),
        )
        for index, value in enumerate(pytree.tree_leaves(result)):
            if isinstance(value, torch.Tensor):
                name = f"{node.name}:{index}" if index else node.name
                if self._tensor(node, name, Edge(OpKey(node.name), index), value, op):
                    op = None

    def _tensor(
        self, node: Node, name: str, edge: Edge, value: torch.Tensor, op: Op | None
    ) -> bool:
        """Write a tensor; whether NumPy can hold it."""
        value = unpacked(value)
        shown = value.dequantize() if value.is_quantized else value
        try:
            array = to_numpy(shown)
        except Unsupported as error:
            self.notes.append(f"{name} was not saved: {error}")
            return False
        dtype = DTYPES[dtype_name(shown.dtype)]
        self.devices.add(str(value.device))
        tensor = Tensor(
            TensorKey(edge.op, edge.role, edge.index),
            dtype.name,
            tuple(array.shape),
            strides=tuple(shown.stride()) if shown.layout is torch.strided else None,
            device=str(value.device),
            requires_grad=value.requires_grad,
            name=self._paths.get(name, "") if node.op == "placeholder" else "",
        )
        also = [
            replace(tensor, key=key, name=path, alias_of=str(tensor.key))
            for key, path in self._outputs_at.get(edge, ())
        ]
        file = self._writer.reserve(name)
        self._writer.array(file, widened(array, dtype))
        facts = entry_facts(tensor, op, also)
        self._entry(node, name, file, shown, facts)
        self._written[edge] = _Written(name, file, _version(value))
        return True

    def _other_name(self, node: Node, edge: Edge, value: torch.Tensor) -> None:
        """A getitem: the file of the op's output, unless that was written to since."""
        known = self._written.get(edge)
        if known is None:
            return
        if known.version == _version(value):
            self._same(node, known, value)
            return
        key = OpKey(node.name)
        op = Op(key, "getitem", (edge,), origins=(node.name,))
        self._tensor(node, node.name, Edge(key), value, op)

    def _same(self, node: Node, known: _Written, value: torch.Tensor) -> None:
        self._entry(node, node.name, known.file, value, {"same_as": known.name})

    def _entry(
        self, node: Node, name: str, file: str, value: torch.Tensor, facts: Mapping[str, Any]
    ) -> None:
        self._writer.entry(
            category_of(node, self._listed if name == node.name else set()),
            name,
            node.op,
            str(node.target),
            file,
            tuple(value.shape),
            str(value.dtype),
            facts,
        )

    def _final(
        self, program: ExportedProgram, module: GraphModule
    ) -> dict[Edge, list[tuple[TensorKey, str]]]:
        """Which tensors are model outputs, and where."""
        found: dict[Edge, list[tuple[TensorKey, str]]] = {}
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        leaves = pytree.tree_leaves(output.args[0])
        paths = output_paths(program.call_spec.out_spec)
        for position, (leaf, path) in enumerate(zip(leaves, paths, strict=False)):
            edge = self._edges.of(leaf) if isinstance(leaf, Node) else None
            if edge is not None:
                key = TensorKey(edge.op, Role.MODEL_OUTPUT, position)
                found.setdefault(edge, []).append((key, path))
        return found


def _input_paths(program: ExportedProgram, names: list[str]) -> dict[str, str]:
    """The inputs as the user knows them, by the names of their nodes."""
    spec = program.call_spec.in_spec
    signature = program.module_call_graph[0].signature
    known = tuple(getattr(signature, "forward_arg_names", None) or ())
    places = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    found, _ = pytree.tree_flatten_with_path(places)
    paths = [input_path(path, known) for path, _ in found]
    return dict(zip(names, paths, strict=False))


def _version(value: torch.Tensor) -> int:
    try:
        return int(value._version)
    except RuntimeError:  # tensors of inference mode do not count
        return -1
