"""Find the region behind a sync point: the reference ops back to the nearest paired tensors that
they read; size limit, and why there is none.

From one sync point backwards, a region ends at every reference tensor that is paired with a
recorded target tensor: the target's value is its input. A region is usually one op; it has more if
the target fused or lacks some.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.metrics.verdict import Reason
from syncpoint.run.model import WHOLE, Edge, OpKey, Part, Role, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Region


class NoRegion(Exception):
    """A region cannot be evaluated; the message is the reason for the report."""


def explain_unknown(error: NoRegion | SyncpointError) -> Reason:
    """The reason why introduced error is unknown if a region could not be evaluated."""
    if isinstance(error, SyncpointError):
        return Reason.of_error(None, error)
    return Reason(detail=str(error))


class RegionTooLarge(NoRegion):
    """A region has too many elements to be evaluated in float64."""

    def __init__(self, elements: int, limit: int) -> None:
        self.elements = elements
        super().__init__(
            f"its ops have {elements:,} elements, more than the limit of {limit:,} for float64"
        )


def find_compared_inputs(
    run: Run, ops: Iterable[OpKey], part: Part, paired: Container[TensorKey]
) -> set[TensorKey]:
    """The paired tensors that ops of a run read: themselves, through ops that are not paired, or
    through ops that only reorder, quantize or dequantize."""
    compared: set[TensorKey] = set()
    waiting = list(ops)
    visited = set(waiting)
    while waiting:
        op = run.op(waiting.pop())
        for edge in op.inputs if op is not None else ():
            key = TensorKey(edge.op, edge.role, edge.index, part)
            producer = run.op(edge.op) if edge.role is Role.OUTPUT else None
            if key in paired:
                compared.add(key)
                if producer is not None and op_class(producer.type) not in TRANSPARENT:
                    continue
            if producer is not None and edge.op not in visited:
                visited.add(edge.op)
                waiting.append(edge.op)
    return compared


class Regions:
    """Finds regions in the reference between its paired tensors."""

    def __init__(self, reference: Run, paired: set[TensorKey]) -> None:
        self._run = reference
        self._ops = {op.key: op for op in reference.ops}
        self._order = {op.key: i for i, op in enumerate(reference.ops)}
        self._paired = paired

    def count_elements(self, region: Region) -> int:
        """The number of elements that the ops of a region read and return, with parameters."""
        edges = {*region.outputs, *(edge for key in region.ops for edge in self._ops[key].inputs)}
        element_count = 0
        for edge in edges:
            part = WHOLE if edge.role is Role.PARAMETER else region.part
            tensor = self._run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
            element_count += tensor.count if tensor is not None else 0
        return element_count

    def find_behind(self, op: OpKey, indices: list[int], part: Part) -> Region:
        """The region that ends in outputs `indices` of a reference op."""
        region_ops: set[OpKey] = set()
        inputs: dict[Edge, None] = {}
        waiting = [op]
        while waiting:
            key = waiting.pop()
            if key in region_ops:
                continue
            current = self._ops.get(key)
            if current is None:
                raise NoRegion(f"the reference has no record of the op {key}")
            if current.random:
                raise NoRegion(f"{key} draws random numbers")
            region_ops.add(key)
            for edge in current.inputs:
                if edge.role is Role.PARAMETER:
                    continue
                is_paired = TensorKey(edge.op, edge.role, edge.index, part) in self._paired
                if is_paired or edge.role is not Role.OUTPUT:
                    inputs[edge] = None
                else:
                    waiting.append(edge.op)
        return Region(
            tuple(sorted(region_ops, key=self._order.__getitem__)),
            tuple(inputs),
            tuple(Edge(op, index) for index in indices),
            part,
        )
