"""Ops that torch.compile left to eager mode, such as an nn.LSTM: compiled code has no buffers of
them.

Their results show where they enter a compiled graph, or as an output of the model. The eager run
tells which ops computed them. The values are those of the graph that is executed op by op: those of
compiled code may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.run.model import Frame, Kept, Op, OpKey, Role, Tensor
from syncpoint.run.reader import Run

_MAX_DISTANCE = 1e-2
"""Largest relative L2 distance of a value of the graph from the same value of the eager run."""
_MIN_ELEMENTS = 2
"""Smaller inputs of graphs, such as a number for a shape, are equal by chance."""
_PYTHON = "python"
"""Type of the op that is recorded for an output that no graph computes."""


@dataclass(frozen=True)
class UncompiledCode:
    """A value that no compiled graph computes."""

    label: str
    """The input of a graph, or the output of the model, that has this value."""
    ops: tuple[Op, ...]
    """The ops of the eager run that compute it from values of compiled graphs, in order."""


def find_uncompiled_code(graph: Run, eager: Run) -> tuple[UncompiledCode, ...]:
    """The values that Python code computed between or after the graphs, with their ops."""
    search = _EagerOps(graph, eager)
    return tuple(
        UncompiledCode(label, ops)
        for label, tensor, results in _values_from_python(graph)
        if (ops := search.find_ops(tensor, results)) is not None
    )


def _values_from_python(graph: Run) -> Iterator[tuple[str, Tensor, list[Tensor]]]:
    """Inputs of graphs that are no results of a graph, and outputs that no graph computes; with the
    results of ops before each. Later ones may be copies of it."""
    results: list[Tensor] = []
    for tensor in graph.tensors:
        op = graph.op(tensor.key.op)
        if tensor.kept is not Kept.VALUES or not tensor.count:
            continue
        if tensor.key.role is Role.OUTPUT:
            results.append(tensor)
        elif tensor.key.role is Role.INPUT and tensor.count >= _MIN_ELEMENTS:
            if tensor.digest not in {result.digest for result in results}:
                yield str(tensor.key.op), tensor, list(results)
        elif tensor.key.role is Role.MODEL_OUTPUT and op is not None and op.type == _PYTHON:
            yield tensor.name, tensor, results


class _EagerOps:
    """Finds the ops of the eager run behind a value of the graph run."""

    def __init__(self, graph: Run, eager: Run) -> None:
        self._graph = graph
        self._eager = eager
        self._order = {op.key: position for position, op in enumerate(eager.ops)}
        self._compiled_lines: set[Frame] = {op.source[-1] for op in graph.ops if op.source}

    def find_ops(self, tensor: Tensor, results: list[Tensor]) -> tuple[Op, ...] | None:
        """The ops that compute the value of a tensor from values of compiled graphs; None if there
        are none: a graph computes it, or it is a constant of the model."""
        producer = self._find_producer(tensor)
        if producer is None:
            return None
        ops: dict[OpKey, Op] = {}
        waiting, visited = [producer], {producer}
        while waiting:
            op = self._eager.op(waiting.pop())
            if op is None:
                continue
            is_view = op_class(op.type) in TRANSPARENT
            if not is_view and self._is_compiled(op, results, is_last=not ops):
                continue
            reads = [edge.op for edge in op.inputs if edge.role is Role.OUTPUT]
            if not is_view and op.inputs:
                ops[op.key] = op
            waiting += [key for key in reads if key not in visited]
            visited.update(reads)
        in_order = sorted(ops.values(), key=lambda op: self._order[op.key])
        return tuple(in_order) or None

    def _find_producer(self, tensor: Tensor) -> OpKey | None:
        """The op of the eager run whose result is nearest to a value."""
        if tensor.key.role is Role.MODEL_OUTPUT:
            outputs = (t for t in self._eager.tensors if t.key.role is Role.MODEL_OUTPUT)
            return next((t.key.op for t in outputs if t.name == tensor.name), None)
        value = self._graph.values(tensor)
        candidates = [
            (_distance(value, self._eager.values(other)), self._order.get(other.key.op, -1), other)
            for other in self._eager.tensors
            if other.key.role is Role.OUTPUT
            and other.kept is Kept.VALUES
            and (other.shape, other.dtype) == (tensor.shape, tensor.dtype)
        ]
        distance, _, nearest = min(candidates, key=lambda c: c[:2], default=(1.0, 0, None))
        return nearest.key.op if nearest is not None and distance <= _MAX_DISTANCE else None

    def _is_compiled(self, op: Op, results: list[Tensor], is_last: bool) -> bool:
        """Whether a graph computes an op: it has the value, or an op of the same source line. The
        last op before the value may share its line with compiled ops."""
        if not is_last and op.source and op.source[-1] in self._compiled_lines:
            return True
        values = [
            self._eager.values(tensor)
            for tensor in self._eager.tensors
            if tensor.key.op == op.key
            and (tensor.key.role, tensor.kept) == (Role.OUTPUT, Kept.VALUES)
        ]
        return any(
            _distance(value, self._graph.values(result)) <= _MAX_DISTANCE
            for value in values
            for result in results
            if result.count == value.size
        )


def _distance(values: NDArray[Any], others: NDArray[Any]) -> float:
    """Relative L2 distance of two arrays with as many elements."""
    first, second = (np.asarray(v, np.float64).ravel() for v in (values, others))
    size = float(np.linalg.norm(second))
    difference = float(np.linalg.norm(first - second))
    return difference / size if size else float(difference != 0)
