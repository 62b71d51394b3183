"""Ops that read the part beside the one they should: gate and up projection exchanged."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.diagnosis.variants.protocol import Hypothesis, Seen


def siblings(seen: Seen) -> Iterable[Hypothesis]:
    """The op on other parts of what its operands are parts of."""
    for edge, others in seen.siblings.items():
        if edge not in seen.op.inputs:
            continue
        for other, value in others.items():
            made = seen.again({edge: value})
            if made is None:
                continue
            text = f"reads {other.op}{f':{other.index}' if other.index else ''} instead of"
            text += f" {edge.op}{f':{edge.index}' if edge.index else ''}: the parts are swapped"
            yield Hypothesis("parts-exchanged", text, made, simplicity=2)
