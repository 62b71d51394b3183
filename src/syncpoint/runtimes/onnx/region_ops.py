"""The ops to run for a region: those of the file where it has the region's ends, else its own.

A region of the graph that is executed is looked up in the graph of the file wherever both have
the values at its ends: there the ops are ONNX's own, with a meaning that does not depend on ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Edge
from syncpoint.runtimes.onnx.graph import Graph
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.protocol import Region


@dataclass(frozen=True)
class Piece:
    """The ops between some values of one graph."""

    nodes: tuple[ir.Node, ...]
    """In the order of execution."""
    inputs: Mapping[ir.Value, Edge]
    outputs: tuple[ir.Value, ...]
    parameters: tuple[ir.Value, ...]


def region_piece(graph: Graph, region: Region) -> Piece:
    """The ops to run: those of the file where it has the ends of the region, else the
    region's own."""
    _refuse_other_ops(graph, region)
    inputs = {_value(graph, edge): edge for edge in region.inputs}
    outputs = [_value(graph, edge) for edge in region.outputs]
    piece = _piece_of_file(graph, inputs, outputs)
    if piece is not None:
        return piece
    layouts = graph.provenance.layouts
    moved = [value.name for value in (*inputs, *outputs) if value.name in layouts]
    if moved:
        # It was recorded in the order of the model, which is not what the op reads.
        raise Unsupported("values in the layout of the model", f"{moved[0]}, which is not")
    return _slice(inputs, outputs)


def _refuse_other_ops(graph: Graph, region: Region) -> None:
    """Only ops at the top of this graph can be run on their own."""
    for key in region.ops:
        if key.path or key.graph:
            raise Unsupported("an op that can be run on its own", f"{key}, inside a sub-graph")
        if key.op not in graph.nodes:
            raise Unsupported(
                "an op that can be run on its own", f"{key}, which the model does not have"
            )


def _value(graph: Graph, edge: Edge) -> ir.Value:
    value = graph.value(edge)
    if value is None:
        raise InputError("a region of this model", "tensors that it does not have")
    return value


def _piece_of_file(
    graph: Graph, inputs: Mapping[ir.Value, Edge], outputs: Sequence[ir.Value]
) -> Piece | None:
    """The piece in the graph of the file; None where that lacks an end of it."""
    starts = {graph.provenance.value_in_file(value): edge for value, edge in inputs.items()}
    ends = [graph.provenance.value_in_file(value) for value in outputs]
    if None in starts or None in ends:
        return None
    try:
        return _slice(
            {value: edge for value, edge in starts.items() if value is not None},
            [value for value in ends if value is not None],
        )
    except InputError:
        # The file's ops need a value that the executed graph has under another name.
        return None


def _slice(given: Mapping[ir.Value, Edge], wanted: list[ir.Value]) -> Piece:
    """All ops between the given values and the wanted ones."""
    nodes: dict[ir.Node, None] = {}
    parameters: dict[ir.Value, None] = {}
    waiting = list(wanted)
    read: dict[ir.Value, Edge] = {}
    while waiting:
        value = waiting.pop()
        if value in given:
            read[value] = given[value]
            continue
        producer = value.producer()
        if value.is_initializer() or (producer is not None and is_constant(producer)):
            parameters[value] = None
        elif producer is None:
            raise InputError(f"values for {value.name}, which the region reads", "none")
        elif producer not in nodes:
            nodes[producer] = None
            waiting += [v for v in producer.inputs if v is not None and v.name]
    graph = wanted[0].producer().graph if wanted and wanted[0].producer() else None  # type: ignore[union-attr]
    order = [node for node in graph or () if node in nodes]
    if len(order) != len(nodes):
        raise InputError("ops of one graph", "ops of several")
    return Piece(tuple(order), read, tuple(wanted), tuple(parameters))
