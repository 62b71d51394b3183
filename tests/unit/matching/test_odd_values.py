"""Odd values: inf, NaN, zeros, empty tensors, and numbers whose squares overflow.

Matching may find no pair among them; it must never fail and never pair unequal values."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.small_runs import tensor
from syncpoint.matching.fingerprints import choose_by_margin, relative_distance
from syncpoint.matching.matcher_chain import chain, match
from syncpoint.run.model import Edge, Op, OpKey, Part, Role, RunInfo
from syncpoint.run.reader import in_memory

TINY, HUGE = 1e-310, 1e300
BASE = np.random.default_rng(0).standard_normal(24)


WHOLE = (Part(),)


def build_run(ops, parts=WHOLE):
    """A chain of ops; each is (name, type, one array a part)."""
    tensors = [
        tensor("x", np.ones(3, np.float32), Role.MODEL_INPUT, name="x", part=p) for p in parts
    ]
    edge, records = Edge(OpKey("x"), 0, Role.MODEL_INPUT), []
    for name, kind, arrays in ops:
        records.append(Op(OpKey(name), kind, (edge,)))
        edge = Edge(OpKey(name))
        tensors += [tensor(name, a, part=p) for a, p in zip(arrays, parts, strict=True)]
    return in_memory(RunInfo(model="made by hand"), records, tensors)


def pairs(target, reference):
    matching = match(target, reference, chain())
    return {
        (p.target.op.op, p.reference.op.op) for p in matching.pairs if p.target.role is Role.OUTPUT
    }


def test_a_pair_that_is_constant_in_one_execution_is_no_candidate():
    """Equal on the first execution; on the second one side is constant, which is no evidence."""
    parts = (Part(sample=0), Part(sample=1))
    value, constant = BASE.astype(np.float32), np.zeros(24, np.float32)
    target = build_run([("t", "Foo", (value, value)), ("u", "Bar", (constant, constant))], parts)
    reference = build_run(
        [("r", "Baz", (value, constant)), ("s", "Qux", (constant, constant))], parts
    )
    assert pairs(target, reference) == set()


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200, HUGE, TINY])
def test_distances_do_not_depend_on_the_size_of_the_numbers(scale):
    sample = BASE * scale
    assert relative_distance(sample, sample) == 0
    assert relative_distance(2 * sample, sample) == pytest.approx(1.0)
    assert relative_distance(-sample, sample) == pytest.approx(2.0)
    assert relative_distance(np.zeros(24), sample) == pytest.approx(1.0)
    assert relative_distance(sample, np.zeros(24)) == inf


def test_numbers_whose_squares_overflow_are_not_equal_to_others():
    other = np.random.default_rng(1).standard_normal(24) * HUGE
    target = build_run([("t", "Foo", (BASE * HUGE,)), ("u", "Bar", (other,))])
    reference = build_run([("r", "Baz", (other,)), ("s", "Qux", (BASE * HUGE,))])
    assert not pairs(target, reference) & {("t", "r"), ("u", "s")}
    straight = build_run([("r", "Baz", (BASE * HUGE,)), ("s", "Qux", (other,))])
    assert pairs(target, straight) == {("t", "r"), ("u", "s")}


def test_a_distance_that_is_no_number_chooses_nothing():
    assert choose_by_margin([[float("nan")]], 1e-3) == []


ARRAYS = [
    BASE,
    BASE * (1 + 1e-7),
    BASE[::-1].copy(),
    BASE * HUGE,
    BASE * TINY,
    np.full(24, np.inf),
    np.full(24, np.nan),
    np.where(BASE > 0, np.inf, -np.inf),
    np.where(BASE > 0, BASE, np.nan),
    np.where(BASE > 1, BASE * HUGE, BASE),
    np.zeros(24),
    np.ones(24),
    BASE.reshape(2, 3, 4),
    BASE.reshape(4, 3, 2),
    np.zeros(0),
    np.zeros((3, 0, 2)),
    np.array(1.5),
    np.array(np.nan),
]
DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int8, np.bool_]
KINDS = ["Relu", "aten.relu.default", "Add", "MatMul", "aten.linear.default", "Conv", "Reshape"]


@st.composite
def runs_of(draw, parts):
    ops = []
    for number in range(draw(st.integers(1, 5))):
        arrays = []
        for _ in parts:
            array, dtype = draw(st.sampled_from(ARRAYS)), draw(st.sampled_from(DTYPES))
            with np.errstate(all="ignore"):
                arrays.append(array.astype(dtype))
        prefix = draw(st.sampled_from("abc"))
        ops.append((f"{prefix}{number}", draw(st.sampled_from(KINDS)), arrays))
    return build_run(ops, parts)


@given(st.data(), st.integers(1, 3))
def test_matching_never_fails_on_odd_values(data, executions):
    parts = tuple(Part(sample=n) for n in range(executions))
    target, reference = (data.draw(runs_of(parts)) for _ in range(2))
    match(target, reference, chain())
