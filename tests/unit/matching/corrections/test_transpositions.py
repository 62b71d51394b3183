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


def build_run(order, attributes, mixed=MIXED, values=None, keys=KEYS):
    """Keys, their transposition, and an attention that reads it."""
    transposed = keys.transpose(order) if values is None else values
    plain_run = run(
        ("keys", "Linear", "keys", ("x",), keys),
        ("turned", "Transpose", "", ("keys",), transposed),
        ("mixed", "Attention", "attention", ("turned",), mixed),
        inputs=[("x", IMAGE)],
        outputs=[("mixed", mixed)],
    )
    ops = [
        replace(op, attributes=attributes) if op.key.op == "turned" else op for op in plain_run.ops
    ]
    return in_memory(plain_run.info, ops, [(t, plain_run.values(t)) for t in plain_run.tensors])


def paired(target, reference):
    matching = match(target, reference, chain())
    return {
        p.target.op.op: (p.reference.op.op, str(p.view))
        for p in matching.pairs
        if p.target.role is Role.OUTPUT
    }


REFERENCE = ((0, 2, 1, 3), {"dim0": 1, "dim1": 2})


def test_a_merged_transposition_is_paired_through_the_axes_both_name():
    target = build_run((0, 2, 3, 1), {"constants": [[0, 2, 3, 1]]})
    assert paired(target, build_run(*REFERENCE))["turned"] == ("turned", "transpose(0,1,3,2)")


def test_transpositions_of_one_shape_are_paired_by_their_axes_and_not_by_their_name():
    """Both orders of axes give the same shape, and the ops have the same name."""
    keys = RNG.standard_normal((2, 16, 4, 16)).astype(np.float32)
    attributes = {"perm": [0, 2, 3, 1]}
    target = build_run((0, 2, 3, 1), attributes, keys=keys)
    reference = build_run(*REFERENCE, keys=keys)
    assert paired(target, reference)["turned"] == ("turned", "transpose(0,1,3,2)")
    # The op that reads it is wrong: its axes may be in the wrong order.
    wrong = build_run((0, 2, 3, 1), attributes, mixed=MIXED[::-1].copy(), keys=keys)
    assert not paired(wrong, reference)["turned"][1]


@pytest.mark.parametrize(
    "target",
    [
        # It does not record its axes.
        build_run((0, 2, 3, 1), {}),
        # Its values do not follow its recorded axes.
        build_run((0, 2, 3, 1), {"perm": [0, 2, 3, 1]}, values=MIXED[:, :, :, :1] * np.ones(8)),
        # The op that reads it is wrong: its axes may be in the wrong order.
        build_run((0, 2, 3, 1), {"perm": [0, 2, 3, 1]}, mixed=MIXED[::-1].copy()),
    ],
)
def test_a_transposition_that_is_not_explained_stays_without_a_view(target):
    assert all(not view for _, view in paired(target, build_run(*REFERENCE)).values())


@pytest.mark.parametrize(
    ("attributes", "axes"),
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
def test_the_axes_of_a_transposition_are_those_it_records(attributes, axes):
    assert permutation_of(Op(OpKey("t"), "Transpose", (), attributes=attributes), 3) == axes
