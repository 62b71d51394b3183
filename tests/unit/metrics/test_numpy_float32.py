"""The float32 numbers are NumPy's to the bit, by either instruction set."""

import json
import os
import subprocess
import sys
from math import inf, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ascend_column_oracle as oracle
from helpers.float32_pairs import FLOATS, RECIPES, made
from helpers.paths import TESTS
from syncpoint.metrics import _kernel, operand
from syncpoint.metrics.kernel import native_operand
from syncpoint.metrics.numpy_float32 import float32_metrics

NAMES = {
    "max_abs": "MaxAbsoluteError",
    "acc_rel": "AccumulatedRelativeError",
    "rel_euclid": "RelativeEuclideanDistance",
    "kl": "KullbackLeiblerDivergence",
    "mae": "MeanAbsoluteError",
    "rmse": "RootMeanSquareError",
    "max_rel": "MaxRelativeError",
    "mean_rel": "MeanRelativeError",
}


def same(ours, theirs):
    return ours == theirs or (np.isnan(ours) and np.isnan(theirs))


def check(x, y):
    found, wanted = float32_metrics(x, y), oracle.numbers(x, y)
    for ours, theirs in NAMES.items():
        assert same(getattr(found, ours), float(wanted[theirs])), (ours, theirs)
    if not isinstance(wanted["CosineSimilarity"], str):  # the norms are not next to nothing
        assert same(min(found.cosine, 1.0), float(wanted["CosineSimilarity"]))
    elif wanted["CosineSimilarity"] == "1.0":
        assert max(found.x_norm, found.y_norm) <= oracle.EPSILON
    else:
        assert 0 in (found.x_norm, found.y_norm)
    with np.errstate(all="ignore"):
        for side, mean, std in ((x, found.x_mean, found.x_std), (y, found.y_mean, found.y_std)):
            floats = side.astype(np.float32)
            assert same(mean, np.mean(floats, dtype=np.float64))
            assert same(std, np.std(floats, dtype=np.float64))


@given(
    st.sampled_from(RECIPES),
    st.integers(1, 1000) | st.sampled_from([1025, 8191, 8192, 8193, 16385, 32769, 50_001]),
    st.tuples(st.sampled_from(FLOATS), st.sampled_from(FLOATS)),
    st.integers(0, 1 << 30),
)
def test_every_number_is_numpys_to_the_bit(recipe, size, dtypes, seed):
    check(*made(recipe, size, dtypes, seed))


@pytest.mark.parametrize("size", [(1 << 18) + 3, 123_457])
@pytest.mark.parametrize("recipe", ["near", "apart", "huge"])
def test_large_arrays(recipe, size):
    check(*made(recipe, size, (np.float16, np.float32), size))


def test_integers_are_rounded_once():
    """2^24 + 1 and 2^54 + 2^30 + 1 lie just beside a tie: by way of float64 they round wrong."""
    values = [2**24 + 1, 2**54 + 2**30 + 1, -(2**54) - 2**30 - 1, 2**63 - 1, 7]
    check(np.array(values, np.int64), np.arange(5.0, dtype=np.float32))
    check(np.array([abs(v) for v in values] + [2**64 - 1], np.uint64), np.arange(6.0) + 1)


def test_a_sum_has_more_elements_than_a_float_can_count():
    """The mean is of 2^24 + 1 elements, of which float32 would make 2^24."""
    count = (1 << 24) + 1
    x = np.broadcast_to(np.float32(3), (count,))
    y = np.broadcast_to(np.float32(1), (count,))
    found = float32_metrics(x, y)
    assert found.mae == float(np.abs(x - y).mean())


@given(st.sampled_from(["near", "apart", "halves"]), st.integers(1, 4000), st.integers(0, 1 << 30))
def test_the_quick_divergence_is_within_its_bound(recipe, size, seed):
    """Ours and NumPy's logarithm differ in their last bits: ours is within 3 * 2^-24, and NumPy's
    within 8 * 2^-24 of the logarithm's size."""
    x, y = made(recipe, size, (np.float32, np.float32), seed)
    shares = [np.maximum((v - v.min()) / (np.ptp(v) or 1), oracle.FLOOR) for v in (x, y)]
    p, q = (v / v.sum() for v in shares)
    theirs = np.log(p / q)
    exact = np.log((p / q).astype(np.float64))
    assert np.all(np.abs(theirs - exact) <= 8 * 2.0**-24 * np.abs(exact))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return
    sides = [native_operand(operand(v), -inf) for v in (x, y)]
    spans = [
        (float(v.min()), float(np.ptp(v)), float(s.sum()))
        for v, s in zip((x, y), shares, strict=True)
    ]
    found, magnitude = _kernel.compat_divergence(*sides, *spans)
    terms = p.astype(np.float64) * exact
    additions = 26 + max(0, log2(size / 64))
    assert abs(found - terms.sum()) <= (4 + additions) * 2.0**-24 * np.abs(terms).sum()
    assert magnitude == pytest.approx(np.abs(terms).sum(), rel=1e-5)


def test_a_logarithm_is_right_over_the_whole_range():
    """One term at a time: p is 1/2 where the other element is left to make up the rest."""
    for exponent in np.linspace(-22, 0, 300):
        x, y = np.array([1.0, 1.0, 0.0], np.float32), np.array([2.0**exponent, 1, 0], np.float32)
        assert f"{float32_metrics(x, y, decimals=6).kl:.6f}" == f"{oracle.kl(x, y):.6f}"


def hard_dividends(rng, divisor, count):
    """Whose quotients lie as near to the middle between two floats as they can, and any others."""
    significand = int(np.ldexp(np.frexp(divisor)[0], 24))
    middles = 2 * rng.integers(1 << 23, 1 << 24, count) + 1
    near = [int(m) * significand for m in middles]
    shifts = [value.bit_length() - 24 for value in near]
    found = [(v + (1 << s >> 1)) >> s for v, s in zip(near, shifts, strict=True)]
    exponents = rng.integers(-20, 3, count) - 24
    hard = np.ldexp(np.array(found, np.float64), exponents) * np.exp2(np.floor(np.log2(divisor)))
    hard = hard[hard < np.finfo(np.float32).max]
    return np.concatenate([hard, rng.random(count) * divisor]).astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 2.0**-69, 2.0**-75, 1e-38, 1e-30, 7e29, 1e35, 1e38])
def test_divisions_by_one_number_are_rounded_as_divisions(scale):
    """The kernel multiplies where it is known to come to the same."""
    rng = np.random.default_rng(3)
    ends = [1, 1 + 2**-23, 1.5, 2 - 2**-23, 2 - 2**-22, 2 - 3 * 2**-23, 2 - 2**-16, 2 - 2**-15]
    for divisor in np.array([*ends, *rng.uniform(1, 2, 40)], np.float32) * np.float32(scale):
        x = hard_dividends(rng, divisor, 3000)
        one = np.ones_like(x)
        sides = [native_operand(operand(v), -inf) for v in (x, one)]
        p, quotient = np.empty((2, x.size), np.float32)
        _kernel.compat_quotients(*sides, (0, float(divisor), 1), (0, 1, 1), 0, p, quotient)
        wanted = np.maximum(x / divisor, oracle.FLOOR)
        assert np.array_equal(p, wanted) and np.array_equal(quotient, wanted)
        if scale in (1.0, 2.0**-69, 7e29):
            _kernel.compat_quotients(*sides, (0, 1, float(divisor)), (0, 1, 1), 0, p, quotient)
            assert np.array_equal(p, np.maximum(x, oracle.FLOOR) / divisor)


SCRIPT = """
import json, sys
from helpers import float32_pairs as t
from dataclasses import astuple
from syncpoint.metrics.numpy_float32 import float32_metrics
found = []
for seed, recipe in enumerate(t.RECIPES):
    for dtypes in [(a, b) for a in t.FLOATS for b in t.FLOATS]:
        x, y = t.made(recipe, 3001, dtypes, seed)
        for decimals in (None, 6):
            found.append([v.hex() for v in astuple(float32_metrics(x, y, decimals=decimals))])
print(json.dumps(found))
"""


@pytest.mark.skipif(_kernel.isa() == "baseline", reason="there is no other instruction set")
def test_both_instruction_sets_give_the_same_bits():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONPATH": str(TESTS), "SYNCPOINT_ISA": isa},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for isa in ("avx2", "baseline")
    ]
    assert len(json.loads(outputs[0])) == 2 * len(RECIPES) * len(FLOATS) ** 2
    assert outputs[0] == outputs[1]


def test_complex_and_unlike_sizes_are_refused():
    real = native_operand(operand(np.ones(4, np.float32)), -inf)
    for other in (np.ones(4, np.complex64), np.ones(3, np.float32)):
        with pytest.raises(ValueError, match=r"sizes differ|real elements"):
            _kernel.compat_first(real, native_operand(operand(other), -inf))
    with pytest.raises(ValueError, match="no such stretch"):
        p = np.empty((2, 5), np.float32)
        _kernel.compat_quotients(real, real, (0, 1, 1), (0, 1, 1), 0, p[0], p[1])
