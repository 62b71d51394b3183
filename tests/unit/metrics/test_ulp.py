"""Units in the last place, against the numbers of each type counted one by one."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.metrics import Operand, Pair, measure, operand

SMALL = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
}


def max_ulp(t, r):
    return measure([Pair(operand(np.asarray(t)), operand(np.asarray(r)))])[0].max_ulp


def all_numbers(dtype) -> np.ndarray:
    """Every finite number of a small type, in order, each once."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    every = np.arange(2 ** (8 * unsigned.itemsize), dtype=np.uint64).astype(unsigned).view(dtype)
    with np.errstate(invalid="ignore"):
        wide = every.astype(np.float64)
    return np.unique(wide[np.isfinite(wide)])


@pytest.mark.parametrize("name", SMALL)
def test_distance_is_the_number_of_steps_between_two_numbers(name):
    numbers = all_numbers(SMALL[name])
    rng = np.random.default_rng(0)
    i, j = rng.integers(len(numbers), size=(2, 300))
    pairs = [
        Pair(
            Operand(numbers[a : a + 1].astype(SMALL[name]), name, mask_below=-math.inf),
            Operand(numbers[b : b + 1], "f64", mask_below=-math.inf),
        )
        for a, b in zip(i, j, strict=True)
    ]
    assert [m.max_ulp for m in measure(pairs)] == [
        float(abs(a - b)) for a, b in zip(i, j, strict=True)
    ]


@pytest.mark.parametrize("name", SMALL)
def test_neighbours_are_one_apart_everywhere(name):
    numbers = all_numbers(SMALL[name])
    t, r = numbers[1:].astype(SMALL[name]), numbers[:-1].astype(SMALL[name])
    pair = Pair(Operand(t, name, mask_below=-math.inf), Operand(r, name, mask_below=-math.inf))
    assert measure([pair])[0].max_ulp == 1.0


def places(numbers: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Where values lie in the sorted numbers of a type: at an index or a fraction between two."""
    after = np.clip(np.searchsorted(numbers, of), 1, len(numbers) - 1)
    low, high = numbers[after - 1], numbers[after]
    return after - 1 + (of - low) / (high - low)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("finer", [False, True])
def test_every_number_of_a_16_bit_type(name, finer):
    numbers = all_numbers(SMALL[name])
    least, one = np.abs(numbers[numbers != 0]).min(), np.float64(1)
    if finer:
        # Floats between two numbers of the type, also between its subnormal ones.
        partners = np.array([0.3 * least, -700.4 * least, 1.0001], np.float32)
    else:
        partners = np.array([-1000 * least, one, numbers[0]], np.float64)
    dtype = np.dtype(np.float32 if finer else SMALL[name])
    every = numbers.astype(SMALL[name])
    for partner in partners:
        side = Operand(np.array([partner], dtype), "f32" if finer else name, mask_below=-math.inf)
        pairs = [
            Pair(Operand(every[k : k + 1], name, mask_below=-math.inf), side)
            for k in range(len(every))
        ]
        got = np.array([m.max_ulp for m in measure(pairs)])
        there = places(numbers, np.array([partner], dtype).astype(np.float64))
        np.testing.assert_allclose(
            got, np.abs(np.arange(len(numbers)) - there), rtol=1e-15, atol=1e-10
        )


@given(st.integers(0, 2**31 - 2**23 - 1), st.integers(0, 2**31 - 2**23 - 1), st.booleans())
def test_float32_by_its_bits(a, b, opposite):
    bits = np.array([a, b], np.uint32)
    t, r = bits.view(np.float32)
    if opposite:
        r = -r
    side = [Operand(np.array(x, np.float32), "f32", mask_below=-math.inf) for x in (t, r)]
    want = a + b if opposite else abs(a - b)
    assert measure([Pair(*side)])[0].max_ulp == float(want)


def test_float64_from_end_to_end_is_counted_in_integers():
    top = np.finfo(np.float64).max
    side = [Operand(np.array(x), "f64", mask_below=-math.inf) for x in (top, -top)]
    assert measure([Pair(*side)])[0].max_ulp == float(2 * (2047 * 2**52 - 1))
    assert max_ulp(5e-324, -5e-324) == 2.0
    assert max_ulp(-0.0, 0.0) == 0.0
    assert max_ulp(1.0, np.nextafter(1.0, 2)) == 1.0


def test_a_finer_number_lies_between_two_coarser_ones():
    # f16 has a step of 2^-10 from 1 to 2 and of 2^-11 below 1.
    assert max_ulp(np.float16(1), np.float64(1 + 2**-11)) == 0.5
    assert max_ulp(np.float16(1), np.float64(1 - 2**-12)) == 0.5
    # From 1 - 2^-11 to 1 + 2^-10 there is one step on either side of the border.
    assert max_ulp(np.float16(1 - 2**-11), np.float64(1 + 2**-10)) == 2.0


def test_beyond_the_greatest_number_the_scale_goes_on():
    # 65504 + 32 would be the next f16.
    assert max_ulp(np.float16(65504), np.float32(65536)) == 1.0


def test_integers_are_their_distance():
    assert max_ulp(np.int64(2**62 + 1), np.int64(2**62)) == 1.0
    assert max_ulp(np.uint8(200), np.int8(-100)) == 300.0


def test_an_integer_against_a_float_takes_the_float():
    assert max_ulp(np.int32(2**24 + 1), np.float32(2**24)) == 0.5
    assert max_ulp(np.int64(2**53 - 1), np.float64(2**53)) == 1.0
    assert max_ulp(np.int64(2**60 - 1), np.float64(2**60)) == 1 / 128


def test_complex_takes_its_worse_component():
    assert max_ulp(np.complex64(1 + 2j), np.complex64(1 + 2j)) == 0.0
    assert max_ulp(np.complex64(1 + 2.0000005j), np.complex64(1 + 2j)) == 2.0
    assert max_ulp(np.complex128(1 + 5e-324j), np.float64(1)) == 1.0


def test_none_for_booleans():
    assert max_ulp(np.array([True]), np.array([False])) is None
    assert max_ulp(np.array([True]), np.array([1.0])) is None
