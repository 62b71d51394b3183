"""The plan for a GE dump against one of the same model without fusion."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.ascend.dumps.graph_text import GraphOp
from syncpoint.ascend.matching.torchair.fused_ops import Outside, outside_inputs
from syncpoint.ascend.matching.torchair.graph_plan import GraphEntry
from syncpoint.ascend.matching.torchair.planner import MOVES_ONLY, GraphPlanner
from syncpoint.ascend.matching.torchair.reference_lookup import Found, Others
from syncpoint.ascend.matching.torchair.unmatched_reference import unmatched_tensors
from syncpoint.run.model import Op, Role, Tensor


class GePlanner(GraphPlanner):
    """Pairs ops of the same name, and fused ones with the ops they were made of."""

    evidence = "the same name in the GE graph"

    def _op(self, line: GraphEntry, op: Op, others: Others) -> Iterator[GraphEntry]:
        name = op.key.op
        if others.op(name) is not None:
            for tensor in self._tensors(line, op):
                found = others.find(name, tensor.key.role, tensor.key.index)
                yield self._with(line, tensor, found, others)
            for role in (Role.INPUT, Role.OUTPUT):
                yield from unmatched_tensors(line.graph, others, name, role)
            return
        names = self._names.get(line.graph)
        parts = names.parts(name) if names is not None else ()
        if len(parts) > 1:
            yield from self._fused(line, op, parts, others)
        elif any(kind in op.type for kind in MOVES_ONLY):
            yield from self._moved(line, op, extra=True)
        else:
            for tensor in self._tensors(line, op):
                yield self._lonely(line, tensor, f"the golden dump has no {name}")

    def _fused(
        self, line: GraphEntry, op: Op, parts: tuple[GraphOp, ...], others: Others
    ) -> Iterator[GraphEntry]:
        outside = outside_inputs(parts)
        for part in parts:
            others.explained[part.name] = f"inside of the fused op {op.key.op}"
        for tensor in self._tensors(line, op):
            if tensor.key.role is Role.INPUT:
                found = self._read(parts, outside, tensor, others)
            else:
                found = others.find(parts[-1].name, Role.OUTPUT, tensor.key.index)
            yield self._with(line, tensor, found, others)

    def _read(
        self,
        parts: tuple[GraphOp, ...],
        outside: list[Outside],
        tensor: Tensor,
        others: Others,
    ) -> Found:
        index = tensor.key.index
        if index < len(outside):
            return others.find(outside[index].op.name, Role.INPUT, outside[index].place)
        if not outside:  # the graph does not say what its ops read
            return others.find(parts[0].name, Role.INPUT, index)
        return Found(why=f"the parts of {parts[0].name} ... have {len(outside)} inputs")
