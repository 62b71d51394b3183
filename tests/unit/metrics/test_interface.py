"""The Python side of the kernel: what it takes, what it refuses, what it says of its metrics."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import ml_dtypes
import numpy as np
import pytest

from syncpoint.metrics import (
    CATALOGUE,
    METRIC_IDS,
    Measurement,
    Operand,
    Pair,
    _kernel,
    measure,
    operand,
    statistics,
)
from syncpoint.metrics.judge_values import judge_metric
from syncpoint.metrics.limits import preset
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Quantization

ONE = operand(np.ones(3, np.float32))


def test_the_catalogue_names_every_field_of_a_measurement_in_its_order():
    assert tuple(field.name for field in fields(Measurement)) == METRIC_IDS
    assert tuple(CATALOGUE)[: len(METRIC_IDS)] == METRIC_IDS
    measurement = measure([Pair(ONE, ONE)])[0]
    assert tuple(measurement.as_dict()) == METRIC_IDS


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=lambda m: m.id)
def test_every_metric_is_explained(metric):
    assert metric.title[0].isupper()
    assert metric.explanation[0] in "‖" or metric.explanation[0].isalnum()
    assert metric.explanation.endswith(".")
    assert metric.better in ("higher", "lower", "one", None)


def test_titles_are_unlike():
    assert len({metric.title for metric in CATALOGUE.values()}) == len(CATALOGUE)


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_is_understood_from_its_array(name):
    array = np.ones(4, DTYPES[name].numpy)
    assert operand(array).dtype == name
    assert measure([Pair(operand(array), operand(array))])[0].exact == 1.0
    assert statistics(operand(array)).mean == 1.0


def test_no_pairs_no_measurements():
    assert measure([]) == []


def test_measurements_come_in_the_order_of_the_pairs():
    pairs = [
        Pair(operand(np.full(k, k, np.float32)), operand(np.zeros(k, np.float32)))
        for k in range(50)
    ]
    assert [m.max_abs for m in measure(pairs)] == [None, *map(float, range(1, 50))]


def test_a_measurement_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        measure([Pair(ONE, ONE)])[0].psnr = 0.0


def test_types_may_come_as_raw_bits():
    bf16 = np.array([1.5, -2], ml_dtypes.bfloat16)
    pair = Pair(Operand(bf16.view(np.uint16), "bf16"), Operand(bf16.view("V2"), "bf16"))
    got = measure([pair])[0]
    assert (got.exact, got.peak) == (1.0, 2.0)


@pytest.mark.parametrize(
    "pair",
    [
        Pair(ONE, operand(np.ones((3, 1), np.float32))),
        Pair(ONE, operand(np.ones(4, np.float32))),
        Pair(ONE, Operand(np.ones(3, np.float64), "f32")),
        Pair(ONE, Operand(np.ones(3, np.int32), "f32")),
        Pair(ONE, Operand(np.zeros(1, np.uint8), "u4", shape=(3,))),
        Pair(ONE, Operand(np.zeros((2, 1), np.uint8), "u4", shape=(3,))),
        Pair(ONE, Operand(np.zeros(3, np.uint8), "u8", shape=(3,))),
        Pair(ONE, Operand(np.zeros(3, np.int8), "i8", Quantization((1.0, 2.0)))),
        Pair(ONE, Operand(np.zeros(3, np.int8), "i8", Quantization((1.0, 2.0), axis=0))),
        Pair(ONE, Operand(np.zeros(3, np.int8), "i8", Quantization((1.0,), axis=1))),
        Pair(ONE, Operand(np.zeros(3, np.int8), "i8", Quantization((1.0,) * 3, (0,) * 2, 0))),
        Pair(ONE, Operand(np.zeros(3, np.int8), "i8", Quantization(()))),
    ],
)
def test_what_does_not_fit_is_refused(pair):
    with pytest.raises(ValueError, match=r"."):
        measure([pair])


def test_statistics_of_what_has_no_finite_element():
    got = statistics(operand(np.array([np.nan, np.inf, -np.inf], np.float32)))
    assert (got.count, got.nan, got.inf, got.zero) == (3, 1, 2, 0)
    assert all(np.isnan(x) for x in (got.min, got.max, got.mean, got.std, got.l2))


def test_statistics_take_masks_for_numbers():
    assert statistics(operand(np.array([-65504, 0], np.float16))).min == -65504.0


def test_importing_it_loads_nothing_heavy():
    code = "import sys, syncpoint.metrics; print({'torch', 'polars', 'pandas'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_a_lower_tier_leaves_the_rest_out():
    pair = Pair(operand(np.array([1, 2.5], np.float32)), operand(np.array([1, 2], np.float32)))
    whole = measure([pair])[0].as_dict()
    for name, tier in (("base", "base"), ("relative", "relative")):
        less = measure([pair], tier=tier)[0].as_dict()
        missing = {key for key in whole if less[key] != whole[key]}
        assert (
            missing
            == {
                "base": {"max_ulp", "error_histogram", "outliers", "outliers_from"}
                | {m.id for m in CATALOGUE.values() if "rel" in m.id and m.id != "rel_l2"}
                | {"within_1e3", "within_5e3", "allclose"},
                "relative": {"max_ulp", "error_histogram", "outliers", "outliers_from"},
            }[name]
        )
        assert all(less[key] in (None, ()) for key in missing)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_robust_mean_is_measured_where_it_can_matter(kind):
    r = np.array([1, 2, 4], kind)
    near, far = r * kind(1 + 2.0**-20), r * kind(1.25)
    small = Pair(operand(near), operand(r))
    assert measure([small])[0].mean_rel_robust is None
    asked = measure([small], robust=True)[0]
    assert asked.mean_rel_robust == asked.mean_rel == 2.0**-20
    assert measure([Pair(operand(far), operand(r))])[0].mean_rel_robust == 0.25
    assert measure([Pair(operand(r), operand(r))])[0].mean_rel_robust == 0.0
    zero = np.array([1, 2, 0], kind)
    over_zero = measure([Pair(operand(zero + kind(2.0**-20)), operand(zero))])[0]
    assert over_zero.rel_undefined == 1
    assert over_zero.mean_rel_robust is not None


def test_without_its_robust_twin_mean_rel_is_judged_itself():
    r = np.array([1, 2, 4], np.float32)
    numbers = measure([Pair(operand(r * np.float32(1 + 2.0**-20)), operand(r))])[0].as_dict()
    assert numbers["mean_rel_robust"] is None
    assert judge_metric("mean_rel", numbers, preset("f32")) is Verdict.CLOSE
    assert judge_metric("mean_rel", {**numbers, "mean_rel": 1.0}, preset("f32")) is Verdict.LARGE


def test_the_instruction_set_is_known():
    assert _kernel.isa() in ("avx2", "baseline")
