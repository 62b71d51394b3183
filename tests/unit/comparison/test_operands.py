"""Operands through views: quantized tensors keep their scale where a view cannot change it."""

import ml_dtypes
import numpy as np
import pytest

from syncpoint.comparison.operands import dequantize, fit_view, quantization_steps
from syncpoint.matching.views import View
from syncpoint.metrics import Operand, Pair, measure
from syncpoint.run.model import Quantization

STORED = np.arange(-6, 6, dtype=np.int8).reshape(1, 3, 4)
ONE_SCALE = Quantization((0.25,), (2,))
SCALE_PER_ROW = Quantization((0.25, 0.5, 1.0), (0, 1, 2), axis=1)
SCALE_PER_BLOCK = Quantization((0.25, 0.5), (0, 1), axis=2, block=2)
TABLE = Quantization((0.5,), (-6,), table=tuple(float(n * n) for n in range(12)))
TABLE_PER_ROW = Quantization(
    (1.0, 2.0, 3.0), (-6, -6, -6), axis=1, table=tuple(float(n) for n in range(12))
)

VIEWS = {
    "transpose": (View("transpose(0,2,1)"), (1, 4, 3)),
    "reshape": (View("reshape(2,6)"), (2, 6)),
    "slice": (View("slice(2,1,3)"), (1, 3, 2)),
    "unit axes": (View(), (3, 4, 1)),
}


def rearrange(array, view, shape):
    return view.apply(array) if view else array.reshape(shape)


def fit(quantization, view, shape, stored=STORED, dtype="i8"):
    return fit_view(Operand(stored, dtype, quantization), view, shape)[0]


@pytest.mark.parametrize(("view", "shape"), VIEWS.values(), ids=VIEWS)
def test_a_tensor_with_one_scale_keeps_it_through_a_view(view, shape):
    viewed = fit(ONE_SCALE, view, shape)
    assert (viewed.dtype, viewed.quantization) == ("i8", ONE_SCALE)
    np.testing.assert_array_equal(viewed.array, rearrange(STORED, view, shape))
    np.testing.assert_array_equal(quantization_steps(viewed), np.full(shape, 0.25))


@pytest.mark.parametrize(("view", "shape"), VIEWS.values(), ids=VIEWS)
def test_a_tensor_with_one_scale_of_four_bits_keeps_it_through_a_view(view, shape):
    viewed = fit(ONE_SCALE, view, shape, STORED.astype(ml_dtypes.int4), "i4")
    assert (viewed.dtype, viewed.quantization) == ("i4", ONE_SCALE)
    expected = rearrange((STORED - 2) * 0.25, view, shape)
    np.testing.assert_array_equal(dequantize(viewed), expected)
    # The kernel reads the rearranged elements as they are.
    [measurement] = measure([Pair(viewed, Operand(np.ascontiguousarray(expected), "f64"))])
    assert measurement.equal == measurement.count == expected.size


@pytest.mark.parametrize(("view", "shape"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("quantization", [SCALE_PER_ROW, SCALE_PER_BLOCK, TABLE_PER_ROW])
def test_scales_along_an_axis_are_undone_before_a_view_moves_the_axis(quantization, view, shape):
    viewed = fit(quantization, view, shape)
    assert (viewed.dtype, viewed.quantization) == ("f64", None)


@pytest.mark.parametrize(("view", "shape"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize(
    "quantization", [ONE_SCALE, SCALE_PER_ROW, SCALE_PER_BLOCK, TABLE, TABLE_PER_ROW]
)
def test_a_view_gives_the_rearranged_real_numbers(quantization, view, shape):
    expected = rearrange(dequantize(Operand(STORED, "i8", quantization)), view, shape)
    viewed = fit(quantization, view, shape)
    np.testing.assert_array_equal(dequantize(viewed), expected)
    [measurement] = measure([Pair(viewed, Operand(np.ascontiguousarray(expected), "f64"))])
    assert measurement.equal == measurement.count == expected.size


def test_a_tensor_that_fits_is_returned_as_it_is():
    operand = Operand(STORED, "i8", SCALE_PER_ROW)
    assert fit_view(operand, View(), STORED.shape) == (operand, View())
