"""Products whose bias was moved into what follows."""

from dataclasses import replace

import numpy as np
import pytest

from runs import run
from syncpoint.matching.chain import chain, match
from syncpoint.run.model import Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8)).astype(np.float32)
WEIGHT = RNG.standard_normal((8, 5)).astype(np.float32)
BIAS = (2 + RNG.standard_normal(5)).astype(np.float32)
MEAN, SCALE = RNG.uniform(1, 2, (2, 5)).astype(np.float32)
PRODUCT = X @ WEIGHT
NORMED = ((PRODUCT + BIAS - MEAN) * SCALE).astype(np.float32)


def from_ops(origins, *ops, parameters):
    """A run whose ops say what they were made from."""
    made = run(*ops, inputs=[("x", X)], parameters=parameters, outputs=[(ops[-1][0], ops[-1][4])])
    said = [replace(op, origins=(origins[op.key.op],)) for op in made.ops]
    return in_memory(made.info, said, [(t, made.values(t)) for t in made.tensors])


def reference():
    return from_ops(
        {"linear": "linear", "norm": "norm"},
        ("linear", "aten.linear.default", "up", ("x", "w", "b"), PRODUCT + BIAS),
        ("norm", "aten.batch_norm.default", "norm", ("linear", "m"), NORMED),
        parameters=[("w", WEIGHT.T), ("b", BIAS), ("m", MEAN)],
    )


def target(added, whose="norm"):
    """What adds a constant to the product says it was made from the norm."""
    summed = PRODUCT + added
    return from_ops(
        {"mm": "linear", "add": whose, "mul": "norm"},
        ("mm", "MatMul", "up", ("x", "w"), PRODUCT),
        ("add", "Add", "norm", ("mm", "c"), summed),
        ("mul", "Mul", "norm", ("add", "s"), (summed * SCALE).astype(np.float32)),
        parameters=[("w", WEIGHT), ("c", added.reshape(1, 5)), ("s", SCALE)],
    )


def paired(target):
    found = match(target, reference(), chain())
    pairs = {p.target.op.op: p.reference.op.op for p in found.pairs if p.target.role is Role.OUTPUT}
    return pairs, {u.key.op.op: u.detail for u in found.unmatched() if u.side == "target"}


def test_the_sum_is_the_counterpart_if_it_adds_the_bias_alone():
    pairs, _ = paired(target(BIAS))
    assert pairs["add"] == "linear" and "mm" not in pairs


def test_a_bias_that_went_into_another_constant_leaves_no_counterpart():
    pairs, details = paired(target(BIAS - MEAN))
    assert "linear" not in pairs.values()
    assert details["mm"] == "inside linear, before its bias"
    assert pairs["mul"] == "norm"


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_wrong_bias_that_says_where_it_is_from_stays_paired(factor):
    """It is a fault, not a fold."""
    pairs, _ = paired(target((factor * BIAS).astype(np.float32), whose="linear"))
    assert pairs["add"] == "linear"
