"""Variants of ops that read another part of a tensor, such as gate and up projection swapped."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest


def vary_siblings(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Run the op on other parts of the tensors that its operands are parts of."""
    for edge, others in tested_op.siblings.items():
        if edge not in tested_op.op.inputs:
            continue
        for other, value in others.items():
            output = tested_op.rerun({edge: value})
            if output is None:
                continue
            text = f"reads {other.op}{f':{other.index}' if other.index else ''} instead of"
            text += f" {edge.op}{f':{edge.index}' if edge.index else ''}: the parts are swapped"
            yield Hypothesis("parts-exchanged", text, output, simplicity=2)
