"""The columns of the manual against NumPy, exact fractions and exact integers."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from syncpoint.ascend.mode.torchair import report_manual
from syncpoint.ascend.mode.torchair.report_manual import (
    DIFFERENCES,
    METRICS_SEED,
    columns_digest,
    columns_seed,
    columns_statistics,
)
from syncpoint.ascend.sheets import write_sheet

DTYPES = st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.int8, np.bool_])


def cells(mine: np.ndarray, golden: np.ndarray, ends: bool = False) -> dict[str, float | None]:
    return dict(zip(DIFFERENCES, columns_statistics(mine, golden, ends).metrics, strict=True))


@given(DTYPES, DTYPES, hnp.array_shapes(max_dims=3, max_side=7), st.integers(0, 2**32 - 1))
def test_figures_are_those_of_numpy(one, other, shape, seed):
    rng = np.random.default_rng(seed)
    golden = (rng.standard_normal(shape) * 3).astype(other)
    mine = (golden + rng.standard_normal(shape) * 0.5).astype(one)
    found = cells(mine, golden)
    x, y = mine.astype(np.float64), golden.astype(np.float64)
    for name, rel, figure in (
        ("Max diff", "MaxRelativeErr", np.max),
        ("Min diff", "MinRelativeErr", np.min),
        ("Mean diff", "MeanRelativeErr", np.mean),
        ("L2norm diff", "NormRelativeErr", lambda a: np.linalg.norm(a.ravel())),
    ):
        a, b = float(figure(x)), float(figure(y))
        assert found[name] == pytest.approx(a - b, rel=1e-9, abs=1e-12)
        if found[name] == 0:
            assert found[rel] == 0
        else:
            want = abs(found[name] / b) if b else math.inf
            assert found[rel] == pytest.approx(want, rel=1e-6)


def test_integers_are_not_rounded():
    big = 2**62
    found = cells(np.array([big + 1, 0]), np.array([big, 0]))
    assert found["Max diff"] == 1
    assert columns_statistics(np.array([big + 1]), np.array([big])).passed


def test_the_figures_do_not_depend_on_the_stretch(monkeypatch):
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    whole = cells(x, x[::-1] + np.float32(0.1)), columns_digest(x, x).metrics
    monkeypatch.setattr(report_manual, "_PIECE_ELEMENTS", 7)
    again = cells(x, x[::-1] + np.float32(0.1)), columns_digest(x, x).metrics
    assert whole[0] == pytest.approx(again[0], rel=1e-9, abs=1e-12)
    assert whole[1] == again[1] == (f"{zlib.crc32(x.tobytes()):08x}",) * 2


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.0099, True), (1.0101, False)])
def test_a_difference_is_significant_from_a_hundredth_on(factor, passed):
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert columns_statistics(x * factor, x).passed is passed


def test_a_mean_and_an_end_near_zero_are_measured_by_the_size_of_the_values():
    x = np.array([-1.0, 1.0, -2.0, 2.0 + 1e-9])
    found = columns_statistics(x + 1e-4, x)
    assert found.passed and found.metrics[6] > 1000
    low = np.array([1e-9, 1.0, 2.0])
    found = columns_statistics(low + np.array([1e-7, 0, 0]), low)
    assert found.passed and found.metrics[5] == pytest.approx(100)
    assert not columns_statistics(low + np.array([0.1, 0, 0]), low).passed


def test_special_values():
    x = np.array([1.0, np.nan])
    found = columns_statistics(x, x)
    assert all(math.isnan(v) for v in found.metrics)
    assert found.passed is False
    assert found.reason == "NPU data includes NAN or inf. Bench data includes NAN or inf."
    found = columns_statistics(np.array([1.0, np.inf]), np.array([1.0, 2.0]))
    assert found.metrics[0] == math.inf and found.passed is False
    found = columns_statistics(np.array([1.0, 0.0]), np.zeros(2))
    assert found.metrics[4] == math.inf and found.passed is False
    assert columns_statistics(np.zeros(2), np.zeros(2)).passed
    assert columns_statistics(np.zeros(0), np.zeros(0)).passed is None


def test_of_two_ends_mean_norm_and_checksum_are_not_known():
    found = columns_statistics(np.array([0.0, 2.0]), np.array([0.0, 1.0]), ends=True)
    assert found.metrics == (1.0, 0.0, None, None, 1.0, 0.0, None, None)
    assert found.passed is False
    assert columns_digest(np.zeros(2), np.zeros(2), ends=True).passed is None


def test_checksums_are_of_the_bytes():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    other = columns_digest(x, x + np.float32(1e-6))
    assert not other.passed and other.metrics[0] != other.metrics[1]
    turned = columns_digest(x.T.copy().T, x)  # another order in memory, the same elements
    assert turned.passed
    unlike = columns_digest(x.astype(np.float16), x)
    assert not unlike.passed and "float16 against float32" in unlike.reason


def test_a_checksum_of_digits_stays_text_in_a_sheet(tmp_path):
    from openpyxl import load_workbook

    write_sheet(tmp_path / "x.xlsx", ["NPU MD5", "Cosine"], [("green", ["00123456", "0.5"])])
    (row,) = load_workbook(tmp_path / "x.xlsx").active.iter_rows(min_row=2)
    assert [cell.value for cell in row] == ["00123456", 0.5]


FLOATS = st.floats(-1e6, 1e6, width=32).filter(lambda v: v == 0 or abs(v) > 1e-6)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=20))
def test_the_columns_of_the_manual_are_exact(pairs):
    mine, golden = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    found = dict(zip(METRICS_SEED, columns_seed(mine, golden).metrics, strict=True))
    x, y = ([Fraction(float(v)) for v in side] for side in (mine, golden))
    d = [abs(a - b) for a, b in zip(x, y, strict=True)]
    r = [
        0.0 if e == 0 else math.inf if b == 0 else float(e / abs(b))
        for e, b in zip(d, y, strict=True)
    ]
    assert found["MaxAbsErr"] == pytest.approx(float(max(d)), rel=1e-12)
    assert found["EucDist"] == pytest.approx(math.sqrt(sum(e * e for e in d)), rel=1e-12)
    assert found["MaxRelativeErr"] == pytest.approx(max(r), rel=1e-12)
    if not any(abs(e - limit) < 1e-12 for e in r for limit in (0.001, 0.005)):
        assert found["One Thousandth Err Ratio"] == sum(e < 0.001 for e in r) / len(r)
        assert found["Five Thousandth Err Ratio"] == sum(e < 0.005 for e in r) / len(r)
    norms = [sum(v * v for v in side) for side in (x, y)]
    if all(norms):
        cosine = (
            float(sum(a * b for a, b in zip(x, y, strict=True)))
            / math.sqrt(norms[0])
            / math.sqrt(norms[1])
        )
        assert found["Cosine"] == pytest.approx(cosine, abs=1e-12)
    else:
        assert math.isnan(found["Cosine"]) == any(norms)


@pytest.mark.parametrize(
    ("mine", "golden", "passed"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.019], [1.0, 2.0], True),
        ([1.0, 2.021], [1.0, 2.0], False),
        ([2.5], [7.5], False),
        ([7.5], [7.5], True),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([1e-20, 0.0], [0.0, 0.0], False),
        ([0.0, 0.0], [1.0, 0.0], False),
        ([np.nan, 1.0], [np.nan, 1.0], False),
        ([np.inf, 1.0], [np.inf, 1.0], False),
        ([np.inf, 1.0], [1.0, 1.0], False),
        ([], [], None),
    ],
)
def test_pass_and_fail(mine, golden, passed):
    assert columns_seed(np.array(mine), np.array(golden)).passed is passed


def test_integers_that_float64_takes_for_equal_are_not():
    big = 2**60
    found = columns_seed(np.array([big, 1]), np.array([big + 1, 1]))
    assert found.metrics[2] == 1
    found = columns_seed(np.array([1 + 1j, 2]), np.array([1 - 1j, 2]))
    assert found.metrics[2] == 2
