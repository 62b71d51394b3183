"""What statistics of other tools can prove: figures that are missing, not finite, or summed up
in float32."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from syncpoint.metrics.judge_statistics_and_digests import judge_statistics
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.statistics_bounds import compare_statistics, why_incomparable
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Statistics
from syncpoint.run.statistics import compute_statistics

PLAIN = Statistics(count=1000, min=-3.0, max=3.0, mean=0.1, std=nan, l2=31.0)
UNKNOWN = Statistics(count=1000, min=nan, max=nan, mean=nan, std=nan, l2=nan)


def verdict(target: Statistics, reference: Statistics, preset: str = "f32") -> Verdict:
    return judge_statistics(compare_statistics(target, reference), PRESETS[preset])[0]


@pytest.mark.parametrize("name", ["min", "max", "mean", "l2"])
def test_every_figure_that_both_have_can_prove_a_difference(name):
    assert verdict(PLAIN, PLAIN) is Verdict.CLOSE
    assert verdict(replace(PLAIN, **{name: 40.0}), PLAIN) is Verdict.LARGE
    alone = replace(UNKNOWN, **{name: getattr(PLAIN, name)})
    assert verdict(replace(alone, **{name: 40.0}), PLAIN) is Verdict.LARGE
    assert not why_incomparable(alone, PLAIN)


def test_a_figure_that_one_side_lacks_proves_nothing():
    numbers = compare_statistics(replace(PLAIN, mean=nan, l2=nan), replace(PLAIN, mean=2.0))
    assert (numbers["mean_diff"], numbers["l2_rel_diff"]) == (None, None)
    assert numbers["psnr_bound"] == inf


def test_nothing_in_common_is_no_verdict():
    assert why_incomparable(UNKNOWN, PLAIN) == "the two sides have no statistic in common"
    assert verdict(UNKNOWN, PLAIN) is Verdict.NONE


@pytest.mark.parametrize("what", ["nan", "inf"])
def test_values_that_are_not_finite_on_one_side_are_large(what):
    odd = replace(UNKNOWN, **{what: -1})
    assert verdict(odd, PLAIN) is Verdict.LARGE
    assert verdict(PLAIN, odd) is Verdict.LARGE
    counted = replace(PLAIN, **{what: 7})
    assert verdict(odd, counted) is Verdict.NONE
    assert "non-finite values" in why_incomparable(odd, counted)
    assert verdict(odd, odd) is Verdict.NONE


def test_the_sign_of_an_infinity_is_never_taken_for_granted():
    up, down = replace(PLAIN, max=nan, inf=-1), replace(PLAIN, min=nan, inf=-1)
    assert verdict(up, down) is Verdict.NONE


def test_a_norm_summed_in_float32_is_not_taken_for_more_than_it_is():
    """Torch's norm of ten million floats on a CPU is off by 4e-4: 68 dB that no model lost."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    values = torch.randn(10_000_000) + 0.5
    exact = compute_statistics(values.numpy())
    said = replace(exact, std=nan, l2=torch.norm(values).item(), mean=values.mean().item())
    assert verdict(said, exact) is Verdict.CLOSE
    assert verdict(exact, said) is Verdict.CLOSE
    disturbed = compute_statistics(values.numpy() * np.float32(1.06))
    assert verdict(replace(disturbed, std=nan), said) is Verdict.LARGE


def test_figures_of_our_own_stay_as_sharp_as_they_were():
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    mine = compute_statistics(values * np.float32(1.0001))
    assert verdict(mine, compute_statistics(values)) is not Verdict.CLOSE
