"""Equal and yet nothing: NaN, infinities, masks and zeros on both sides."""

import numpy as np
import pytest

import syncpoint as sp
from helpers.small_runs import run
from syncpoint.comparison.engine import Options, compare
from syncpoint.metrics.judge_statistics_and_digests import judge_statistics
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.coverage_text import uncovered_text
from syncpoint.reports.verdict_line import headline

X = np.linspace(-1, 1, 200, dtype=np.float32)
NAN, INF = np.full_like(X, np.nan), np.full_like(X, np.inf)


def net(middle=X, output=X):
    return run(
        ("a", "aten.relu.default", "", ("x",), X + 1),
        ("b", "aten.exp.default", "", ("a",), middle),
        ("c", "aten.add.Tensor", "", ("b",), output),
        inputs=[("x", X)],
        outputs=[("c", output)],
    )


def against_itself(**tensors):
    return compare(net(**tensors), net(**tensors), Options(introduced="off"))


def row(result, op):
    return next(r for r in result.rows if str(r.target.key) == op)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (NAN, "all NaN on both sides"),
        (INF, "all infinite on both sides"),
        (np.where(np.arange(200) % 2, NAN, INF), "nothing finite on both sides"),
        (-INF, "all masked on both sides"),
    ],
)
def test_a_model_output_that_shows_nothing_is_never_a_pass(array, words):
    result = against_itself(output=array)
    assert row(result, "c").verdict is Verdict.NONE and row(result, "c").reason == words
    assert result.exit_code(min_coverage=0.0) == 3
    assert words in uncovered_text(result)
    assert "close as far as compared" in headline(result)


def test_a_model_output_that_is_empty_on_both_sides_leaves_the_rest_to_decide():
    result = against_itself(output=X[:0])
    assert row(result, "c").verdict is Verdict.NONE and row(result, "c").reason == "empty"
    assert result.exit_code() == 0


def test_an_all_nan_tensor_inside_the_model_is_not_counted_as_compared():
    result = against_itself(middle=NAN)
    assert row(result, "b").reason == "all NaN on both sides"
    assert result.coverage.compared == 3 and result.coverage.target_tensors == 4
    assert "as far as compared" in headline(result)


def test_a_constant_mask_inside_a_clean_model_raises_no_alarm():
    result = against_itself(middle=-INF)
    assert result.exit_code(min_coverage=1.0) == 0
    assert headline(result).startswith("● close: ")
    assert not result.warnings


def test_equal_bytes_of_nan_are_not_close_by_statistics():
    numbers = {"count": 5, "same_bytes": True, "mismatched": 0, "psnr_bound": None}
    numbers |= {f"{side}_{kind}": 0 for side in ("target", "reference") for kind in ("nan", "inf")}
    assert judge_statistics(numbers, PRESETS["f32"])[0] is Verdict.CLOSE
    for kind, words in (("nan", "all NaN on both sides"), ("inf", "all infinite on both sides")):
        found = {**numbers, f"target_{kind}": 5, f"reference_{kind}": 5}
        verdict, reason = judge_statistics(found, PRESETS["f32"])
        assert (verdict, reason.code) == (Verdict.NONE, words)


def test_a_whole_model_of_nan_does_not_pass_by_statistics(tmp_path):
    np.savez(tmp_path / "a.npz", a=NAN, b=NAN)
    for name in ("t", "r"):
        sp.reduce(tmp_path / "a.npz", "statistics", tmp_path / f"{name}.run")
    comparison = sp.compare(tmp_path / "t.run", tmp_path / "r.run", diagnose=False)
    assert comparison.verdict is Verdict.NONE
    assert comparison.exit_code() == 3


def test_nan_in_a_part_of_an_output_is_said_and_passes():
    padded = X.copy()
    padded[:50] = np.nan
    result = against_itself(output=padded)
    assert result.exit_code() == 0
    assert any("50 of 200 elements are NaN on both sides" in text for text in result.warnings)


def test_masked_scores_in_an_output_are_no_news():
    scores = X.copy()
    scores[:50] = -np.inf
    assert not against_itself(output=scores).warnings


def test_a_row_says_how_few_of_its_elements_were_compared():
    few = NAN.copy()
    few[:3] = 1
    notes = row(against_itself(middle=few), "b").notes
    assert any("only 3 of 200 elements were compared" in note for note in notes)


def test_a_model_that_computes_nothing_but_zeros_is_said_to_show_little():
    zeros = np.zeros_like(X)
    dead = run(("a", "", "", (), zeros), ("b", "", "", ("a",), zeros), outputs=[("b", zeros)])
    result = compare(dead, dead, Options(introduced="off"))
    assert result.exit_code() == 0
    assert any("zero on both sides" in text for text in result.warnings)
    assert not any("zero" in text for text in against_itself(middle=zeros).warnings)
