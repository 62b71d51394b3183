"""Finds the ops to run for a region: those of the file where possible, else the region's own.

The region belongs to the graph that is executed. Where the file has the same inputs and outputs,
its ops are used: they are ONNX's own, and their meaning does not depend on ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Edge
from syncpoint.runtimes.onnx.graph import OnnxGraph
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.protocol import Region


@dataclass(frozen=True)
class RegionOps:
    """The ops of one graph between some of its values."""

    nodes: tuple[ir.Node, ...]
    """In the order of execution."""
    inputs: Mapping[ir.Value, Edge]
    outputs: tuple[ir.Value, ...]
    parameters: tuple[ir.Value, ...]


def find_region_ops(graph: OnnxGraph, region: Region) -> RegionOps:
    """Find the ops to run for a region: those of the file where it has all inputs and outputs of
    the region, else the region's own."""
    _refuse_other_ops(graph, region)
    inputs = {_find_value(graph, edge): edge for edge in region.inputs}
    outputs = [_find_value(graph, edge) for edge in region.outputs]
    file_ops = _find_ops_in_file(graph, inputs, outputs)
    if file_ops is not None:
        return file_ops
    layouts = graph.provenance.layouts
    converted = [value.name for value in (*inputs, *outputs) if value.name in layouts]
    if converted:
        # It was recorded in the layout of the model, but the op reads that of ONNX Runtime.
        raise Unsupported(
            f"{converted[0]} has a layout of ONNX Runtime, which its ops cannot be evaluated in"
        )
    return _slice_graph(inputs, outputs)


def _refuse_other_ops(graph: OnnxGraph, region: Region) -> None:
    """Refuse ops in sub-graphs and ops of other graphs: they cannot be evaluated."""
    for key in region.ops:
        if key.path or key.graph:
            raise Unsupported(f"{key} is inside a sub-graph, so it cannot be evaluated alone")
        if key.op not in graph.nodes:
            raise Unsupported(f"the region has the op {key}, which the model does not have")


def _find_value(graph: OnnxGraph, edge: Edge) -> ir.Value:
    value = graph.value(edge)
    if value is None:
        raise InputError(f"the region has the tensor {edge.op}, which the model does not have")
    return value


def _find_ops_in_file(
    graph: OnnxGraph, inputs: Mapping[ir.Value, Edge], outputs: Sequence[ir.Value]
) -> RegionOps | None:
    """Find the ops in the graph of the file; None where it lacks an input or output."""
    file_inputs = {graph.provenance.value_in_file(value): edge for value, edge in inputs.items()}
    file_outputs = [graph.provenance.value_in_file(value) for value in outputs]
    if None in file_inputs or None in file_outputs:
        return None
    try:
        return _slice_graph(
            {value: edge for value, edge in file_inputs.items() if value is not None},
            [value for value in file_outputs if value is not None],
        )
    except InputError:
        # The file's ops need a value that the executed graph has under another name.
        return None


def _slice_graph(inputs: Mapping[ir.Value, Edge], outputs: list[ir.Value]) -> RegionOps:
    """Find all ops between the inputs and the outputs, which are values of one graph."""
    nodes: dict[ir.Node, None] = {}
    parameters: dict[ir.Value, None] = {}
    pending = list(outputs)
    used_inputs: dict[ir.Value, Edge] = {}
    while pending:
        value = pending.pop()
        if value in inputs:
            used_inputs[value] = inputs[value]
            continue
        producer = value.producer()
        if value.is_initializer() or (producer is not None and is_constant(producer)):
            parameters[value] = None
        elif producer is None:
            raise InputError(f"the region reads {value.name}, which is not among its inputs")
        elif producer not in nodes:
            nodes[producer] = None
            pending += [v for v in producer.inputs if v is not None and v.name]
    last = outputs[0].producer() if outputs else None
    graph = last.graph if last is not None else None
    ordered_nodes = [node for node in graph or () if node in nodes]
    if len(ordered_nodes) != len(nodes):
        raise InputError("the ops of the region belong to several graphs")
    return RegionOps(tuple(ordered_nodes), used_inputs, tuple(outputs), tuple(parameters))
