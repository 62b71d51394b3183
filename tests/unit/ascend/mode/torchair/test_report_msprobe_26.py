"""The columns of msProbe 26.2 against their definitions, in torch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from syncpoint.ascend.mode.torchair import report_msprobe_26
from syncpoint.ascend.mode.torchair.report_msprobe_26 import METRICS_26, columns_26

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
    for side, array in ((found.target, mine), (found.golden, golden)):
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
    monkeypatch.setattr(report_msprobe_26, "_PIECE_ELEMENTS", 64)
    check(mine, golden)
    assert columns_26(mine, golden).metrics == pytest.approx(whole.metrics, rel=1e-6, abs=1e-9)
    check(mine.T, golden.T)


def test_26_of_what_is_not_finite_or_not_there():
    bad = np.array([1.0, np.nan], np.float32)
    good = np.array([1.0, 2.0], np.float32)
    found = columns_26(good, bad)
    assert found.metrics is None and found.reason == "golden_data includes NAN or inf."
    assert math.isnan(found.golden.max) and found.target.max == 2
    found = columns_26(np.array([1.0, np.inf]), good)
    assert found.target.max == found.target.mean == math.inf and found.target.min == 1
    # Beyond float32, in which that tool computes.
    assert columns_26(np.array([1e300]), np.array([1.0])).reason == "my_data includes NAN or inf."
    empty = columns_26(np.empty((0, 3)), np.empty((0, 3)))
    assert empty.metrics is None and empty.reason == ""
    assert "complex" in columns_26(good.astype(complex), good).reason
