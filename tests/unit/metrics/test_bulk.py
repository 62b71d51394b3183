"""The elements beside a few massive ones are measured and judged on their own."""

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers import metric_oracle as oracle
from helpers import tensor_generators as tensors
from syncpoint.metrics import Operand, Pair, measure, operand
from syncpoint.metrics.judge_values import judge, judge_metric
from syncpoint.metrics.limits import PRESETS, load_limits
from syncpoint.metrics.verdict import NO_REASON, Verdict
from syncpoint.run.model import Quantization

TYPES = ("f64", "f32", "f16", "bf16", "f8_e5m2", "i64", "i32", "i16", "c64", "c128")
FLOATING = [name for name in PRESETS if name not in ("exact", "int8", "int4", "fp8")]


def numbers(target, reference, **how):
    return measure([Pair(operand(target), operand(reference))], **how)[0].as_dict()


def hidden(rng, noise, width=256, tokens=64, size=1e3, channels=(7,)):
    """Hidden states with massive channels, and the same with noise on all elements but those."""
    reference = rng.standard_normal((tokens, width)).astype(np.float32)
    reference[:, channels] *= size
    target = reference * (1 + noise * rng.standard_normal(reference.shape))
    target[:, channels] = reference[:, channels] * (1 + 1e-4)
    return target.astype(np.float32), reference


@pytest.mark.parametrize("reference", TYPES)
@pytest.mark.parametrize("target", TYPES)
def test_every_pair_of_types_agrees_with_exact_arithmetic(target, reference):
    rng = np.random.default_rng(len(target) * 100 + len(reference))
    values = 8 * tensors.values(rng, "outliers", 700)
    with np.errstate(all="ignore"):
        sides = [
            tensors.cast(values * (1 + noise * rng.standard_normal(values.size)), name)
            for name, noise in ((target, 0.05), (reference, 0))
        ]
    pair = Pair(*(Operand(s, n) for s, n in zip(sides, (target, reference), strict=True)))
    oracle.check(measure([pair])[0], pair)


@pytest.mark.parametrize("scale", [0.03, 0.25, -(2.0**-50)])
@pytest.mark.parametrize("quantized", ["target", "reference", "both", "channels"])
def test_quantized_tensors_agree_with_exact_arithmetic(quantized, scale):
    rng = np.random.default_rng(5)
    stored = rng.integers(-2, 3, (10, 80)).astype(np.int8)
    stored[:, 11] = rng.integers(80, 120, 10)
    grid = Quantization((scale,), (1,))
    if quantized == "channels":
        grid = Quantization(tuple(scale * np.linspace(1, 3, 80)), (1,), axis=1)
    steps = np.asarray(grid.scale) * (stored - 1.0)
    plain = operand((steps * (1 + 0.1 * rng.standard_normal(steps.shape))).astype(np.float32))
    integers = Operand(stored, "i8", grid)
    other = Operand(stored + (rng.random(stored.shape) < 0.1).astype(np.int8), "i8", grid)
    sides = {"target": (integers, plain), "reference": (plain, integers)}
    pair = Pair(*sides.get(quantized, (other, integers)))
    oracle.check(measure([pair])[0], pair)


@pytest.mark.parametrize("magnitude", [1e-300, 1e-30, 1e30, 1e200, 1e305])
def test_magnitudes_whose_squares_leave_the_range_of_a_double(magnitude):
    rng = np.random.default_rng(3)
    reference = magnitude * tensors.values(rng, "outliers", 500)
    target = reference * (1 + 0.01 * rng.standard_normal(reference.size))
    pair = Pair(operand(target), operand(reference))
    oracle.check(measure([pair])[0], pair)


def test_holes_masks_and_zeros_are_no_part_of_the_bulk():
    rng = np.random.default_rng(8)
    target, reference = hidden(rng, 0.05)
    want = numbers(target, reference)
    fill = np.repeat(np.array([np.nan, np.inf, -3.4e38, 0], np.float32), 3000)
    both = [np.concatenate([side.ravel(), fill]) for side in (target, reference)]
    order = rng.permutation(both[0].size)
    found = numbers(*(side[order] for side in both))
    assert found["outliers"] == want["outliers"] > 60
    assert found["outliers_from"] == want["outliers_from"]
    assert found["bulk_sqnr"] == pytest.approx(want["bulk_sqnr"], abs=1e-9)
    assert found["bulk_max_abs"] == want["bulk_max_abs"]


def test_a_tensor_without_outliers_has_no_bulk_of_its_own():
    rng = np.random.default_rng(1)
    reference = rng.standard_normal(5000).astype(np.float32)
    found = numbers(reference * np.float32(1.05), reference)
    assert found["outliers"] == 0 and found["bulk_sqnr"] is None
    # One element in sixteen is no outlier.
    reference[::16] *= 1000
    found = numbers(reference * np.float32(1.05), reference)
    assert found["outliers"] > 200 and found["bulk_sqnr"] is None


def test_what_can_change_no_verdict_is_measured_only_if_asked_for():
    target, reference = hidden(np.random.default_rng(2), 1e-7, size=200)
    target[:, 7] = reference[:, 7]
    assert numbers(target, reference)["bulk_sqnr"] is None
    assert numbers(target, reference, bulk=True)["bulk_sqnr"] > 130


@pytest.mark.parametrize("size", [100, 1e3, 1e4])
@pytest.mark.parametrize("channels", [(7,), (3, 100, 200)])
def test_six_percent_beside_a_massive_channel_is_not_close(size, channels):
    target, reference = hidden(np.random.default_rng(4), 0.06, size=size, channels=channels)
    for name in FLOATING:
        verdict, _ = judge(numbers(target, reference), PRESETS[name])
        assert verdict.severity >= 1, name
    clean, _ = hidden(np.random.default_rng(4), 0.005, size=size, channels=channels)
    assert judge(numbers(clean, reference), PRESETS["bf16"]) == (Verdict.CLOSE, NO_REASON)


def test_the_reason_says_how_much_is_off_and_what_hides_it():
    target, reference = hidden(np.random.default_rng(4), 0.06, size=1e4)
    found = numbers(target, reference)
    assert found["psnr"] > 60 and found["sqnr"] > 60
    verdict, reason = judge(found, PRESETS["bf16"])
    assert verdict is Verdict.MODERATE
    assert reason.detail.startswith("bulk_sqnr 24.")
    assert "99.6 % of the elements have a relative error of 6 %" in reason.detail
    assert "hidden by 64 outliers of up to" in reason.detail
    for metric in ("psnr", "sqnr", "max_abs", "cosine", "bulk_sqnr"):
        assert judge_metric(metric, found, PRESETS["bf16"]) is Verdict.MODERATE, metric


def test_one_dead_channel_beside_a_massive_one_is_not_close():
    target, reference = hidden(np.random.default_rng(6), 0.002, width=4096)
    target[:, 2000] = 0
    found = numbers(target, reference)
    assert found["bulk_sqnr"] > 34
    limits = replace(PRESETS["f16"], bulk_sqnr=(30, 20))
    verdict, reason = judge(found, limits)
    assert verdict.severity and reason.detail.startswith("bulk_max_abs")


def test_probabilities_are_not_judged_by_the_small_ones_among_them():
    """Attention on the first token: the others together weigh next to nothing."""
    rng = np.random.default_rng(7)
    scores = rng.standard_normal((64, 128))
    scores[:, 0] += 14
    noise = 0.06 * rng.standard_normal(scores.shape)
    target, reference = (
        (np.exp(x) / np.exp(x).sum(-1, keepdims=True)).astype(np.float32)
        for x in (scores + noise, scores)
    )
    found = numbers(target, reference)
    assert found["bulk_sqnr"] < 25
    assert judge(found, PRESETS["bf16"]) == (Verdict.CLOSE, NO_REASON)
    # The same beside something that is no probability.
    assert judge(numbers(2 * target, 2 * reference), PRESETS["bf16"])[0].severity


def test_a_table_without_the_metric_is_judged_by_the_others():
    target, reference = hidden(np.random.default_rng(4), 0.06, size=1e4)
    found = numbers(target, reference)
    old = {name: value for name, value in found.items() if "bulk" not in name}
    assert judge(old, PRESETS["bf16"]) == (Verdict.CLOSE, NO_REASON)
    assert judge(dict.fromkeys(found) | old, PRESETS["bf16"]) == (Verdict.CLOSE, NO_REASON)


def test_the_limit_of_the_bulk_follows_that_of_sqnr_unless_it_is_named(tmp_path):
    target, reference = hidden(np.random.default_rng(4), 0.06, size=1e4)
    found = numbers(target, reference)
    path = tmp_path / "ours.yaml"
    for text, verdict in (
        ("preset: bf16\nsqnr: [26, 16]\n", Verdict.CLOSE),
        ("preset: bf16\nbulk_sqnr: [24, 14]\n", Verdict.CLOSE),
        ("preset: bf16\nbulk_sqnr: [30, 26]\n", Verdict.LARGE),
    ):
        path.write_text(text)
        assert judge(found, load_limits(path))[0] is verdict, text


def test_the_border_is_a_power_of_two_of_the_mean_exponent():
    reference = np.full(128, 1.5)
    reference[5] = 2.0**5
    target = reference * 1.01
    found = numbers(target, reference)
    assert found["outliers"] is None, "they are there and dominate nothing"
    reference[5] = 2.0**9
    found = numbers(reference * 1.01, reference)
    assert found["outliers"] == 1 and found["bulk_sqnr"] == pytest.approx(40)
    assert math.log2(found["outliers_from"]) == 5
