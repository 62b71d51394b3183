"""Outputs that have the origin name of another op of their kind."""

from dataclasses import replace

import numpy as np

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(1)
X = (3 * RNG.standard_normal((4, 6))).astype(np.float32)
WEIGHT = RNG.standard_normal((6, 6)).astype(np.float32)


def swish(x):
    return (x * np.clip(x + 3, 0, 6) / 6).astype(np.float32)


FIRST = swish(X)
MIXED = FIRST @ WEIGHT
SECOND = swish(MIXED)
LAST = np.tanh(SECOND)


def reference():
    return run(
        ("hardswish", "aten.hardswish.default", "", ("x",), FIRST),
        ("mm", "aten.mm.default", "", ("hardswish", "w"), MIXED),
        ("hardswish_1", "aten.hardswish.default", "", ("mm",), SECOND),
        ("tanh", "aten.tanh.default", "", ("hardswish_1",), LAST),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT)],
        outputs=[("tanh", LAST)],
    )


def gate(value):
    return (np.clip(value + 3, 0, 6) / 6).astype(np.float32)


def paired(origins, first=FIRST, second=SECOND):
    """The reference op of each target op, if the target's ops have these origins."""
    mixed = first @ WEIGHT
    plain_run = run(
        ("gate_a", "Div", "", ("x", "c"), gate(X)),
        ("mul_a", "Mul", "", ("x", "gate_a"), first),
        ("mixed", "MatMul", "", ("mul_a", "w"), mixed),
        ("gate_b", "Div", "", ("mixed", "c"), gate(mixed)),
        ("mul_b", "Mul", "", ("mixed", "gate_b"), second),
        ("end", "Tanh", "", ("mul_b",), np.tanh(second)),
        inputs=[("x", X)],
        parameters=[("w", WEIGHT), ("c", np.float32(6))],
        outputs=[("end", np.tanh(second))],
    )
    origins = {"mixed": "mm", "end": "tanh", **origins}
    ops = [replace(op, origins=(origins[op.key.op],)) for op in plain_run.ops]
    target = in_memory(plain_run.info, ops, [(t, plain_run.values(t)) for t in plain_run.tensors])
    matching = match(target, reference(), chain())
    outputs = [p for p in matching.pairs if p.target.role is Role.OUTPUT]
    return {p.target.op.op: p.reference.op.op for p in outputs}


RIGHT = {"mul_a": "hardswish", "mixed": "mm", "mul_b": "hardswish_1", "end": "tanh"}


def test_a_result_with_the_name_of_another_is_paired_with_its_own():
    names = {"gate_a": "hardswish", "mul_a": "hardswish_1", "gate_b": "hardswish", "mul_b": "tanh"}
    assert paired(names) == RIGHT


def test_results_that_bear_each_others_names_change_places():
    names = {"gate_a": "hardswish_1", "mul_a": "hardswish_1"}
    assert paired(names | {"gate_b": "hardswish", "mul_b": "hardswish"}) == RIGHT


def test_the_product_after_a_named_gate_is_paired():
    names = {"gate_a": "hardswish", "mul_a": "tanh", "gate_b": "hardswish_1", "mul_b": "tanh"}
    assert paired(names) == RIGHT


def test_a_name_stays_if_no_other_output_has_its_values():
    """The first result is what it should be, and its name is the second's; that one is wrong."""
    names = {"gate_a": "hardswish", "mul_a": "hardswish_1", "gate_b": "hardswish", "mul_b": "tanh"}
    pairs = paired(names, second=gate(MIXED))
    assert pairs["mul_a"] == "hardswish_1"
    assert "mul_b" not in pairs


def test_a_wrong_result_with_its_own_name_stays_paired():
    names = {"gate_a": "hardswish", "mul_a": "hardswish"}
    pairs = paired(names | {"gate_b": "hardswish_1", "mul_b": "hardswish_1"}, second=FIRST)
    assert pairs == RIGHT
