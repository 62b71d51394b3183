"""The columns of TorchAir's reports against their definitions, in torch and in exact numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from syncpoint.ascend.dumps import torchair_columns
from syncpoint.ascend.dumps.torchair_columns import (
    METRICS_26,
    METRICS_SEED,
    columns_26,
    columns_seed,
)

EPSILON = torch.finfo(torch.float32).eps


def oracle(mine: np.ndarray, golden: np.ndarray) -> dict[str, float]:
    """By the definitions, in torch."""
    x, y = (torch.from_numpy(side.copy()).float().flatten() for side in (mine, golden))
    seen = y.abs() > EPSILON
    r = torch.where(seen, (x / y - 1).abs(), torch.zeros_like(x))
    d = torch.where(seen, (x - y).abs(), torch.zeros_like(x))
    a, b = x.double(), y.double()
    norms = a.norm(), b.norm()
    if norms[0] == 0 and norms[1] == 0:
        cosine = 1.0
    else:
        cosine = float(a @ b / (norms[0] * norms[1])) if all(norms) else 0.0
    kl = torch.nn.functional.kl_div(torch.log_softmax(x, 0), torch.softmax(y, 0), reduction="sum")
    distance = float((x - y).double().norm() / b.norm()) if norms[1] > 2.3e-16 else 0.0
    values = (cosine, r.max(), r.mean(), d.max(), d.mean(), max(float(kl), 0.0), distance)
    return dict(zip(METRICS_26, map(float, values), strict=True))


def check(mine: np.ndarray, golden: np.ndarray) -> None:
    found = columns_26(mine, golden)
    assert found.metrics is not None
    wanted = oracle(mine, golden)
    for name, value in zip(METRICS_26, found.metrics, strict=True):
        assert value == pytest.approx(wanted[name], rel=1e-5, abs=2e-6), name
    for side, array in ((found.mine, mine), (found.golden, golden)):
        whole = torch.from_numpy(array.copy()).float()
        assert (side.max, side.min) == (float(whole.max()), float(whole.min()))
        assert side.mean == pytest.approx(float(whole.double().mean()), rel=1e-5, abs=1e-6)


DTYPES = st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.int8, np.bool_])


@given(DTYPES, DTYPES, hnp.array_shapes(max_dims=3, max_side=7), st.integers(0, 2**32 - 1))
def test_26_is_what_torch_finds(one, other, shape, seed):
    rng = np.random.default_rng(seed)
    golden = (rng.standard_normal(shape) * 3).astype(other)
    mine = (golden + rng.standard_normal(shape) * rng.choice([0, 1e-3, 1])).astype(one)
    if seed % 3 == 0:
        golden.flat[::2] = 0
    check(mine, golden)


def test_26_in_several_stretches(monkeypatch):
    rng = np.random.default_rng(0)
    golden = rng.standard_normal((30, 41)).astype(np.float32)
    mine = golden + rng.standard_normal((30, 41)).astype(np.float32) / 100
    whole = columns_26(mine, golden)
    monkeypatch.setattr(torchair_columns, "_STRETCH", 64)
    check(mine, golden)
    assert columns_26(mine, golden).metrics == pytest.approx(whole.metrics, rel=1e-6, abs=1e-9)
    check(mine.T, golden.T)


def test_26_of_what_is_not_finite_or_not_there():
    bad = np.array([1.0, np.nan], np.float32)
    good = np.array([1.0, 2.0], np.float32)
    found = columns_26(good, bad)
    assert found.metrics is None and found.reason == "golden_data includes NAN or inf."
    assert math.isnan(found.golden.max) and found.mine.max == 2
    found = columns_26(np.array([1.0, np.inf]), good)
    assert found.mine.max == found.mine.mean == math.inf and found.mine.min == 1
    # Beyond float32, in which that tool computes.
    assert columns_26(np.array([1e300]), np.array([1.0])).reason == "my_data includes NAN or inf."
    empty = columns_26(np.empty((0, 3)), np.empty((0, 3)))
    assert empty.metrics is None and empty.reason == ""
    assert "complex" in columns_26(good.astype(complex), good).reason


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
