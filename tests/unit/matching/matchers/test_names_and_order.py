"""Pairs by module path, type and order; order only as far as it can tell."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.small_runs import run
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.matching.op_kinds import op_kind
from syncpoint.matching.sequence_alignment import align
from syncpoint.metrics.verdict import ReasonCode

X = np.zeros(4, np.float32)


def ops(*said):
    """`relu@block` or `relu@block/3` for another shape."""
    made = []
    for number, text in enumerate(said):
        kind, _, rest = text.partition("@")
        module, _, size = rest.partition("/")
        made.append(
            (
                f"{kind}_{number}",
                f"aten.{kind}.default",
                module,
                (),
                np.zeros(int(size or 4), np.float32),
            )
        )
    return run(*made)


def pairs(target, reference):
    found = match(target, reference, chain())
    return {p.target.op.op: p.reference.op.op for p in found.pairs}, found


def test_unique_module_and_type_pair_whatever_the_order():
    found, _ = pairs(ops("linear@a", "linear@b"), ops("linear@b", "linear@a"))
    assert found == {"linear_0": "linear_1", "linear_1": "linear_0"}


def test_one_missing_op_does_not_shift_those_that_follow():
    target = ops("conv2d@c1", "conv2d@c2", "add@", "relu@")
    reference = ops("conv2d@c1", "relu@", "conv2d@c2", "add@", "relu@")
    found, matching = pairs(target, reference)
    assert found == {
        "conv2d_0": "conv2d_0",
        "conv2d_1": "conv2d_2",
        "add_2": "add_3",
        "relu_3": "relu_4",
    }
    left = [u for u in matching.unmatched() if u.side == "reference"]
    assert [(u.key.op.op, u.reason.code) for u in left] == [("relu_1", ReasonCode.NO_COUNTERPART)]


def test_what_order_cannot_tell_stays_ambiguous():
    found, matching = pairs(ops("relu@"), ops("relu@", "relu@"))
    assert found == {}
    assert {u.reason.code for u in matching.unmatched()} == {ReasonCode.AMBIGUOUS}


def test_shape_tells_what_order_cannot():
    found, _ = pairs(ops("relu@/8"), ops("relu@/4", "relu@/8"))
    assert found == {"relu_0": "relu_1"}


def test_the_same_op_with_another_shape_is_still_a_pair():
    found, _ = pairs(ops("linear@a", "relu@/8"), ops("linear@a", "relu@/4"))
    assert found["relu_1"] == "relu_1"


def test_repeated_layers_are_never_cross_paired():
    layers = [f"linear@layers.{i}" for i in range(5)]
    found, _ = pairs(ops(*layers[:2], *layers[3:]), ops(*layers))
    assert found == {
        "linear_0": "linear_0",
        "linear_1": "linear_1",
        "linear_2": "linear_3",
        "linear_3": "linear_4",
    }


def test_numbers_of_dump_names_are_order_and_not_identity():
    target = run(*((n, "", "", (), X) for n in ("relu", "relu_1", "head")))
    reference = run(*((n, "", "", (), X) for n in ("relu", "relu_1", "relu_2", "head")))
    found, _ = pairs(target, reference)
    assert found == {"head": "head"}


def test_equal_dumps_pair_by_name():
    names = ("conv1", "relu", "relu_1", "layers.0.mlp", "head")
    target = run(*((n, "", "", (), X) for n in names))
    reference = run(*((n, "", "", (), X) for n in names))
    found, matching = pairs(target, reference)
    assert found == {n: n for n in names}
    assert {p.evidence for p in matching.pairs} == {"name"}


def test_the_order_in_a_container_does_not_matter_where_the_names_are_the_same():
    names = [f"act_{i}" for i in range(12)]
    target = run(*((n, "", "", (), X) for n in names))
    reference = run(*((n, "", "", (), X) for n in sorted(names)))
    assert pairs(target, reference)[0] == {n: n for n in names}


def test_order_is_no_evidence_where_names_speak_against_it():
    target = run(*((f"act_{i}", "", "", (), X) for i in (1, 2, 3)))
    reference = run(*((f"act_{i}", "", "", (), X) for i in (0, 1, 2)))
    found, matching = pairs(target, reference)
    assert found == {}
    assert ReasonCode.AMBIGUOUS in {u.reason.code for u in matching.unmatched()}


def test_operands_that_belong_to_other_pairs_lower_the_confidence():
    def made(first, second):
        return run(
            ("q", "aten.linear.default", "q", (), X),
            ("k", "aten.linear.default", "k", (), X),
            ("m", "aten.mul.Tensor", "", (first,), X),
            ("n", "aten.mul.Tensor", "", (second,), X),
        )

    _, matching = pairs(made("q", "k"), made("k", "q"))
    doubtful = [p for p in matching.pairs if p.target.op.op in "mn"]
    assert {p.confidence for p in doubtful} == {0.5}
    assert all("operands disagree" in p.evidence for p in doubtful)


def test_op_kind_drops_what_varies_between_forms_of_a_model():
    assert op_kind("aten.add_.Tensor") == op_kind("aten.add.Tensor") == "add"
    assert op_kind("Conv") == "conv"


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_sure_pairs_lie_in_every_longest_alignment(a, b):
    sure, _ = align([(x,) for x in a], [(x,) for x in b])
    best, alignments = 0, [frozenset()]

    def grow(i, j, choose_by_margin):
        nonlocal best, alignments
        if len(choose_by_margin) > best:
            best, alignments = len(choose_by_margin), []
        if len(choose_by_margin) == best:
            alignments.append(frozenset(choose_by_margin))
        for x in range(i, len(a)):
            for y in range(j, len(b)):
                if (
                    a[x] == b[y]
                    and len(choose_by_margin) + 1 + min(len(a) - x, len(b) - y) > best - 1
                ):
                    grow(x + 1, y + 1, [*choose_by_margin, (x, y)])

    if len(a) * len(b) <= 36:
        grow(0, 0, [])
        assert set(sure) == frozenset.intersection(*alignments)


def test_long_sequences_align_but_for_what_is_missing():
    kinds = [f"k{i % 7}" for i in range(3000)]
    reference = run(*((f"o{i}", f"aten.{k}.default", "", (), X) for i, k in enumerate(kinds)))
    left = [(i, k) for i, k in enumerate(kinds) if i != 1500]
    target = run(*((f"o{i}", f"aten.{k}.default", "", (), X) for i, k in left))
    found, _ = pairs(target, reference)
    assert len(found) == 2999 and all(t == r for t, r in found.items())
