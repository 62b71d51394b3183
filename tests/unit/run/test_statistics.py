"""The statistics kept in place of values, against NumPy on well-behaved and awkward data."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from syncpoint.run.statistics import compute_statistics


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("count", [1, 1000, 200_003])
def test_figures_agree_with_numpy(dtype, count):
    array = (np.random.default_rng(0).standard_normal(count) * 20 + 7).astype(dtype)
    wide = array.astype(np.float64)
    found = compute_statistics(array)
    assert (found.count, found.min, found.max) == (count, wide.min(), wide.max())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-13)
    assert found.std == pytest.approx(wide.std(), rel=1e-12)
    assert found.l2 == pytest.approx(np.linalg.norm(wide), rel=1e-13)
    assert found.zero == np.count_nonzero(wide == 0)


def test_only_finite_elements_count_and_the_others_are_counted():
    found = compute_statistics(np.array([1.0, math.nan, math.inf, -math.inf, 3.0, 0.0]))
    assert (found.count, found.nan, found.inf, found.zero) == (6, 1, 2, 1)
    assert (found.min, found.max, found.mean) == (0.0, 3.0, pytest.approx(4 / 3))


@pytest.mark.parametrize("array", [np.array([]), np.array([math.nan, math.inf])])
def test_without_a_finite_element_the_figures_are_nan(array):
    found = compute_statistics(array)
    assert all(math.isnan(f) for f in (found.min, found.max, found.mean, found.std, found.l2))


def test_complex_numbers_count_by_their_modulus():
    found = compute_statistics(
        np.array([3 + 4j, 0, complex(math.nan, math.inf), complex(1, math.inf)])
    )
    assert (found.min, found.max, found.nan, found.inf, found.zero) == (0, 5, 1, 1, 1)
    assert found.l2 == 5


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_numbers_near_the_limits_of_float64_neither_overflow_nor_vanish(scale):
    found = compute_statistics(np.array([3.0, 4.0, -3.0, -4.0]) * scale)
    assert found.l2 == pytest.approx(math.sqrt(50) * scale, rel=1e-14)
    assert found.std == pytest.approx(math.sqrt(12.5) * scale, rel=1e-14)


def test_a_large_offset_does_not_swallow_the_deviation():
    array = np.random.default_rng(0).standard_normal(300_000) + 1e8
    assert compute_statistics(array).std == pytest.approx((array - 1e8).std(), rel=1e-6)
