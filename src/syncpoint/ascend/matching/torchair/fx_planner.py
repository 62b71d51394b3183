"""The plan for a GE dump against the FX graph that it was made from.

The graph says of every output of an op which tensor of the FX graph it is. Inputs go by their
number; where the graph tells who makes an input, the FX node's argument that holds this maker's
result is taken, so that arguments in another order are not mixed up.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncpoint.ascend.dumps.graph_text import GraphOp
from syncpoint.ascend.matching.device_views import graph_view
from syncpoint.ascend.matching.torchair.fused_ops import (
    Outside,
    fx_nodes,
    fx_output,
    outside_inputs,
)
from syncpoint.ascend.matching.torchair.graph_plan import GraphEntry
from syncpoint.ascend.matching.torchair.planner import MOVES_ONLY, GraphPlanner
from syncpoint.ascend.matching.torchair.reference_lookup import Found, Others
from syncpoint.ascend.matching.torchair.unmatched_reference import unmatched_tensors
from syncpoint.errors import SyncpointError
from syncpoint.matching.views import View
from syncpoint.run.model import Op, Role, Tensor

_GIVEN = frozenset({"", "Data", "RefData", "Variable", "VariableV2"})
"""Types of ops that make nothing; "" where the graph does not say."""
_KEEPS_VALUES = frozenset(
    {
        *("Cast", "TransData", "Identity", "Reshape", "Flatten", "FlattenV2", "ExpandDims"),
        *("Squeeze", "SqueezeV2", "SqueezeV3", "Unsqueeze", "UnsqueezeV2", "UnsqueezeV3"),
    }
)
"""Types of ops whose output is their first input in another type or shape."""
_FAR = 64
"""Such ops in a row that are seen through."""
_LOOKED_AT = 4096
"""Elements by which two tensors of the FX dump are known to be the same."""


class FxPlanner(GraphPlanner):
    """Pairs a device's ops with nodes of the FX graph."""

    evidence = "the tensor of the FX graph that the GE graph names"

    def _op(self, line: GraphEntry, op: Op, others: Others) -> Iterator[GraphEntry]:
        names = self._names.get(line.graph)
        parts = names.parts(op.key.op) if names is not None else ()
        named = any(fx_nodes(part) for part in parts)
        if not named and any(kind in op.type for kind in MOVES_ONLY):
            yield from self._moved(line, op, extra=bool(parts))
            return
        if not parts:
            for tensor in self._tensors(line, op):
                yield self._lonely(line, tensor, "the graph has no op of this name")
            return
        self._explain(op, parts, others)
        outside = outside_inputs(parts)
        for tensor in self._tensors(line, op):
            if tensor.key.role is Role.INPUT:
                found = self._input(line, op, parts, outside, tensor, others)
            else:
                found = self._output(parts, tensor.key.index, others)
            yield self._with(line, tensor, found, others)
        for part, role in ((parts[0], Role.INPUT), (parts[-1], Role.OUTPUT)):
            for node in fx_nodes(part):
                yield from unmatched_tensors(line.graph, others, node, role)

    def _explain(self, op: Op, parts: tuple[GraphOp, ...], others: Others) -> None:
        for part in parts:
            for node in fx_nodes(part):
                others.explained.setdefault(node, f"inside of the device's op {op.key.op}")

    def _output(self, parts: tuple[GraphOp, ...], index: int, others: Others) -> Found:
        said = fx_output(parts[-1], index)
        if said is None:
            return Found(why=f"the graph names no tensor of the FX graph for output {index}")
        return others.find(said[0], Role.OUTPUT, said[1])

    def _input(
        self,
        line: GraphEntry,
        op: Op,
        parts: tuple[GraphOp, ...],
        outside: list[Outside],
        tensor: Tensor,
        others: Others,
    ) -> Found:
        index = tensor.key.index
        count = sum(t.key.role is Role.INPUT for t in self._tensors(line, op))
        reads = outside[index] if index < len(outside) and len(outside) == count else None
        reader, place = (parts[0], index) if reads is None else (reads.op, reads.place)
        nodes = fx_nodes(reader)
        if not nodes:
            by_number = Found(why=f"the graph names no tensor of the FX graph for {reader.name}")
        else:
            by_number = others.find(nodes[0], Role.INPUT, place)
        like = len(parts) == 1 and bool(nodes) and others.count(nodes[0], Role.INPUT) == count
        by_number = _replaced(by_number, sure=like, extra=reader is not parts[0])
        made = self._made(line, reads, others)
        if made is None or made.tensor is None:
            return by_number if made is None or not made.why else made
        if by_number.tensor is not None and self._fits(tensor, by_number.tensor):
            alone = others.count(nodes[0], Role.INPUT) == 1
            if alone or self._same(by_number.tensor, made.tensor):
                return by_number
            swapped = self._argument(nodes[0], made.tensor, others)
            return by_number if swapped is None else swapped
        if self._fits(tensor, made.tensor):
            note = "compared with what its producer made in the FX graph"
            return _replaced(made, note=note, extra=by_number.tensor is None)
        return by_number

    def _made(self, line: GraphEntry, reads: Outside | None, others: Others) -> Found | None:
        """What the maker of an input made in the FX graph; None where it cannot be known.

        An FX node may become several ops. What those in between make the FX graph does not have,
        and no argument of the node is it, whatever its shape.
        """
        if reads is None:
            return None
        producer, output = reads.op.inputs[reads.place]
        ops = self._names[line.graph].graph.ops
        for _ in range(_FAR):
            maker = ops.get(producer)
            if maker is None or maker.type in _GIVEN or "Const" in maker.type:
                return None
            said = fx_output(maker, output)
            if said is not None:
                found = others.find(said[0], Role.OUTPUT, said[1])
                return found if found.tensor is not None else None
            if maker.type not in _KEEPS_VALUES or not maker.inputs:
                break
            producer, output = maker.inputs[0]
        return Found(why=f"made by {producer}, which the FX graph does not have")

    def _argument(self, node: str, made: Tensor, others: Others) -> Found | None:
        """The argument of a node that holds what somebody made; None where there is no one."""
        op = others.op(node)
        assert op is not None
        same = [
            tensor
            for (role, _), tensor in others.tensors[op.key].items()
            if role is Role.INPUT and self._same(tensor, made)
        ]
        if len(same) != 1:
            return None
        note = f"the FX node has it as argument {same[0].key.index}"
        return Found(tensor=same[0], note=note)

    def _fits(self, mine: Tensor, theirs: Tensor) -> bool:
        small = [mine.key in self._target.reduced, theirs.key in self._reference.reduced]
        return any(small) or isinstance(graph_view(self._target.run, mine, theirs), View)

    def _same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors of the FX dump begin with the same values."""
        if one.key == other.key:
            return True
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        run, end = self._reference.run, min(one.count, _LOOKED_AT)
        try:
            first, second = (run.window(t, 0, end) for t in (one, other))
            return np.ascontiguousarray(first).tobytes() == np.ascontiguousarray(second).tobytes()
        except SyncpointError:
            return True


def _replaced(
    found: Found, *, note: str | None = None, sure: bool = True, extra: bool = False
) -> Found:
    said = found.note if note is None else note
    return Found(
        tensor=found.tensor, why=found.why, damage=found.damage, note=said, extra=extra, sure=sure
    )
