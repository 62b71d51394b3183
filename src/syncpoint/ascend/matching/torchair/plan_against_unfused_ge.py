"""Plan the comparison of a GE dump with a GE dump without fusion: pair ops of one name, fused ops
with their parts, and inputs of a part."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.ascend.dumps.graph_text import GraphOp
from syncpoint.ascend.matching.torchair.fused_ops import ExternalInput, external_inputs
from syncpoint.ascend.matching.torchair.planner import (
    MOVES_ONLY,
    GraphEntry,
    GraphPlanner,
    ReferenceOps,
    TensorLookup,
    unmatched_tensors,
)
from syncpoint.run.model import Op, Role, Tensor


class GePlanner(GraphPlanner):
    """Pairs ops of the same name, and fused ops with the ops that they were made from."""

    evidence = "the same name in the GE graph"

    def _pair_op(self, entry: GraphEntry, op: Op, reference: ReferenceOps) -> Iterator[GraphEntry]:
        name = op.key.op
        if reference.op(name) is not None:
            for tensor in self._tensors(entry, op):
                lookup = reference.find(name, tensor.key.role, tensor.key.index)
                yield self._pair_tensor(entry, tensor, lookup, reference)
            for role in (Role.INPUT, Role.OUTPUT):
                yield from unmatched_tensors(entry.graph, reference, name, role)
            return
        names = self._names.get(entry.graph)
        parts = names.parts(name) if names is not None else ()
        if len(parts) > 1:
            yield from self._pair_fused_op(entry, op, parts, reference)
        elif any(moving_type in op.type for moving_type in MOVES_ONLY):
            yield from self._pair_with_own_input(entry, op, extra=True)
        else:
            for tensor in self._tensors(entry, op):
                yield self._unpaired(entry, tensor, f"the golden dump has no {name}")

    def _pair_fused_op(
        self, entry: GraphEntry, op: Op, parts: tuple[GraphOp, ...], reference: ReferenceOps
    ) -> Iterator[GraphEntry]:
        inputs = external_inputs(parts)
        for part in parts:
            reference.why_unused[part.name] = f"inside of the fused op {op.key.op}"
        for tensor in self._tensors(entry, op):
            if tensor.key.role is Role.INPUT:
                lookup = self._find_input(parts, inputs, tensor, reference)
            else:
                lookup = reference.find(parts[-1].name, Role.OUTPUT, tensor.key.index)
            yield self._pair_tensor(entry, tensor, lookup, reference)

    def _find_input(
        self,
        parts: tuple[GraphOp, ...],
        inputs: list[ExternalInput],
        tensor: Tensor,
        reference: ReferenceOps,
    ) -> TensorLookup:
        index = tensor.key.index
        if index < len(inputs):
            return reference.find(inputs[index].op.name, Role.INPUT, inputs[index].index)
        if not inputs:  # the graph does not say what its ops read
            return reference.find(parts[0].name, Role.INPUT, index)
        return TensorLookup(why=f"the parts of {parts[0].name} ... have {len(inputs)} inputs")
