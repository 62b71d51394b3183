"""Ops that read equal parameters pair, whatever the parameters are called, and in any layout; a
fault does not become a pair."""

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match

RANDOM = np.random.default_rng(0)
WEIGHTS = [RANDOM.standard_normal((6, 6, 3)).astype("f4") for _ in range(4)]


def noise():
    return RANDOM.standard_normal((1, 6, 8)).astype("f4")


def net(prefix, weights, kinds=None, first="Erf"):
    """Convolutions in a row on an input of this side alone; all values differ from those of any
    other net."""
    ops = [(f"{prefix}start", first, "", [f"{prefix}x"], noise())]
    for number in range(len(weights)):
        kind = kinds[number] if kinds else "Conv"
        reads = [ops[-1][0], f"{prefix}w{number}"]
        ops.append((f"{prefix}c{number}", kind, "", reads, noise()))
    parameters = [(f"{prefix}w{number}", weight) for number, weight in enumerate(weights)]
    return run(*ops, inputs=[(f"{prefix}x", noise())], parameters=parameters)


def pairs(target, reference):
    """The paired convolutions by number."""
    matching = match(target, reference, chain())
    return {
        int(pair.target.op.op[-1]): int(pair.reference.op.op[-1])
        for pair in matching.pairs
        if "equal parameters" in pair.evidence
    }


@pytest.mark.parametrize("layout", ["same", "transposed", "reshaped"])
def test_an_op_is_known_by_its_parameter_in_any_layout(layout):
    change = {
        "same": lambda w: w,
        "transposed": lambda w: np.ascontiguousarray(w.transpose(2, 1, 0)),
        "reshaped": lambda w: w.reshape(-1, 3),
    }[layout]
    target = net("a", [change(w) for w in WEIGHTS[1:]])
    assert pairs(target, net("b", WEIGHTS, first="aten.sin.default")) == {0: 1, 1: 2, 2: 3}


def test_a_changed_parameter_is_no_evidence():
    changed = WEIGHTS[2].copy()
    changed[0, 0, 0] += 1
    target = net("a", [WEIGHTS[1], changed, WEIGHTS[3]])
    found = pairs(target, net("b", WEIGHTS, first="aten.sin.default"))
    assert 2 not in found.values()


def test_exchanged_weights_are_not_paired_with_each_other():
    target = net("a", [WEIGHTS[0], WEIGHTS[2], WEIGHTS[1], WEIGHTS[3]])
    found = pairs(target, net("b", WEIGHTS, first="aten.sin.default"))
    assert not (found.get(1) == 2 and found.get(2) == 1)


def test_a_weight_of_several_ops_or_of_another_kind_is_no_evidence():
    shared = [WEIGHTS[0], WEIGHTS[0], WEIGHTS[1]]
    reference = net("b", [WEIGHTS[0], WEIGHTS[1]], first="aten.sin.default")
    assert pairs(net("a", shared), reference) == {2: 1}
    kinds = ["Conv", "MatMul"]
    assert pairs(net("a", WEIGHTS[:2], kinds), net("b", WEIGHTS[:2], first="Sin")) == {0: 0}
