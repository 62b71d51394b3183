"""Pairs of integers of which only one side records the scale: they cannot be compared."""

from __future__ import annotations

from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import DTYPES, Kind


def drop_unlike(work: Workspace) -> None:
    """What quantizing ops give, if only one side says for which numbers the integers stand: what is
    made of them is compared."""
    mine, theirs = work.graphs
    for target, reference in list(work.to_reference.items()):
        if {mine.class_of(target), theirs.class_of(reference)} != {"quantize"}:
            continue
        both = [g.slots[s][0] for g, s in ((mine, target), (theirs, reference))]
        known = [tensor.quantization is not None for tensor in both]
        if known[0] != known[1] and all(DTYPES[t.dtype].kind is Kind.INT for t in both):
            work.unpair(target)
            why = "holds integers, and one side does not say what they mean"
            work.explain(TARGET, target, f"made from {reference}; {why}", final=True)
            work.explain(REFERENCE, reference, f"{target} {why}", final=True)
