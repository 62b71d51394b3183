"""Each rule of METRICS.md on numbers small enough to be worked out by hand."""

from math import inf, isclose, nan, sqrt

import ml_dtypes
import numpy as np
import pytest

from syncpoint.metrics import Operand, Pair, measure, operand
from syncpoint.run.model import Quantization

F16, F32, F64 = np.float16, np.float32, np.float64
BF16 = ml_dtypes.bfloat16
LOWEST32 = float(np.finfo(F32).min)


def of(t, r, target=F32, reference=F32, **options):
    """Measure two lists of numbers."""
    sides = operand(np.array(t, target)), operand(np.array(r, reference))
    return measure([Pair(*sides, **options)])[0]


# --- plain numbers ---------------------------------------------------------------------------


def test_a_pair_worked_out_by_hand():
    got = of([1, 2, 3, 5], [1, 2, 4, 4])
    assert (got.count, got.compared, got.equal, got.exact) == (4, 4, 2, 0.5)
    assert (got.mae, got.mse, got.rmse) == (0.5, 0.5, sqrt(0.5))
    assert (got.max_abs, got.max_abs_index) == (1.0, 2)
    assert (got.euclid, got.peak) == (sqrt(2), 4.0)
    assert isclose(got.psnr, 15.05149978319906, abs_tol=1e-9)  # 10 log10(16 / 0.5)
    assert isclose(got.sqnr, 12.671717284030137, abs_tol=1e-9)  # 10 log10(37 / 2)
    assert isclose(got.rel_l2, sqrt(2 / 37))
    assert isclose(got.norm_ratio, sqrt(39 / 37))
    assert isclose(got.cosine, 37 / sqrt(39 * 37))
    assert (got.target_mean, got.target_min, got.target_max) == (2.75, 1.0, 5.0)
    assert isclose(got.target_std, sqrt(35 / 16))
    assert isclose(got.target_l2, sqrt(39))
    assert (got.max_rel, got.acc_rel, got.mean_rel) == (0.25, 0.5, 0.125)
    assert (got.rel_count, got.rel_undefined) == (4, 0)
    assert got.mean_rel_robust == 0.125
    assert got.within_1e3 == got.within_5e3 == got.allclose == 0.5
    assert got.error_histogram == ((0, 2),)
    assert got.lsb is None


def test_of_several_greatest_errors_the_first_is_named():
    assert of([0, 2, 0, 2], [1, 1, 1, 1]).max_abs_index == 0
    assert of([1, 2, 0, 2], [1, 1, 1, 1]).max_abs_index == 1
    late = np.zeros(60_000, F32)
    late[[20_000, 40_000]] = (1, -1)
    assert measure([Pair(operand(late), operand(0 * late))])[0].max_abs_index == 20_000


def test_the_index_is_logical_whatever_the_memory():
    t = np.zeros((3, 4), F32)
    t[2, 1] = 1
    r = np.zeros((3, 4), F32)
    for view in (t, np.asfortranarray(t), np.ascontiguousarray(t.T).T):
        assert measure([Pair(operand(view), operand(r))])[0].max_abs_index == 9


def test_minus_zero_is_zero():
    got = of([-0.0, 0.0], [0.0, -0.0])
    assert (got.exact, got.target_zero, got.reference_zero) == (1.0, 2, 2)
    assert got.psnr == got.sqnr == inf


def test_histogram_counts_powers_of_two():
    got = of([0.5, 0.75, 1, 1.99, 2, 0, 5e-324], [0] * 7, F64, F64)
    assert got.error_histogram == ((-1074, 1), (-1, 2), (0, 2), (1, 1))


# --- nothing to divide by --------------------------------------------------------------------


def test_empty():
    got = of([], [])
    assert (got.count, got.compared, got.equal) == (0, 0, 0)
    numbers = "exact psnr sqnr mae rmse max_abs max_abs_index rel_l2 cosine peak target_mean"
    for name in (*numbers.split(), "max_rel", "within_1e3", "allclose", "max_ulp", "target_std"):
        assert getattr(got, name) is None, name
    assert got.error_histogram == ()


def test_reference_all_zero():
    off, equal = of([1, 0], [0, 0]), of([0, 0], [0, 0])
    assert off.psnr == off.sqnr == -inf
    assert equal.psnr == equal.sqnr == inf
    for got in (off, equal):
        for name in ("rel_l2", "norm_ratio", "cosine", "max_rel", "mean_rel", "acc_rel"):
            assert getattr(got, name) is None, name
        assert got.within_1e3 is got.within_5e3 is got.mean_rel_robust is None
    assert (off.rel_count, off.rel_undefined, equal.rel_undefined) == (0, 1, 0)


def test_equal_tensors_have_no_noise():
    got = of([1, 2], [1, 2])
    assert (got.psnr, got.sqnr, got.max_abs, got.mean_rel_robust) == (inf, inf, 0.0, 0.0)
    assert (got.max_abs_index, got.exact, got.max_ulp) == (0, 1.0, 0.0)


def test_one_element_has_no_direction():
    got = of(2.0, 1.0)
    assert got.cosine is None
    assert (got.norm_ratio, got.psnr, got.target_std, got.max_abs_index) == (2.0, 0.0, 0.0, 0)


def test_a_target_of_zeros_has_no_direction_but_a_norm():
    got = of([0, 0], [3, 4])
    assert got.cosine is None
    assert (got.norm_ratio, got.rel_l2) == (0.0, 1.0)


def test_zeros_in_the_reference_are_set_apart():
    got = of([1, 0, 2.002], [0, 0, 2], F64, F64)
    assert (got.rel_count, got.rel_undefined) == (1, 1)
    assert isclose(got.max_rel, 1e-3, rel_tol=1e-9)
    assert got.acc_rel == got.mean_rel == got.max_rel


def test_the_robust_mean_has_a_floor_under_small_references():
    # rms r = 1, so the floor is 1e-3.
    got = of([2**0.5, 1e-3], [2**0.5, 0], F64, F64)
    assert isclose(got.mean_rel_robust, 0.5, rel_tol=1e-12)


def test_the_thousandths_are_not_included():
    got = of([1001, 200 + 1], [1000, 200], F64, F64)  # exactly 1/1000 and 5/1000
    assert (got.within_1e3, got.within_5e3) == (0.0, 0.5)


# --- what is not finite ----------------------------------------------------------------------


def test_the_same_hole_on_both_sides_is_equal_and_left_out():
    got = of([nan, inf, 1, 3], [nan, inf, 1, 1])
    assert (got.mismatched, got.masked, got.compared, got.equal) == (0, 0, 2, 3)
    assert (got.target_nan, got.target_inf, got.reference_nan, got.reference_inf) == (1, 1, 1, 1)
    assert (got.mse, got.peak, got.max_abs_index, got.exact) == (2.0, 1.0, 3, 0.75)


@pytest.mark.parametrize(
    ("t", "r"), [(nan, 1), (1, nan), (inf, 1), (1, inf), (inf, -inf), (-inf, inf), (nan, inf)]
)
def test_a_hole_on_one_side_is_a_mismatch_and_the_rest_is_measured(t, r):
    got = of([t, 1, 3], [r, 1, 1])
    assert (got.mismatched, got.compared, got.equal) == (1, 2, 1)
    assert (got.mse, got.max_abs_index) == (2.0, 2)
    assert got.allclose == got.within_1e3 == 1 / 3


def test_nothing_but_holes():
    got = of([nan, inf], [nan, 1])
    assert (got.compared, got.mismatched, got.psnr, got.max_abs) == (0, 1, None, None)
    assert got.allclose == 0.0


# --- masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64])
def test_a_mask_on_both_sides_is_counted_and_left_out(dtype):
    lowest = float(ml_dtypes.finfo(dtype).min)
    got = of([lowest, 1, 3], [lowest, 1, 1], dtype, dtype)
    assert (got.masked, got.compared, got.mismatched, got.equal) == (1, 2, 0, 2)
    assert (got.mse, got.peak, got.target_min) == (2.0, 1.0, 1.0)
    assert got.target_overflow == got.reference_overflow == 0


def test_each_side_has_the_mask_of_its_own_type():
    got = of([-65504, 1, 3], [LOWEST32, 1, 1], F16, F32)
    assert (got.masked, got.mismatched, got.compared, got.peak) == (1, 0, 2, 1.0)


def test_minus_infinity_is_a_mask_against_a_lowest_number():
    got = of([-inf, -65504, -inf, 1], [-65504, -inf, -inf, 1], F16, F16)
    assert (got.masked, got.mismatched, got.equal) == (3, 0, 2)
    assert (got.target_inf, got.target_overflow) == (2, 0)


def test_minus_infinity_against_a_number_is_a_mismatch():
    got = of([-inf, 1, -inf], [-5, -inf, nan])
    assert (got.masked, got.mismatched, got.compared) == (0, 3, 0)


def test_half_the_lowest_number_is_the_border():
    half = LOWEST32 / 2
    assert of([half, 1], [half, 1]).masked == 1
    above = float(np.nextafter(F32(half), F32(0)))
    assert of([above, 1], [above, 1]).masked == 0


def test_the_same_mask_in_another_type_agrees():
    # -65504 is a mask in f16 and an ordinary number in f32.
    got = of([-65504, 1], [-65504, 1], F16, F32)
    assert (got.masked, got.mismatched, got.compared, got.exact) == (1, 0, 1, 1.0)
    near = of([-65504, 1], [-65500, 1], F16, F32)
    assert (near.masked, near.mismatched) == (1, 0)


def test_a_mask_may_be_the_lowest_number_of_another_type():
    # A wider type holds the lowest number of the type that its writer meant to cast to.
    got = of([-inf, LOWEST32, 1], [-65504, -65504, 1], F32, F64)
    assert (got.masked, got.mismatched, got.compared) == (2, 0, 1)
    # Not on a side whose finite masks are turned off.
    off = Operand(np.array([-65504.0]), "f64", mask_below=-inf)
    assert measure([Pair(operand(np.array([LOWEST32], F32)), off)])[0].mismatched == 1
    # On both sides it is a number like others.
    plain = of([-65504, 1], [-65504, 1], F32, F64)
    assert (plain.masked, plain.compared) == (0, 2)


def test_a_saturated_score_is_not_a_mask():
    got = of([-65504, 1], [-1e6, 1], F16, F32)
    assert (got.masked, got.mismatched, got.compared) == (0, 1, 1)


def test_a_mask_on_one_side_only_is_a_mismatch():
    got = of([LOWEST32, 1], [0.5, 1])
    assert (got.masked, got.mismatched, got.compared) == (0, 1, 1)
    assert got.psnr == inf


@pytest.mark.parametrize("name", ["f8_e4m3fn", "f8_e5m2", "i8", "c64"])
def test_some_types_have_no_masks(name):
    dtype = np.dtype(
        {"f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "i8": "i1", "c64": "c8"}[name]
    )
    lowest = {"f8_e4m3fn": -448, "f8_e5m2": -57344, "i8": -128, "c64": LOWEST32}[name]
    got = of([lowest, 1], [lowest, 1], dtype, dtype)
    assert (got.masked, got.compared) == (0, 2)


def test_a_threshold_may_be_given():
    data = np.array([-1e4, -1e4, 1], F32)
    side = Operand(data, "f32", mask_below=-1e4)
    assert measure([Pair(side, side)])[0].masked == 2
    wide = operand(np.array([-np.inf, LOWEST32, 1], F32))
    off = Operand(wide.data, "f32", mask_below=-inf)
    assert measure([Pair(off, off)])[0].masked == 1


# --- overflow --------------------------------------------------------------------------------


def test_overflow_is_at_the_greatest_number_of_the_target():
    got = of([65504, 1, 0], [7e4, 65503, -65504.0], F16, F32)
    assert (got.target_overflow, got.reference_overflow) == (1, 1 + 1)


def test_infinity_is_overflow_where_it_is_no_mask():
    got = of([inf, -inf, -inf], [1, -inf, 1], F16, F16)
    assert (got.target_overflow, got.reference_overflow) == (2, 0)


def test_overflow_means_nothing_for_integers():
    got = of([127], [127], np.int8, np.int8)
    assert got.target_overflow is got.reference_overflow is None


# --- tolerances ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "rtol", "atol"),
    [
        (F64, 1e-7, 1e-7),
        (F32, 1.3e-6, 1e-5),
        (F16, 1e-3, 1e-5),
        (BF16, 1.6e-2, 1e-5),
        (np.complex64, 1.3e-6, 1e-5),
        (np.int32, 1e-7, 1e-7),
    ],
)
def test_all_close_takes_the_tolerances_of_the_coarser_type(target, rtol, atol):
    # |8192 - r| <= atol + rtol r holds up to r = (8192 + atol) / (1 - rtol).
    border = (8192 + atol) / (1 - rtol)
    inside, outside = border - 0.01 * 8192 * rtol, border + 0.01 * 8192 * rtol
    for pair in ((target, F64), (F64, target)):
        assert of([8192], [8192], *pair).allclose == 1.0
    got = of([8192, 8192], [inside, outside], target, F64)
    assert got.allclose == 0.5


def test_integers_and_small_floats_must_be_exact():
    assert of([100, 5], [101, 5], np.int32, np.int32).allclose == 0.5
    fp8 = ml_dtypes.float8_e4m3fn
    assert of([1, 2], [1.125, 2], fp8, fp8).allclose == 0.5
    assert of([True, False], [True, True], np.bool_, np.bool_).allclose == 0.5


def test_tolerances_may_be_given_and_include_their_border():
    assert of([1.5], [1.0], rtol=0.5, atol=0.0).allclose == 1.0
    assert of([1.5], [1.0], rtol=0.25, atol=0.25).allclose == 1.0
    assert of([1.5], [1.0], rtol=0.0, atol=0.49).allclose == 0.0


# --- integers --------------------------------------------------------------------------------


def test_integers_beyond_2_to_the_53_are_compared_as_integers():
    big = 2**60
    got = of([big + 1, -big], [big, -big - 1], np.int64, np.int64)
    assert (got.equal, got.max_abs, got.mae, got.max_ulp) == (0, 1.0, 1.0, 1.0)
    unsigned = of([2**64 - 1], [2**64 - 2], np.uint64, np.uint64)
    assert (unsigned.equal, unsigned.max_abs) == (0, 1.0)
    far = of([2**64 - 1], [-(2**63)], np.uint64, np.int64)
    assert far.max_abs == float(3 * 2**63)


def test_an_integer_equals_a_float_only_exactly():
    assert of([2**60 + 1, 2**60], [2.0**60] * 2, np.int64, F64).equal == 1
    assert of([2**60 + 1], [2.0**60], np.int64, F64).max_abs == 1.0


def test_the_spread_of_great_integers_is_seen():
    got = of([2**60, 2**60 + 2], [0, 0], np.int64, np.int64)
    assert got.target_std == 1.0


# --- complex numbers -------------------------------------------------------------------------


def test_complex_by_hand():
    got = of([3 + 4j, 1j], [0, 1], np.complex64, np.complex64)
    assert (got.max_abs, got.max_abs_index) == (5.0, 0)
    assert isclose(got.mse, (25 + 2) / 2)
    assert (got.target_min, got.target_max, got.target_mean) == (1.0, 5.0, 3.0)
    assert got.cosine == 0.0  # Re(t conj r) = Re(i) = 0
    assert (got.peak, got.rel_undefined, got.target_zero, got.reference_zero) == (1.0, 1, 0, 1)


def test_complex_holes():
    t = [complex(nan, 1), complex(inf, nan), complex(inf, 1), complex(1, inf), complex(nan, 1)]
    r = [complex(nan, 1), complex(inf, nan), complex(inf, 1), complex(1, -inf), complex(nan, 2)]
    got = of(t, r, np.complex128, np.complex128)
    assert (got.target_nan, got.target_inf) == (3, 2)
    assert (got.equal, got.mismatched, got.compared) == (3, 2, 0)


def test_complex_against_real():
    got = of([1 + 1j, 2], [1, 2], np.complex64, F32)
    assert (got.equal, got.max_abs, got.target_max) == (1, 1.0, 2.0)


# --- quantized -------------------------------------------------------------------------------


def quantized(stored, quantization, dtype="i8"):
    data = np.array(stored, np.int8 if dtype == "i8" else np.uint8)
    return Operand(data, dtype, quantization)


def test_one_scale_and_zero_point():
    side = quantized([-3, 5, 7], Quantization((0.5,), (3,)))
    got = measure([Pair(side, operand(np.array([-3, 1, 2.25], F32)))])[0]
    assert (got.equal, got.max_abs, got.target_min) == (2, 0.25, -3.0)
    assert isclose(got.lsb, sqrt(0.25 / 3))  # one of three is half a step off
    assert got.max_ulp is None
    assert got.target_overflow is None
    assert got.allclose == 2 / 3


def test_scales_along_an_axis():
    side = quantized([[2, 2], [2, 2]], Quantization((1.0, 10.0), (0, 1), axis=0))
    want = np.array([[2, 2], [10, 10]], F32)
    assert measure([Pair(side, operand(want))])[0].exact == 1.0
    turned = quantized([[2, 2], [2, 2]], Quantization((1.0, 10.0), (0, 1), axis=-1))
    assert measure([Pair(turned, operand(want.T))])[0].exact == 1.0


def test_scales_of_blocks_along_an_axis():
    side = quantized([[1] * 5] * 2, Quantization((1.0, 2.0, 3.0), axis=1, block=2))
    want = np.array([[1, 1, 2, 2, 3]] * 2, F32)
    assert measure([Pair(side, operand(want))])[0].exact == 1.0


def test_a_table_is_looked_up_before_the_scale():
    side = quantized([0, 2, 1, 3], Quantization((2.0,), table=(0.25, 0.5, 1.5)), "u8")
    got = measure([Pair(side, operand(np.array([0.5, 3, 1, 0], F32)))])[0]
    assert (got.equal, got.target_nan, got.mismatched) == (3, 1, 1)
    assert got.lsb is None


def test_steps_are_those_of_the_target_where_both_are_quantized():
    t, r = quantized([2], Quantization((0.5,))), quantized([1], Quantization((2.0,)))
    assert measure([Pair(t, r)])[0].lsb == 2.0
    plain = operand(np.array([3.0], F32))
    assert measure([Pair(plain, r)])[0].lsb == 0.5


def test_each_element_keeps_its_step_when_others_are_left_out():
    side = quantized([1, 1, 1], Quantization((1.0, 2.0, 4.0), axis=0))
    got = measure([Pair(side, operand(np.array([nan, 0, 4], F32)))])[0]
    assert got.compared == 2
    assert got.lsb == sqrt(0.5)  # one step off and none; with the step of the first it would be 2


def test_packed_nibbles_come_low_one_first():
    data = np.array([0x21, 0xF3], np.uint8)
    unsigned = Operand(data, "u4", shape=(3,))
    assert measure([Pair(unsigned, operand(np.array([1, 2, 3], F32)))])[0].exact == 1.0
    signed = Operand(data, "i4", Quantization((0.5,)), shape=(2, 2))
    want = operand(np.array([[0.5, 1], [1.5, -0.5]], F32))
    assert measure([Pair(signed, want)])[0].exact == 1.0


# --- the ends of float64 ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e160, 1e-170])
def test_ratios_do_not_see_the_magnitude(size):
    t, r = np.array([1.0, 2, 3, 5]), np.array([1.0, 2, 4, 4])
    plain = measure([Pair(operand(t), operand(r))])[0]
    got = measure([Pair(operand(t * size), operand(r * size))])[0]
    for name in ("psnr", "sqnr"):
        assert isclose(getattr(got, name), getattr(plain, name), abs_tol=1e-9)
    for name in ("rel_l2", "cosine", "norm_ratio", "mean_rel", "mean_rel_robust"):
        assert isclose(getattr(got, name), getattr(plain, name), rel_tol=1e-12), name
    for name in ("rmse", "mae", "euclid", "max_abs", "target_std", "target_l2", "peak"):
        assert isclose(getattr(got, name), getattr(plain, name) * size, rel_tol=1e-12), name
    assert got.mse in (0.0, inf)


def test_a_tiny_difference_of_ordinary_numbers():
    got = of([1.0, 1e-200], [1.0, 0.0], F64, F64)
    assert got.euclid == 1e-200
    assert isclose(got.sqnr, 4000.0, abs_tol=1e-9)


def test_a_difference_that_overflows():
    top = 1.5e308
    side = [Operand(np.array([x, 1.0]), "f64", mask_below=-inf) for x in (top, -top)]
    got = measure([Pair(*side)])[0]
    assert (got.max_abs, got.mse, got.max_rel) == (inf, inf, 2.0)
    assert isclose(got.rel_l2, 2.0)
    assert isclose(got.sqnr, -6.020599913279624, abs_tol=1e-9)
    assert got.error_histogram == ((1024, 1),)
