"""Plan the comparison of a GE dump with an FX dump: pair each GE op, its inputs (by producer or
equal values) and outputs with nodes of the FX graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncpoint.ascend.dumps.graph_text import GraphOp
from syncpoint.ascend.matching.device_views import graph_view
from syncpoint.ascend.matching.torchair.fused_ops import (
    ExternalInput,
    external_inputs,
    fx_nodes,
    fx_output,
)
from syncpoint.ascend.matching.torchair.planner import (
    MOVES_ONLY,
    GraphEntry,
    GraphPlanner,
    ReferenceOps,
    TensorLookup,
    unmatched_tensors,
)
from syncpoint.errors import SyncpointError
from syncpoint.matching.views import View
from syncpoint.run.model import Op, Role, Tensor

_INPUT_TYPES = frozenset({"", "Data", "RefData", "Variable", "VariableV2"})
"""Types of ops that compute nothing; "" if the graph does not say the type."""

_VALUE_PRESERVING_TYPES = frozenset(
    {
        *("Cast", "TransData", "Identity", "Reshape", "Flatten", "FlattenV2", "ExpandDims"),
        *("Squeeze", "SqueezeV2", "SqueezeV3", "Unsqueeze", "UnsqueezeV2", "UnsqueezeV3"),
    }
)
"""Types of ops whose output is their first input in another dtype or shape."""

_MAX_PRESERVING_OPS = 64
"""Maximum number of such ops in a row to look through."""

_MAX_COMPARED_ELEMENTS = 4096
"""Elements that decide whether two tensors of the FX dump are the same."""


class FxPlanner(GraphPlanner):
    """Pairs the ops of a device with the nodes of the FX graph."""

    evidence = "the tensor of the FX graph that the GE graph names"

    def _pair_op(self, entry: GraphEntry, op: Op, reference: ReferenceOps) -> Iterator[GraphEntry]:
        names = self._names.get(entry.graph)
        parts = names.parts(op.key.op) if names is not None else ()
        has_nodes = any(fx_nodes(part) for part in parts)
        if not has_nodes and any(moving_type in op.type for moving_type in MOVES_ONLY):
            yield from self._pair_with_own_input(entry, op, extra=bool(parts))
            return
        if not parts:
            for tensor in self._tensors(entry, op):
                yield self._unpaired(entry, tensor, "the graph has no op of this name")
            return
        self._explain_nodes(op, parts, reference)
        inputs = external_inputs(parts)
        for tensor in self._tensors(entry, op):
            if tensor.key.role is Role.INPUT:
                lookup = self._find_input(entry, op, parts, inputs, tensor, reference)
            else:
                lookup = self._find_output(parts, tensor.key.index, reference)
            yield self._pair_tensor(entry, tensor, lookup, reference)
        for part, role in ((parts[0], Role.INPUT), (parts[-1], Role.OUTPUT)):
            for node in fx_nodes(part):
                yield from unmatched_tensors(entry.graph, reference, node, role)

    def _explain_nodes(self, op: Op, parts: tuple[GraphOp, ...], reference: ReferenceOps) -> None:
        for part in parts:
            for node in fx_nodes(part):
                reference.why_unused.setdefault(node, f"inside of the device's op {op.key.op}")

    def _find_output(
        self, parts: tuple[GraphOp, ...], index: int, reference: ReferenceOps
    ) -> TensorLookup:
        output = fx_output(parts[-1], index)
        if output is None:
            return TensorLookup(why=f"the graph names no tensor of the FX graph for output {index}")
        return reference.find(output[0], Role.OUTPUT, output[1])

    def _find_input(
        self,
        entry: GraphEntry,
        op: Op,
        parts: tuple[GraphOp, ...],
        inputs: list[ExternalInput],
        tensor: Tensor,
        reference: ReferenceOps,
    ) -> TensorLookup:
        index = tensor.key.index
        count = sum(each.key.role is Role.INPUT for each in self._tensors(entry, op))
        external = inputs[index] if index < len(inputs) and len(inputs) == count else None
        reader, argument = (parts[0], index) if external is None else (external.op, external.index)
        nodes = fx_nodes(reader)
        if not nodes:
            by_index = TensorLookup(
                why=f"the graph names no tensor of the FX graph for {reader.name}"
            )
        else:
            by_index = reference.find(nodes[0], Role.INPUT, argument)
        is_sure = len(parts) == 1 and bool(nodes)
        is_sure = is_sure and reference.count(nodes[0], Role.INPUT) == count
        by_index = _replace_lookup(by_index, sure=is_sure, extra=reader is not parts[0])
        produced = self._find_producer_output(entry, external, reference)
        if produced is None or produced.tensor is None:
            return by_index if produced is None or not produced.why else produced
        if by_index.tensor is not None and self._has_view(tensor, by_index.tensor):
            is_only_input = reference.count(nodes[0], Role.INPUT) == 1
            if is_only_input or self._has_same_values(by_index.tensor, produced.tensor):
                return by_index
            argument_lookup = self._find_argument(nodes[0], produced.tensor, reference)
            return by_index if argument_lookup is None else argument_lookup
        if self._has_view(tensor, produced.tensor):
            note = "compared with the output of its producer in the FX graph"
            return _replace_lookup(produced, note=note, extra=by_index.tensor is None)
        return by_index

    def _find_producer_output(
        self, entry: GraphEntry, external: ExternalInput | None, reference: ReferenceOps
    ) -> TensorLookup | None:
        """The FX output of the producer of an input; None if it is not known.

        An FX node may become several ops. The FX graph does not have the values between them, and
        no argument of the node equals them, whatever its shape.
        """
        if external is None:
            return None
        producer, output = external.op.inputs[external.index]
        ops = self._names[entry.graph].graph.ops
        for _ in range(_MAX_PRESERVING_OPS):
            op = ops.get(producer)
            if op is None or op.type in _INPUT_TYPES or "Const" in op.type:
                return None
            node_output = fx_output(op, output)
            if node_output is not None:
                lookup = reference.find(node_output[0], Role.OUTPUT, node_output[1])
                return lookup if lookup.tensor is not None else None
            if op.type not in _VALUE_PRESERVING_TYPES or not op.inputs:
                break
            producer, output = op.inputs[0]
        return TensorLookup(why=f"made by {producer}, which the FX graph does not have")

    def _find_argument(
        self, node: str, value: Tensor, reference: ReferenceOps
    ) -> TensorLookup | None:
        """The argument of a node with the same values as a tensor; None if not exactly one has."""
        op = reference.op(node)
        assert op is not None
        arguments = [
            tensor
            for (role, _), tensor in reference.tensors[op.key].items()
            if role is Role.INPUT and self._has_same_values(tensor, value)
        ]
        if len(arguments) != 1:
            return None
        note = f"the FX node has it as argument {arguments[0].key.index}"
        return TensorLookup(tensor=arguments[0], note=note)

    def _has_view(self, target: Tensor, reference: Tensor) -> bool:
        if target.key in self._target.reduced or reference.key in self._reference.reduced:
            return True
        return isinstance(graph_view(self._target.run, target, reference), View)

    def _has_same_values(self, first: Tensor, second: Tensor) -> bool:
        """Whether two tensors of the FX dump start with the same values."""
        if first.key == second.key:
            return True
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return False
        run, end = self._reference.run, min(first.count, _MAX_COMPARED_ELEMENTS)
        try:
            windows = [np.ascontiguousarray(run.window(t, 0, end)) for t in (first, second)]
        except SyncpointError:
            return True
        return windows[0].tobytes() == windows[1].tobytes()


def _replace_lookup(
    lookup: TensorLookup, *, note: str | None = None, sure: bool = True, extra: bool = False
) -> TensorLookup:
    return TensorLookup(
        tensor=lookup.tensor,
        why=lookup.why,
        damage=lookup.damage,
        note=lookup.note if note is None else note,
        extra=extra,
        sure=sure,
    )
