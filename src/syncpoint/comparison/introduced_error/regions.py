"""Regions: the reference ops that lie between sync points.

Seen from one sync point backwards, the region ends wherever a tensor of the reference is paired
with a recorded target tensor: there the target's own value is fed in. Usually that is one op; it
is more where the target fused or lost some.
"""

from __future__ import annotations

from syncpoint.errors import SyncpointError
from syncpoint.metrics.verdict import Reason
from syncpoint.run.model import WHOLE, Edge, OpKey, Part, Role, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Region


class NoRegion(Exception):
    """Why a region cannot be run, in words for the report."""


def unknown_reason(error: NoRegion | SyncpointError) -> Reason:
    """Why introduced error is not known where a region could not be run."""
    if isinstance(error, SyncpointError):
        return Reason.of_error(None, error)
    return Reason(detail=str(error))


class RegionTooLarge(NoRegion):
    """The ops of a region read and give too many elements to be run in float64."""

    def __init__(self, elements: int, limit: int) -> None:
        self.elements = elements
        super().__init__(
            f"its ops hold {elements:,} elements, above the limit of {limit:,} for float64"
        )


class Regions:
    """Finds regions in the reference, given which of its tensors are paired."""

    def __init__(self, reference: Run, paired: set[TensorKey]) -> None:
        self._run = reference
        self._ops = {op.key: op for op in reference.ops}
        self._order = {op.key: i for i, op in enumerate(reference.ops)}
        self._paired = paired

    def elements(self, region: Region) -> int:
        """How many elements the ops of a region read and give, parameters included."""
        edges = {*region.outputs, *(edge for key in region.ops for edge in self._ops[key].inputs)}
        found = 0
        for edge in edges:
            part = WHOLE if edge.role is Role.PARAMETER else region.part
            tensor = self._run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
            found += tensor.count if tensor is not None else 0
        return found

    def behind(self, op: OpKey, indices: list[int], part: Part) -> Region:
        """The region that ends in outputs `indices` of a reference op."""
        inside: set[OpKey] = set()
        inputs: dict[Edge, None] = {}
        waiting = [op]
        while waiting:
            key = waiting.pop()
            if key in inside:
                continue
            current = self._ops.get(key)
            if current is None:
                raise NoRegion(f"the reference has no record of the op {key}")
            if current.random:
                raise NoRegion(f"{key} draws random numbers")
            inside.add(key)
            for edge in current.inputs:
                if edge.role is Role.PARAMETER:
                    continue
                known = TensorKey(edge.op, edge.role, edge.index, part) in self._paired
                if known or edge.role is not Role.OUTPUT:
                    inputs[edge] = None
                else:
                    waiting.append(edge.op)
        return Region(
            tuple(sorted(inside, key=self._order.__getitem__)),
            tuple(inputs),
            tuple(Edge(op, index) for index in indices),
            part,
        )
