"""Values that are the reference's, correctly rounded, are as good as their type allows."""

from math import nan

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.engine import Options, compare
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

CLOSE, MODERATE, LARGE = Verdict.CLOSE, Verdict.MODERATE, Verdict.LARGE


def judged(values, dtype, wrong=None, role=Role.PARAMETER, limits="auto"):
    """The row of a float32 parameter that a target has in another type."""
    reference = np.asarray(values, np.float32)
    with np.errstate(over="ignore"):
        target = reference.astype(DTYPES[dtype].numpy) if wrong is None else wrong
    sides = []
    for side in (np.asarray(target, DTYPES[dtype].numpy), reference):
        given = {"parameters": [("a", side)]} if role is Role.PARAMETER else {}
        ops = [("out", "linear", "", [], np.ones(4, np.float32))]
        if role is Role.OUTPUT:
            ops.insert(0, ("a", "constant", "", [], side))
        sides.append(run(*ops, **given))
    found = compare(*sides, Options(choice=limits))
    return next(row for row in found.rows if str(row.target.key.op) == "a")


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.OUTPUT])
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1e-6, "f16"), (-3e-6, "f16"), (6e-5, "f16"), (1e-39, "bf16"), (0.012, "f8_e4m3fn")],
)
def test_a_scalar_in_the_subnormal_range_of_its_type_is_close(value, dtype, role):
    assert judged(value, dtype, role=role).verdict is CLOSE


def test_a_tensor_of_subnormal_values_is_close():
    values = np.random.default_rng(0).uniform(5e-7, 5e-6, 1000)
    assert judged(values, "f16").verdict is CLOSE


@pytest.mark.parametrize(("value", "dtype"), [(1e5, "f16"), (3.4e38, "bf16"), (1e6, "f8_e5m2")])
def test_a_scalar_that_overflows_is_large(value, dtype):
    assert judged(value, dtype).verdict is LARGE


def test_a_scalar_that_becomes_zero_is_not_close():
    """A model may divide by it."""
    row = judged(1e-9, "f16")
    assert row.verdict is MODERATE
    assert row.reason == "1 value too small for f16 became 0; correctly rounded to f16"


def test_a_scalar_with_hardly_a_digit_left_is_not_close():
    row = judged(1e-7, "f16")
    assert row.verdict is MODERATE and "rel_l2 19%" in row.reason


@pytest.mark.parametrize("wrong", [1.1e-6, 0.0, 2e-6, -1e-6, nan])
def test_a_neighbour_of_the_right_value_is_not_close(wrong):
    assert judged(1e-6, "f16", wrong).verdict.severity


def test_one_wrong_value_among_many_is_not_close():
    values = np.full(1000, 1e-6, np.float32)
    target = values.astype(np.float16)
    target[7] = np.nextafter(target[7], np.float16(1))
    target[7] = np.nextafter(target[7], np.float16(1))
    assert judged(values, "f16", target).verdict.severity


def test_limits_that_are_stricter_than_the_type_hold():
    assert judged(0.1, "f16", limits=PRESETS["f32"]).verdict.severity
    assert judged(1e-6, "f16", limits=PRESETS["bf16"]).verdict is CLOSE
