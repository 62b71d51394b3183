"""What a diagnosis reads of large tensors, and when it stops."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncpoint as sp
from helpers.small_runs import run, tensor
from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.diagnosis import budget
from syncpoint.diagnosis import large_tensor_samples as samples
from syncpoint.diagnosis.budget import Budget, TimeUp
from syncpoint.diagnosis.findings_by_cause.weights import Weights
from syncpoint.run.model import Quantization, RunInfo
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
SHAPES = [(40,), (1, 40), (7, 3, 5), (2, 2, 30), (3, 3, 3, 3), (1, 1, 100), (64, 2)]


@pytest.fixture
def small_limits(monkeypatch):
    """Limits that tensors of a few thousand elements are beyond."""
    monkeypatch.setattr(budget, "MAX_ELEMENTS", 1 << 10)
    monkeypatch.setattr(samples, "SAMPLE_ELEMENTS", 1 << 8)
    monkeypatch.setattr(budget, "MAX_REGION_ELEMENTS", 1 << 12)
    monkeypatch.setattr(budget, "WINDOW_ELEMENTS", 100)


@given(st.sampled_from(SHAPES), st.integers(1, 60), st.data())
def test_a_sample_is_small_and_has_the_worst_element(shape, limit, data):
    worst = data.draw(st.integers(0, prod(shape) - 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(samples, "SAMPLE_ELEMENTS", limit)
        places = samples.choose_sample(shape, worst)
    assert 0 < prod(len(indices) for indices in places) <= max(limit, 1)
    for indices, length, at in zip(places, shape, np.unravel_index(worst, shape), strict=True):
        assert (np.diff(indices) > 0).all() and indices[0] >= 0 and indices[-1] < length
        assert at in indices


def test_a_small_tensor_is_its_own_sample():
    assert [len(p) for p in samples.choose_sample((6, 7), 3)] == [6, 7]


@pytest.mark.parametrize("known", [
    None,
    Quantization((0.5,), (3,)),
    Quantization(tuple(0.1 * n for n in range(1, 31)), (1,), axis=0),
    Quantization((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), tuple(range(6)), axis=0, block=5),
    Quantization(tuple(0.1 * n for n in range(1, 12)), (0,), axis=-1),
])  # fmt: skip
@pytest.mark.parametrize("cut", [(0,), (1,), (0, 1)])
def test_a_sample_holds_the_numbers_of_its_places(known, cut):
    array = RNG.integers(-100, 100, (30, 11)).astype(np.int8)
    made = in_memory(RunInfo(model="m"), [], [tensor("t", array, quantization=known)])
    (record,) = made.tensors
    places = tuple(
        np.array([0, 1, 2, 6, 7, 9]) if axis in cut else np.arange(n)
        for axis, n in enumerate(array.shape)
    )
    whole = dequantize(operand_of(made, record))
    assert np.array_equal(samples.sample_tensor(made, record, places), whole[np.ix_(*places)])


def test_windows_cover_a_tensor(small_limits):
    array = RNG.standard_normal((7, 53)).astype(np.float32)
    made = in_memory(RunInfo(model="m"), [], [tensor("t", array)])
    pieces = list(budget.read_windows(made, made.tensors[0]))
    assert len(pieces) == 4 and np.array_equal(np.concatenate(pieces), array.reshape(-1))


def linear(weight, scale=1.0):
    x = RNG.standard_normal((4, 64)).astype(np.float32)
    mine = (weight * np.float32(scale)).astype(np.float32)
    return run(
        ("y", "aten.linear.default", "m", ("x", "w"), x @ mine.T),
        inputs=[("x", x)],
        parameters=[("w", mine)],
        outputs=[("y", x @ mine.T)],
    )


def weights_finding():
    weight = RNG.standard_normal((48, 64)).astype(np.float32)
    found = sp.compare(linear(weight, 1.5), linear(weight))
    (one,) = [f for f in found.findings if f.cause == "weights"]
    return one, found.diagnosis


def test_a_finding_from_a_sample_says_so_and_is_not_sure(monkeypatch):
    whole, _ = weights_finding()
    monkeypatch.setattr(budget, "MAX_ELEMENTS", 1 << 10)
    monkeypatch.setattr(samples, "SAMPLE_ELEMENTS", 1 << 8)
    sampled, diagnosis = weights_finding()
    assert (whole.kind, whole.certainty) == ("scaled", "sure")
    assert "sample" not in whole.text
    assert (sampled.kind, sampled.title) == (whole.kind, whole.title)
    assert sampled.certainty == "likely"
    assert "only a sample of 256 of its 3,072 elements was read" in sampled.evidence
    assert not diagnosis.has_failed


def test_what_is_too_large_to_be_looked_at_is_named(small_limits):
    one, other = (RNG.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    found = sp.compare(linear(one), linear(other))
    (line,) = found.diagnosis.trouble_lines
    assert line.startswith("not examined: values of tensors above 1,024 elements")
    assert line.endswith("ops with more than 4,096: y")


def test_time_is_kept_within_a_cause(monkeypatch):
    """The clock runs out in the middle of one cause; the others are not begun with values."""
    clock = iter(range(10_000))
    monkeypatch.setattr(budget, "monotonic", lambda: float(next(clock)))
    limits = Budget(end=5.0)
    reads = 0
    made = in_memory(RunInfo(model="m"), [], [tensor("t", np.ones(4, np.float32))])
    with limits.active(), pytest.raises(TimeUp):
        for _ in range(100):
            budget.read_real_values(made, made.tensors[0])
            reads += 1
    assert reads == 6
    assert budget.read_real_values(made, made.tensors[0]) is not None, (
        "no limit outside a diagnosis"
    )


def test_a_diagnosis_whose_time_is_up_says_what_was_not_looked_at(monkeypatch):
    monkeypatch.setattr(budget, "EXTRA_SECONDS", -1e9)
    weight = RNG.standard_normal((48, 64)).astype(np.float32)
    found = sp.compare(linear(weight, 1.5), linear(weight))
    late = [line for line in found.diagnosis.troubles if line.startswith("time limit of")]
    assert len(late) == 1 and Weights.title in late[0] and "--seconds" in late[0]
    assert found.exit_code() == 1
