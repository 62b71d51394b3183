"""Transpositions that one side merged into another op."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.matching.corrections.transpositions import permutation_of
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Op, OpKey, Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 6, 4, 8)).astype(np.float32)
KEYS = RNG.standard_normal((2, 6, 4, 8)).astype(np.float32)
MIXED = RNG.standard_normal((2, 4, 6, 6)).astype(np.float32)


def turning(order, said, mixed=MIXED, values=None, keys=KEYS):
    """Keys, turned, and what is made of them."""
    turned = keys.transpose(order) if values is None else values
    made = run(
        ("keys", "Linear", "keys", ("x",), keys),
        ("turned", "Transpose", "", ("keys",), turned),
        ("mixed", "Attention", "attention", ("turned",), mixed),
        inputs=[("x", IMAGE)],
        outputs=[("mixed", mixed)],
    )
    ops = [replace(op, attributes=said) if op.key.op == "turned" else op for op in made.ops]
    return in_memory(made.info, ops, [(t, made.values(t)) for t in made.tensors])


def paired(target, reference):
    found = match(target, reference, chain())
    return {
        p.target.op.op: (p.reference.op.op, str(p.view))
        for p in found.pairs
        if p.target.role is Role.OUTPUT
    }


REFERENCE = ((0, 2, 1, 3), {"dim0": 1, "dim1": 2})


def test_a_merged_transposition_is_paired_through_the_axes_both_name():
    target = turning((0, 2, 3, 1), {"constants": [[0, 2, 3, 1]]})
    assert paired(target, turning(*REFERENCE))["turned"] == ("turned", "transpose(0,1,3,2)")


def test_transpositions_of_one_shape_are_told_by_their_axes_and_not_by_their_name():
    """Turned either way the keys have the same shape, and the ops have the same name."""
    keys = RNG.standard_normal((2, 16, 4, 16)).astype(np.float32)
    said = {"perm": [0, 2, 3, 1]}
    target = turning((0, 2, 3, 1), said, keys=keys)
    reference = turning(*REFERENCE, keys=keys)
    assert paired(target, reference)["turned"] == ("turned", "transpose(0,1,3,2)")
    # What is made of it is off: it may be turned the wrong way.
    wrong = turning((0, 2, 3, 1), said, mixed=MIXED[::-1].copy(), keys=keys)
    assert not paired(wrong, reference)["turned"][1]


@pytest.mark.parametrize(
    "target",
    [
        # It does not say its axes.
        turning((0, 2, 3, 1), {}),
        # It does not hold what its axes say.
        turning((0, 2, 3, 1), {"perm": [0, 2, 3, 1]}, values=MIXED[:, :, :, :1] * np.ones(8)),
        # What is made of it is off: it may be turned the wrong way.
        turning((0, 2, 3, 1), {"perm": [0, 2, 3, 1]}, mixed=MIXED[::-1].copy()),
    ],
)
def test_what_does_not_explain_itself_stays_without_a_view(target):
    assert all(not view for _, view in paired(target, turning(*REFERENCE)).values())


@pytest.mark.parametrize(
    ("said", "axes"),
    [
        ({"perm": [0, 2, 1]}, (0, 2, 1)),
        ({"dims": [0, -1, 1]}, (0, 2, 1)),
        ({"constants": [[2, 0, 1]]}, (2, 0, 1)),
        ({"dim0": -1, "dim1": 0}, (2, 1, 0)),
        ({"perm": [0, 0, 1]}, None),
        ({"dim0": 1, "dim1": 3}, None),
        ({"constants": [[2, 0, 1], [1]]}, None),
        ({}, None),
    ],
)
def test_the_axes_of_a_transposition_are_what_it_says(said, axes):
    assert permutation_of(Op(OpKey("t"), "Transpose", (), attributes=said), 3) == axes
