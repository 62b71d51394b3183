"""Weights that were cut off when they were made integers, against what was cut off by hand."""

import numpy as np
import pytest

from helpers.small_runs import tensor
from syncpoint.diagnosis.weights.clipped import clip_weight
from syncpoint.run.model import Quantization, Role, RunInfo
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
KERNEL = RNG.standard_normal((6, 4, 3, 3)).astype(np.float32)
MATRIX = RNG.standard_normal((12, 40)).astype(np.float32)
FACTOR = RNG.uniform(0.5, 3.0, 6)


def stored(weight, ends, last=127, per_channel=False, transposed=False):
    """Integers of which the last one stands for `ends`, one number or one of each channel."""
    steps = np.broadcast_to(np.asarray(ends, np.float64) / last, len(weight))
    along = steps.reshape(-1, *(1,) * (weight.ndim - 1))
    integers = np.clip(np.round(weight / along), -last, last).astype(np.int8)
    quantization = Quantization(
        tuple(steps) if per_channel else (float(steps[0]),),
        axis=(1 if transposed else 0) if per_channel else None,
    )
    weight_tensor = tensor(
        "w", integers.T if transposed else integers, Role.PARAMETER, quantization=quantization
    )
    return in_memory(RunInfo(), [], [weight_tensor]), weight_tensor[0]


def greatest(weight):
    return np.abs(weight.reshape(len(weight), -1)).max(1)


def check(cut, weight, unclipped, ends, last=127):
    """`wanted` is the weight as the target would have it whole."""
    along = np.broadcast_to(ends, len(weight)).reshape(-1, *(1,) * (weight.ndim - 1))
    beyond = np.abs(unclipped) > along * (1 + 0.5 / last)
    assert beyond.any()
    expected = np.clip(unclipped, -along, along) * weight / unclipped
    # A factor is told from rounded values.
    np.testing.assert_allclose(cut.value, expected, rtol=0.02, atol=1e-6)
    assert cut.value.dtype == weight.dtype and cut.value.shape == weight.shape
    assert cut.share == pytest.approx(beyond.mean(), abs=0.01)
    assert cut.greatest == pytest.approx(np.abs(unclipped[beyond]).max(), rel=0.02)
    assert (-cut.low, cut.high) == pytest.approx((np.max(ends),) * 2, rel=1e-5)


@pytest.mark.parametrize("weight", [KERNEL, MATRIX], ids=["kernel", "matrix"])
@pytest.mark.parametrize("last", [127, 64])
def test_one_range_for_all(weight, last):
    """The integers may end before their type does."""
    ends = np.abs(weight).max() / 2
    check(clip_weight(*stored(weight, ends, last), weight), weight, weight, ends, last)


@pytest.mark.parametrize("last", [127, 64])
def test_a_range_of_each_channel(last):
    ends = greatest(KERNEL) / 2
    run, weight_tensor = stored(KERNEL, ends, last, per_channel=True)
    check(clip_weight(run, weight_tensor, KERNEL), KERNEL, KERNEL, ends, last)


def test_a_norm_that_was_folded_in_is_seen_through():
    unclipped = KERNEL * FACTOR.reshape(-1, 1, 1, 1)
    ends = greatest(unclipped) / 2
    run, weight_tensor = stored(unclipped, ends, per_channel=True)
    check(clip_weight(run, weight_tensor, KERNEL), KERNEL, unclipped, ends)


@pytest.mark.parametrize("weight", [MATRIX, MATRIX[:, :12]], ids=["oblong", "square"])
def test_a_matrix_that_lies_the_other_way_round(weight):
    ends = np.abs(weight).max() / 2
    check(clip_weight(*stored(weight, ends, transposed=True), weight), weight, weight, ends)


@pytest.mark.parametrize("last", [127, 64])
@pytest.mark.parametrize("per_channel", [False, True])
def test_integers_that_hold_all_of_it_cut_nothing(per_channel, last):
    ends = greatest(KERNEL) if per_channel else np.abs(KERNEL).max()
    assert clip_weight(*stored(KERNEL, ends, last, per_channel), KERNEL) is None


def test_another_weight_or_none_of_integers_is_no_answer():
    run, weight_tensor = stored(MATRIX, 1.0)
    assert clip_weight(run, weight_tensor, MATRIX[:5]) is None
    plain = tensor("w", MATRIX, Role.PARAMETER)
    assert clip_weight(in_memory(RunInfo(), [], [plain]), plain[0], MATRIX) is None
