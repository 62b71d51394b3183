"""Pairs whose values differ although everything computed from them agrees."""

from dataclasses import replace

import numpy as np

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Role
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 8, 10)).astype(np.float32)
ONE = np.tanh(X)
OTHER = np.exp(-X)
SUM = ONE + 0.5 * OTHER


def with_origins(plain_run, origins):
    ops = [replace(op, origins=(origins.get(op.key.op, op.key.op),)) for op in plain_run.ops]
    tensors = [(t, plain_run.values(t)) for t in plain_run.tensors]
    return in_memory(plain_run.info, ops, tensors)


def pairs(target, reference):
    matching = match(target, reference, chain())
    reasons = {u.key.op.op: u.reason.detail for u in matching.unmatched() if u.side == "target"}
    paired = {
        p.target.op.op: p.reference.op.op for p in matching.pairs if p.target.role is Role.OUTPUT
    }
    return paired, reasons


def net(first, second, total=SUM, names=("mul", "mul_1")):
    """Two ops of one kind whose results are added."""
    return run(
        (names[0], "aten.mul.Tensor", "", ("x",), first),
        (names[1], "aten.mul.Tensor", "", ("x",), second),
        ("add", "aten.add.Tensor", "", names, total),
        ("tanh", "aten.tanh.default", "", ("add",), np.tanh(total)),
        inputs=[("x", X)],
        outputs=[("tanh", np.tanh(total))],
    )


def test_two_ops_with_each_other_s_name_exchange_their_partners():
    target = with_origins(net(OTHER, ONE, names=("a", "b")), {"a": "mul", "b": "mul_1"})
    paired, _ = pairs(target, net(ONE, OTHER))
    assert (paired["a"], paired["b"]) == ("mul_1", "mul")


def test_a_fault_that_changes_what_follows_keeps_its_pair():
    wrong = net(OTHER, ONE, total=ONE * 3, names=("a", "b"))
    paired, _ = pairs(with_origins(wrong, {"a": "mul", "b": "mul_1"}), net(ONE, OTHER))
    assert (paired["a"], paired["b"]) == ("mul", "mul_1")


def rescaled(factor, permutation=None, end=OTHER, last=SUM):
    """A product that one side scales and the next op scales back, or reorders and reads so."""
    first = ONE * np.float32(factor)
    kind = "aten.mul.Tensor" if factor == 1 and permutation is None else "Mul"
    if permutation is not None:
        first = first[:, permutation]
    return run(
        ("mul", kind, "", ("x",), first),
        ("sum", "aten.relu.default", "", ("mul",), end),
        ("tanh", "aten.tanh.default", "", ("sum",), last),
        inputs=[("x", X)],
        outputs=[("tanh", last)],
    )


def test_a_scale_that_the_reader_undoes_is_no_pair():
    paired, reasons = pairs(rescaled(2), rescaled(1))
    assert "mul" not in paired and "scaled" in reasons["mul"]
    assert paired["sum"] == "sum"


def test_channels_in_another_order_that_the_reader_undoes_are_no_pair():
    order = np.array([3, 1, 0, 2, 7, 6, 5, 4])
    paired, reasons = pairs(rescaled(1, order), rescaled(1))
    assert "mul" not in paired and "another order" in reasons["mul"]


def test_one_wrong_channel_is_an_error_and_stays_paired():
    first = ONE.copy()
    first[:, 3] *= np.float32(0.5)
    target = run(
        ("mul", "Mul", "", ("x",), first),
        ("sum", "aten.relu.default", "", ("mul",), OTHER),
        ("tanh", "aten.tanh.default", "", ("sum",), SUM),
        inputs=[("x", X)],
        outputs=[("tanh", SUM)],
    )
    paired, _ = pairs(target, rescaled(1))
    assert paired["mul"] == "mul"


def test_a_lost_scale_is_not_matched_away():
    paired, _ = pairs(rescaled(2, end=2 * OTHER, last=SUM + 1), rescaled(1))
    assert paired["mul"] == "mul"


def shifted(is_target, end=SUM):
    """A product that is scaled in two steps. The target names its first op like the last step, and
    the step in between like an op elsewhere."""
    first, middle, last, elsewhere = ONE, np.sin(3 * X), np.cos(2 * X), np.exp(-2 * X)
    ops = [("first", "aten.mul.Tensor", "", ("x",), first)]
    if is_target:
        ops += [
            ("middle", "aten.mul.Tensor", "", ("first",), middle),
            ("last", "aten.mul.Tensor", "", ("middle",), last),
        ]
    else:
        ops += [
            ("last", "aten.mul.Tensor", "", ("first",), last),
            ("elsewhere", "aten.mul.Tensor", "", ("x",), elsewhere),
        ]
    plain_run = run(
        *ops,
        ("tanh", "aten.tanh.default", "", ("last",), end),
        inputs=[("x", X)],
        outputs=[("tanh", end)],
    )
    if not is_target:
        return plain_run
    return with_origins(plain_run, {"first": "last", "middle": "elsewhere", "last": "unknown"})


def test_a_reader_that_is_contradicted_itself_does_not_defend_a_pair():
    paired, _ = pairs(shifted(True), shifted(False))
    assert (paired["first"], paired["last"]) == ("first", "last")


def test_an_error_behind_contradicted_readers_keeps_the_pair():
    paired, _ = pairs(shifted(True, end=ONE * 3), shifted(False))
    assert paired["first"] == "last"
