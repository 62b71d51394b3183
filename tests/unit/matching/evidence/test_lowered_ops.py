"""Which lowered ops complete their origin if they lie in two places."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.evidence.lowered_ops import _split_pieces
from syncpoint.matching.graph import SlotGraph
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.matching.protocol import Side
from syncpoint.run.model import Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
X = (3 * RNG.standard_normal((4, 6))).astype(np.float32)
WEIGHT = RNG.standard_normal((6, 6)).astype(np.float32)
STEPS = ("add", "max", "min")


def swish(x):
    return (x * np.clip(x + 3, 0, 6) / 6).astype(np.float32)


FIRST = swish(X)
MIXED = FIRST @ WEIGHT


def reference():
    return run(
        ("hardswish", "aten.hardswish.default", "", ("x",), FIRST),
        ("mm", "aten.mm.default", "", ("hardswish", "w"), MIXED),
        ("hardswish_1", "aten.hardswish.default", "", ("mm",), swish(MIXED)),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT)],
        outputs=[("hardswish_1", swish(MIXED))],
    )


def steps(name, source, value, last):
    """A hard swish, op by op."""
    shifted = value + 3
    return [
        (f"add_{name}", "Add", "", (source, "c3"), shifted),
        (f"max_{name}", "Max", "", (f"add_{name}", "c0"), np.maximum(shifted, 0)),
        (f"min_{name}", "Min", "", (f"max_{name}", "c6"), np.clip(shifted, 0, 6)),
        (f"mul_{name}", "Mul", "", (source, f"min_{name}"), last),
    ]


def exchanged(first, second):
    """Two hard swishes; all steps of each but the last have the name of the other."""
    mixed = first @ WEIGHT
    ops = [
        *steps("a", "x", X, first),
        ("mixed", "MatMul", "", ("mul_a", "w"), mixed),
        *steps("b", "mixed", mixed, second),
    ]
    constants = [(f"c{c}", np.float32(c)) for c in (0, 3, 6)]
    plain_run = run(
        *ops,
        inputs=[("x", X)],
        parameters=[("w", WEIGHT), *constants],
        outputs=[("mul_b", second)],
    )
    origins = {"mul_a": "hardswish", "mul_b": "hardswish_1", "mixed": "mm"}
    origins |= {f"{step}_a": "hardswish_1" for step in STEPS}
    origins |= {f"{step}_b": "hardswish" for step in STEPS}
    ops_with_origins = [replace(op, origins=(origins[op.key.op],)) for op in plain_run.ops]
    return in_memory(
        plain_run.info, ops_with_origins, [(t, plain_run.values(t)) for t in plain_run.tensors]
    )


def by_name(target):
    """Pairs by origin, and all pairs."""
    matching = match(target, reference(), chain())
    outputs = [p for p in matching.pairs if p.target.role is Role.OUTPUT]
    named = [p for p in outputs if p.evidence.startswith("made from hardswish")]
    all_pairs = {p.target.op.op: p.reference.op.op for p in outputs}
    return {p.target.op.op: p.reference.op.op for p in named}, all_pairs


def test_steps_with_swapped_names_are_paired_by_values():
    named, every = by_name(exchanged(FIRST, swish(MIXED)))
    assert named == {"mul_a": "hardswish", "mul_b": "hardswish_1"}
    assert every == {**named, "mixed": "mm"}


def test_names_that_values_contradict_pair_no_step():
    """No piece of a lowered op has the output of its origin."""
    wrong = [RNG.standard_normal(X.shape).astype(np.float32) for _ in range(2)]
    named, every = by_name(exchanged(*wrong))
    assert named == {}
    assert not every.keys() & {f"{step}_{which}" for step in STEPS for which in "ab"}


def build_lowered_op(*between):
    """A product, the ops in between, and the two ops that complete it."""
    ops, last = [("mm", "MatMul", "", ("x", "w"), X)], "mm"
    for kind in between:
        ops.append((kind, kind, "", (last,), X))
        last = kind
    ops += [("add", "Add", "", (last, "b"), X), ("relu", "Relu", "", ("add",), X)]
    parameters = [("w", WEIGHT), ("b", WEIGHT[0])]
    plain_run = run(*ops, inputs=[("x", X)], parameters=parameters, outputs=[("relu", X)])
    return SlotGraph(Side.of(plain_run)), [0, len(ops) - 2, len(ops) - 1]


@pytest.mark.parametrize("between", [("QuantizeLinear", "DequantizeLinear"), ("Reshape", "Cast")])
def test_ops_that_compute_nothing_do_not_split_a_lowered_op(between):
    graph, positions = build_lowered_op(*between)
    assert _split_pieces(graph, positions) == [positions]


def test_another_op_in_between_splits_a_lowered_op():
    graph, positions = build_lowered_op("QuantizeLinear", "Tanh", "DequantizeLinear")
    assert _split_pieces(graph, positions) == [positions[:1], positions[1:]]


def test_an_op_that_reads_an_earlier_output_belongs_to_the_lowered_op():
    plain_run = run(
        ("mm", "MatMul", "", ("x", "w"), X),
        ("gate", "Sigmoid", "", ("mm",), X),
        ("also", "Tanh", "", ("gate",), X),
        ("mul", "Mul", "", ("mm", "also"), X),
        ("relu", "Relu", "", ("mul",), X),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT)],
    )
    assert _split_pieces(SlotGraph(Side.of(plain_run)), [0, 3, 4]) == [[0, 3, 4]]
