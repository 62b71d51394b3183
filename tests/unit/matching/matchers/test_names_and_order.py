"""Pairs by module path, type and order, and what order cannot decide."""

import numpy as np

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.matching.op_kinds import op_kind
from syncpoint.metrics.verdict import ReasonCode

X = np.zeros(4, np.float32)


def ops(*texts):
    """`relu@block` or `relu@block/3` for another shape."""
    rows = []
    for number, text in enumerate(texts):
        kind, _, rest = text.partition("@")
        module, _, size = rest.partition("/")
        rows.append(
            (
                f"{kind}_{number}",
                f"aten.{kind}.default",
                module,
                (),
                np.zeros(int(size or 4), np.float32),
            )
        )
    return run(*rows)


def pairs(target, reference):
    matching = match(target, reference, chain())
    return {p.target.op.op: p.reference.op.op for p in matching.pairs}, matching


def test_unique_module_and_type_pair_whatever_the_order():
    paired, _ = pairs(ops("linear@a", "linear@b"), ops("linear@b", "linear@a"))
    assert paired == {"linear_0": "linear_1", "linear_1": "linear_0"}


def test_one_missing_op_does_not_shift_those_that_follow():
    target = ops("conv2d@c1", "conv2d@c2", "add@", "relu@")
    reference = ops("conv2d@c1", "relu@", "conv2d@c2", "add@", "relu@")
    paired, matching = pairs(target, reference)
    assert paired == {
        "conv2d_0": "conv2d_0",
        "conv2d_1": "conv2d_2",
        "add_2": "add_3",
        "relu_3": "relu_4",
    }
    unmatched = [u for u in matching.unmatched() if u.side == "reference"]
    assert [(u.key.op.op, u.reason.code) for u in unmatched] == [
        ("relu_1", ReasonCode.NO_COUNTERPART)
    ]


def test_what_order_cannot_tell_stays_ambiguous():
    paired, matching = pairs(ops("relu@"), ops("relu@", "relu@"))
    assert paired == {}
    assert {u.reason.code for u in matching.unmatched()} == {ReasonCode.AMBIGUOUS}


def test_shape_tells_what_order_cannot():
    paired, _ = pairs(ops("relu@/8"), ops("relu@/4", "relu@/8"))
    assert paired == {"relu_0": "relu_1"}


def test_the_same_op_with_another_shape_is_still_a_pair():
    paired, _ = pairs(ops("linear@a", "relu@/8"), ops("linear@a", "relu@/4"))
    assert paired["relu_1"] == "relu_1"


def test_repeated_layers_are_never_cross_paired():
    layers = [f"linear@layers.{i}" for i in range(5)]
    paired, _ = pairs(ops(*layers[:2], *layers[3:]), ops(*layers))
    assert paired == {
        "linear_0": "linear_0",
        "linear_1": "linear_1",
        "linear_2": "linear_3",
        "linear_3": "linear_4",
    }


def test_numbers_of_dump_names_are_order_and_not_identity():
    target = run(*((n, "", "", (), X) for n in ("relu", "relu_1", "head")))
    reference = run(*((n, "", "", (), X) for n in ("relu", "relu_1", "relu_2", "head")))
    paired, _ = pairs(target, reference)
    assert paired == {"head": "head"}


def test_equal_dumps_pair_by_name():
    names = ("conv1", "relu", "relu_1", "layers.0.mlp", "head")
    target = run(*((n, "", "", (), X) for n in names))
    reference = run(*((n, "", "", (), X) for n in names))
    paired, matching = pairs(target, reference)
    assert paired == {n: n for n in names}
    assert {p.evidence for p in matching.pairs} == {"name"}


def test_the_order_in_a_container_does_not_matter_where_the_names_are_the_same():
    names = [f"act_{i}" for i in range(12)]
    target = run(*((n, "", "", (), X) for n in names))
    reference = run(*((n, "", "", (), X) for n in sorted(names)))
    assert pairs(target, reference)[0] == {n: n for n in names}


def test_order_is_no_evidence_where_names_speak_against_it():
    target = run(*((f"act_{i}", "", "", (), X) for i in (1, 2, 3)))
    reference = run(*((f"act_{i}", "", "", (), X) for i in (0, 1, 2)))
    paired, matching = pairs(target, reference)
    assert paired == {}
    assert ReasonCode.AMBIGUOUS in {u.reason.code for u in matching.unmatched()}


def test_operands_that_belong_to_other_pairs_lower_the_confidence():
    def build_run(first, second):
        return run(
            ("q", "aten.linear.default", "q", (), X),
            ("k", "aten.linear.default", "k", (), X),
            ("m", "aten.mul.Tensor", "", (first,), X),
            ("n", "aten.mul.Tensor", "", (second,), X),
        )

    _, matching = pairs(build_run("q", "k"), build_run("k", "q"))
    doubtful = [p for p in matching.pairs if p.target.op.op in "mn"]
    assert {p.confidence for p in doubtful} == {0.5}
    assert all("operands disagree" in p.evidence for p in doubtful)


def test_op_kind_drops_what_varies_between_forms_of_a_model():
    assert op_kind("aten.add_.Tensor") == op_kind("aten.add.Tensor") == "add"
    assert op_kind("Conv") == "conv"


def test_long_sequences_align_but_for_what_is_missing():
    kinds = [f"k{i % 7}" for i in range(3000)]
    reference = run(*((f"o{i}", f"aten.{k}.default", "", (), X) for i, k in enumerate(kinds)))
    remaining = [(i, k) for i, k in enumerate(kinds) if i != 1500]
    target = run(*((f"o{i}", f"aten.{k}.default", "", (), X) for i, k in remaining))
    paired, _ = pairs(target, reference)
    assert len(paired) == 2999 and all(t == r for t, r in paired.items())
