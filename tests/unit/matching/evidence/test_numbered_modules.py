"""Numbered modules get their names from the reference."""

import numpy as np
import pytest

from syncpoint.matching.evidence.numbered_modules import find_module_names
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.matching.protocol import Matching, Side
from syncpoint.matching.workspace import Workspace
from syncpoint.run.model import Edge, Frame, Op, OpKey, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import in_memory

REFERENCE = [
    ("linear", "layers.0.up", "Linear", 10),
    ("relu", "layers.0.act", "ReLU", 10),
    ("linear_1", "layers.0.down", "Linear", 11),
    ("relu_1", "layers.0.act", "ReLU", 12),
    ("linear_2", "layers.1.up", "Linear", 10),
]
TARGET = [
    ("a", "Layer$1.Linear$1", "Linear", 10),
    ("b", "Layer$1.ReLU$1", "ReLU", 10),
    ("c", "Layer$1.Linear$2", "Linear", 11),
    ("d", "Layer$1.ReLU$2", "ReLU", 12),
    ("e", "Layer$2.Linear$3", "Linear", 10),
]


def build_run(rows, kinds=None):
    """A chain of ops; each reads the one before it."""
    x = np.arange(6, dtype=np.float32)
    input_key = TensorKey(OpKey("x"), Role.MODEL_INPUT)
    tensors = [(Tensor(input_key, "f32", x.shape, nbytes=x.nbytes, name="x"), x)]
    ops, previous_edge = [], Edge(OpKey("x"), role=Role.MODEL_INPUT)
    for number, (name, module, kind, line) in enumerate(rows):
        key = OpKey(name)
        op_type = kinds[number] if kinds else kind.lower()
        ops.append(
            Op(
                key,
                op_type,
                (previous_edge,),
                attributes={},
                module=module,
                module_type=kind,
                source=(Frame("net.py", line),),
            )
        )
        value = x + number + 1
        tensors.append((Tensor(TensorKey(key), "f32", x.shape, nbytes=x.nbytes), value))
        previous_edge = Edge(key)
    return in_memory(RunInfo(), ops, tensors)


def find_names(target, reference=REFERENCE):
    sides = Side.of(build_run(target)), Side.of(build_run(reference))
    return find_module_names(Workspace.of(Matching(*sides)))


def test_modules_are_named_in_the_order_of_their_calls():
    """A module that is called twice has two numbers."""
    assert find_names(TARGET) == {
        "Layer$1.Linear$1": "layers.0.up",
        "Layer$1.ReLU$1": "layers.0.act",
        "Layer$1.Linear$2": "layers.0.down",
        "Layer$1.ReLU$2": "layers.0.act",
        "Layer$2.Linear$3": "layers.1.up",
    }


def test_what_was_folded_away_does_not_shift_the_others():
    names = find_names([row for row in TARGET if row[0] != "a"])
    assert names["Layer$1.Linear$2"] == "layers.0.down"
    assert names["Layer$2.Linear$3"] == "layers.1.up"


def test_lines_that_disagree_leave_a_class_without_names():
    moved = [(n, m, k, 99 if n == "e" else line) for n, m, k, line in TARGET]
    assert not any("Linear" in module for module in find_names(moved))
    assert any("ReLU" in module for module in find_names(moved))


def test_more_modules_than_the_reference_has_are_not_named():
    assert not any("Linear" in m for m in find_names(TARGET, REFERENCE[:4]))


@pytest.mark.parametrize("rows", [REFERENCE, [(n, "", "", line) for n, _, _, line in TARGET]])
def test_modules_with_names_of_their_own_keep_them(rows):
    assert find_names(rows) == {}


def test_steps_of_one_compared_op_are_not_counted():
    """A norm in three steps: only the last step has a partner. The same steps count if their line
    calls two ops, since one of them may be missing."""
    steps = [
        ("mean", "Norm$1", "Norm", 5),
        ("sub", "Norm$1", "Norm", 5),
        ("scale", "Norm$1", "Norm", 5),
    ]
    kinds = ["mean", "sub", "mul"]
    for rows, counted in (
        ([("norm", "norm", "Norm", 5)], 0),
        ([("norm", "norm", "Norm", 5), ("tanh", "norm", "Norm", 5)], 2),
    ):
        target = build_run(steps, kinds)
        reference = build_run(rows, ["layer_norm", "tanh"][: len(rows)])
        matching = Matching(Side.of(target), Side.of(reference))
        last = matching.pair_ops(OpKey("scale"), OpKey(rows[-1][0]), "given", 1.0)
        for pair in last:
            matching.add(pair)
        for matcher in chain()[-1:]:
            list(matcher.match(matching))
        unmatched = [u for u in matching.unmatched() if u.side == "target" and u.counted]
        assert len([u for u in unmatched if u.key.role is Role.OUTPUT]) == counted


def test_a_chain_with_numbered_modules_is_paired():
    matching = match(build_run(TARGET), build_run(REFERENCE), chain())
    pairs = {(p.target.op.op, p.reference.op.op) for p in matching.pairs}
    assert {("a", "linear"), ("c", "linear_1"), ("e", "linear_2")} <= pairs
