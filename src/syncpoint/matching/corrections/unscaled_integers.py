"""Unpair quantized integers of which only one side records the scale: their dequantized values are
compared."""

from __future__ import annotations

from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import DTYPES, Kind


def drop_unscaled_integers(work: Workspace) -> None:
    """Unpair the outputs of quantizing ops if only one side records their scale: the dequantized
    tensors are compared instead."""
    target_graph, reference_graph = work.graphs
    for target, reference in list(work.to_reference.items()):
        if {target_graph.class_of(target), reference_graph.class_of(reference)} != {"quantize"}:
            continue
        tensors = [g.slots[s][0] for g, s in ((target_graph, target), (reference_graph, reference))]
        has_scale = [tensor.quantization is not None for tensor in tensors]
        if has_scale[0] != has_scale[1] and all(DTYPES[t.dtype].kind is Kind.INT for t in tensors):
            work.unpair(target)
            detail = "holds integers whose scale one side does not record"
            work.explain(TARGET, target, f"made from {reference}; {detail}", final=True)
            work.explain(REFERENCE, reference, f"{target} {detail}", final=True)
