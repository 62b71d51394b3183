"""Verdicts are drawn from numbers alone, and follow the limits they are judged by."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.judge_rows import is_excused, judge_row
from syncpoint.errors import FormatError, InputError
from syncpoint.metrics import Pair, measure, operand
from syncpoint.metrics.judge_values import judge, judge_introduced, judge_metric
from syncpoint.metrics.limits import PRESETS, coarsest, load_limits, metric_bound, preset, preset_of
from syncpoint.metrics.verdict import Reason, Verdict
from syncpoint.run.model import Role

RNG = np.random.default_rng(0)


def numbers(target, reference):
    return measure([Pair(operand(np.asarray(target)), operand(np.asarray(reference)))])[0].as_dict()


def noisy(decibel, n=20_000):
    """A Gaussian tensor, and the same with noise so far below its power."""
    r = RNG.standard_normal(n)
    d = RNG.standard_normal(n)
    d *= np.linalg.norm(r) / np.linalg.norm(d) * 10 ** (-decibel / 20)
    return r + d, r


@pytest.mark.parametrize("name", [p for p in PRESETS if p != "exact"])
def test_each_preset_turns_at_its_limits(name):
    limits = PRESETS[name]
    for level, verdict in ((0, Verdict.CLOSE), (1, Verdict.MODERATE)):
        # The peak of a Gaussian of this size lies 12 dB above its power.
        inside = noisy(max(limits.sqnr[level], limits.psnr[level] - 11) + 0.5)
        assert judge(numbers(*inside), limits)[0] is verdict if level else Verdict.CLOSE
        outside = noisy(limits.sqnr[level] - 0.5)
        assert judge(numbers(*outside), limits)[0].severity > level


def test_the_worse_of_psnr_and_sqnr_decides():
    """One massive element lifts the peak and hides the ruin of all others from PSNR."""
    r = RNG.standard_normal(1000).astype(np.float32)
    r[0] = 1e6
    t = r.copy()
    t[1:] = RNG.standard_normal(999)
    found = numbers(t, r)
    assert found["psnr"] > PRESETS["f32"].psnr[0]
    assert judge(found, PRESETS["f32"])[0] is not Verdict.CLOSE


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("side", [0, 1])
def test_non_finite_on_one_side_is_large_under_every_preset(bad, side):
    pair = [np.ones(100), np.ones(100)]
    pair[side][7] = bad
    for limits in PRESETS.values():
        assert judge(numbers(*pair), limits)[0] is Verdict.LARGE


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_non_finite_on_both_sides_is_no_difference(bad):
    r = np.arange(1.0, 100.0)
    r[5] = bad
    assert judge(numbers(r, r), PRESETS["f32"])[0] is Verdict.CLOSE


@pytest.mark.parametrize("preset_name", ["f32", "exact"])
@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((0, 3)), "empty"),
        (np.full(4, nan), "all NaN on both sides"),
        (np.full(4, inf), "all infinite on both sides"),
        (np.array([nan, inf, nan, inf]), "nothing finite on both sides"),
        (np.full(4, -inf), "all masked on both sides"),
        (np.full(4, np.finfo(np.float32).min, np.float32), "all masked on both sides"),
    ],
)
def test_what_cannot_be_measured_is_never_a_pass_and_says_why(array, words, preset_name):
    verdict, reason = judge(numbers(array, array), PRESETS[preset_name])
    assert (verdict, reason.code) == (Verdict.NONE, words)


def test_a_zero_reference_is_close_only_to_zero():
    zero = np.zeros(8)
    assert judge(numbers(zero, zero), PRESETS["f32"])[0] is Verdict.CLOSE
    assert judge(numbers(zero + 1e-30, zero), PRESETS["f32"])[0] is Verdict.LARGE


def test_exact_wants_equal_elements():
    a = np.arange(5)
    b = a.copy()
    b[2] += 1
    assert judge(numbers(a, a), PRESETS["exact"])[0] is Verdict.CLOSE
    unequal = Reason(detail="1 element unequal")
    assert judge(numbers(b, a), PRESETS["exact"]) == (Verdict.LARGE, unequal)


@pytest.mark.parametrize(
    ("ratio", "f32", "bf16"),
    [
        (0.0, Verdict.CLOSE, Verdict.CLOSE),
        (4.0, Verdict.CLOSE, Verdict.CLOSE),
        (5.0, Verdict.CLOSE, Verdict.MODERATE),
        (10.0, Verdict.CLOSE, Verdict.LARGE),
        (99.0, Verdict.MODERATE, Verdict.LARGE),
        (inf, Verdict.LARGE, Verdict.LARGE),
        (None, Verdict.NONE, Verdict.NONE),
    ],
)
def test_introduced_error_is_judged_as_a_multiple_of_the_expected(ratio, f32, bf16):
    assert judge_introduced(ratio, PRESETS["f32"]) is f32
    assert judge_introduced(ratio, PRESETS["bf16"]) is bf16


@pytest.mark.parametrize(
    "metric", ["mse", "rmse", "mae", "max_abs", "rel_l2", "cosine", "mean_rel"]
)
@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "int8"])
def test_colours_of_other_metrics_agree_with_the_verdict(metric, name):
    limits = PRESETS[name]
    good = numbers(*noisy(max(limits.sqnr[0], limits.psnr[0] - 11) + 3))
    bad = numbers(*noisy(min(limits.sqnr[1], limits.psnr[1] - 14) - 6))
    assert judge_metric(metric, good, limits) is Verdict.CLOSE
    assert judge_metric(metric, bad, limits) is Verdict.LARGE
    assert metric_bound(metric, good, limits, 0) is not None


def test_a_limit_that_overflows_float64_passes_nothing():
    """Both the mean squared error and its limit would be infinite, and so equal."""
    reference = np.array([1e200, 2e200])
    off = numbers(reference * 1.5, reference)
    assert metric_bound("mse", off, PRESETS["f32"], 0) is None
    assert judge_metric("mse", off, PRESETS["f32"]) is Verdict.LARGE


def test_presets_by_dtype_and_the_coarsest_of_several():
    assert preset_of("f64") == preset_of("f32") == "f32"
    assert preset_of("i8") == preset_of("bool") == "exact"
    assert preset_of("i8", quantized=True) == "int8"
    assert preset_of("u4", quantized=True) == "int4"
    assert coarsest(["f32", "exact", "bf16", "f16"]) == "bf16"
    assert coarsest(["exact"]) == coarsest([]) == "exact"
    with pytest.raises(InputError, match="nonsense"):
        preset("nonsense")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("psnr: [1", FormatError),
        ("psnr: 3", FormatError),
        ("pnsr: [1, 2]", FormatError),
        ("3", FormatError),
    ],
)
def test_a_wrong_limits_file_is_one_line(tmp_path, text, error):
    path = tmp_path / "limits.yaml"
    path.write_text(text)
    with pytest.raises(error) as caught:
        load_limits(path)
    assert "\n" not in str(caught.value)


def test_limits_of_ones_own_start_from_a_preset(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text("preset: f16\npsnr: [45, 35]\n")
    found = load_limits(path)
    assert (found.name, found.psnr, found.sqnr) == ("ours", (45, 35), PRESETS["f16"].sqnr)


def test_a_comparison_is_judged_again_without_measuring():
    t, r = noisy(60)
    made = [run(("a", "", "", (), x.astype(np.float32))) for x in (t, r)]
    first = compare(*made)
    assert first.verdict is Verdict.LARGE
    again = first.rejudged(PRESETS["f16"])
    assert again.verdict is Verdict.CLOSE
    assert again.rows[0].numbers is first.rows[0].numbers
    assert again.rejudged("auto").verdict is Verdict.LARGE


@pytest.mark.parametrize("choice", ["exact", "", None, {}])
def test_only_auto_and_limits_are_taken_to_judge_by(choice):
    with pytest.raises(InputError, match="limits must be 'auto' or a Limits"):
        Options(choice=choice)
    tensor = run(("a", "", "", (), np.ones(4, np.float32)))
    with pytest.raises(InputError, match="limits must be 'auto' or a Limits"):
        compare(tensor, tensor).rejudged(choice)


def test_integers_stay_exact_under_any_preset():
    made = [run(("ids", "", "", (), np.array(x))) for x in ([1, 2, 3], [1, 2, 4])]
    assert compare(*made, Options(choice=PRESETS["int4"])).verdict is Verdict.LARGE


def test_shapes_that_no_view_reconciles_fail():
    made = [run(("a", "", "", (), np.ones(s, np.float32))) for s in ((2, 3), (3, 2))]
    found = compare(*made)
    assert (found.rows[0].verdict, found.rows[0].reason) == (Verdict.NONE, "shape: 2x3 against 3x2")
    assert found.exit_code() == 1


def test_axes_of_length_one_come_and_go():
    made = [run(("a", "", "", (), np.ones(s, np.float32))) for s in ((1, 2, 3), (2, 3, 1))]
    found = compare(*made)
    assert (found.rows[0].verdict, found.rows[0].view) == (Verdict.CLOSE, "reshape(2,3,1)")


def test_nothing_compared_never_exits_zero():
    one, other = run(("a", "", "", (), np.ones(2))), run(("b", "", "", (), np.ones(2)))
    found = compare(one, other)
    assert found.verdict is Verdict.NONE
    assert found.exit_code() == 3
    assert compare(run(), run()).exit_code() == 3


def test_an_uncompared_model_output_exits_with_three():
    x = np.ones(2, np.float32)
    target = run(("a", "t", "m", (), x), outputs=[("a", x)])
    reference = run(("a", "t", "m", (), x), ("b", "u", "m", (), x), outputs=[("a", x), ("b", x)])
    found = compare(target, reference)
    assert found.exit_code() == 3
    assert found.uncompared_outputs


def test_coverage_counts_what_carries_a_value():
    x = np.ones(2, np.float32)
    names = ("a", "b", "c", "d")
    target = run(*((n, "", "", (), x) for n in names), parameters=[("w", x)])
    reference = run(*((n, "", "", (), x) for n in names[:2]), parameters=[("w", x)])
    coverage = compare(target, reference).coverage
    assert (coverage.target, coverage.reference) == (0.5, 1.0)
    assert (coverage.target_tensors, coverage.reference_tensors, coverage.compared) == (4, 2, 2)
    assert compare(target, reference).exit_code(min_coverage=0.6) == 3


def test_inputs_that_differ_are_said_and_exit_with_one():
    x = np.ones(4, np.float32)
    made = [run(("a", "", "", (), x), inputs=[("x", v)]) for v in (x, x * 1.001)]
    found = compare(*made)
    assert [r.target.key.role for r in found.inputs_differ] == [Role.MODEL_INPUT]
    assert found.exit_code() == 1


def test_inputs_that_were_only_rounded_are_the_same():
    x = RNG.standard_normal(100).astype(np.float32)
    made = [run(("a", "", "", (), x), inputs=[("x", v)]) for v in (x.astype(np.float16), x)]
    assert compare(*made).inputs_differ == []


def test_swapped_roles_are_pointed_out():
    x = np.ones(4, np.float32)
    made = [run(("a", "", "", (), v)) for v in (x, x.astype(np.float16))]
    assert any("swapped" in w for w in compare(*made).warnings)
    assert not any("swapped" in w for w in compare(*made[::-1]).warnings)


def test_without_introduced_error_the_first_divergence_is_off_while_its_inputs_are_close():
    x = np.ones(4, np.float32)
    reference = run(("a", "t", "m", (), x), ("b", "u", "m", ("a",), x), ("c", "v", "m", ("b",), x))
    target = run(
        ("a", "t", "m", (), x), ("b", "u", "m", ("a",), x * 2), ("c", "v", "m", ("b",), x * 3)
    )
    assert [r.target.key.op.op for r in compare(target, reference).first_divergence] == ["b"]


def test_parallel_branches_diverge_each_on_their_own():
    x = np.ones(4, np.float32)

    def made(f):
        return run(
            ("a", "t", "m", (), x), ("b", "u", "m", ("a",), x * f), ("c", "v", "m", ("a",), x * f)
        )

    assert len(compare(made(2), made(1)).first_divergence) == 2


def test_unreadable_values_are_a_divergence_and_the_rest_is_compared():
    from syncpoint.errors import FormatError as Broken

    x = np.ones(4, np.float32)
    target, reference = (run(("a", "", "", (), x), ("b", "", "", (), x)) for _ in range(2))
    read = target.values

    def values(tensor):
        if tensor.key.op.op == "a":
            raise Broken("the shard is truncated")
        return read(tensor)

    target.values = values
    found = compare(target, reference)
    assert {r.target.key.op.op: r.verdict for r in found.rows} == {
        "a": Verdict.NONE,
        "b": Verdict.CLOSE,
    }
    assert found.rows[0].reason.startswith("unreadable: ")
    assert found.exit_code() == 1


def test_statistics_prove_a_difference_and_say_that_they_hardly_prove_equality():
    from syncpoint.metrics import statistics
    from syncpoint.run.model import Kept

    x = RNG.standard_normal(1000).astype(np.float32)

    def kept(values):
        made = run(("a", "", "", (), values))
        tensor = replace(
            made.tensors[0], kept=Kept.STATISTICS, statistics=statistics(operand(values))
        )
        made.tensors = [tensor]
        return made

    close = compare(kept(x), kept(x)).rows[0]
    assert (close.verdict, close.basis) == (Verdict.CLOSE, "statistics")
    assert "does not prove equality" in close.reason
    assert compare(kept(x * 1.5), kept(x)).verdict is Verdict.LARGE
    assert compare(kept(x), run(("a", "", "", (), x))).rows[0].basis == "statistics"
    # What statistics cannot see they do not claim: a permutation is not called large.
    assert compare(kept(x[::-1].copy()), kept(x)).verdict is Verdict.CLOSE


def test_digests_tell_equal_from_unequal_only():
    from syncpoint.run.model import Kept

    def kept(digest, kind="xxh3-128", dtype="f32"):
        made = run(("a", "", "", (), np.ones(4, np.float32)))
        made.tensors = [
            replace(made.tensors[0], kept=Kept.DIGEST, digest=digest, digest_kind=kind, dtype=dtype)
        ]
        return made

    assert compare(kept("1"), kept("1")).verdict is Verdict.CLOSE
    assert compare(kept("1"), kept("2")).verdict is Verdict.LARGE
    for other in (kept("1", kind="crc32"), kept("1", dtype="f16")):
        found = compare(kept("1"), other)
        assert found.verdict is Verdict.NONE and found.exit_code() == 3


def test_a_dump_is_judged_by_the_outputs_that_the_reference_names():
    """Its last tensor is ruined; whoever is guilty, the model's output is not close."""
    x = RNG.standard_normal(8).astype(np.float32)
    reference = run(("a", "t", "m", (), x), ("b", "u", "m", ("a",), x), outputs=[("b", x)])
    target = run(("a", "t", "m", (), x), ("b", "u", "m", ("a",), 2 * x))
    found = compare(target, reference)
    assert [r.target.key.op.op for r in found.outputs] == ["b"]
    assert found.exit_code() == 1
    assert found.uncompared_outputs == []


def test_outputs_pair_by_their_paths_before_their_positions():
    x = RNG.standard_normal(8).astype(np.float32)

    def made(order):
        values = {"a": x, "b": -x}
        built = run(
            *((n, n, n, (), values[n]) for n in "ab"), outputs=[(n, values[n]) for n in order]
        )
        built.tensors = [
            replace(t, name=f'out["{t.key.op.op}"]') if t.key.role is Role.MODEL_OUTPUT else t
            for t in built.tensors
        ]
        return built

    assert compare(made("ba"), made("ab")).verdict is Verdict.CLOSE
    # An output that only one of two models has is not passed over.
    assert compare(made("a"), made("ab")).exit_code() == 3


def test_dumps_without_edges_have_one_first_divergence():
    good = {n: RNG.standard_normal(8).astype(np.float32) for n in ("k", "l", "m", "n")}
    bad = {n: (np.full_like(v, nan) if n > "k" else v) for n, v in good.items()}
    made = [run(*((n, "", "", (), v) for n, v in side.items())) for side in (bad, good)]
    found = compare(*made)
    assert [r.target.key.op.op for r in found.first_divergence] == ["l"]
    assert [r.target.key.op.op for r in found.rows if r.first_non_finite] == ["l"]


def test_statistics_of_another_shape_are_not_compared():
    from syncpoint.metrics import statistics
    from syncpoint.run.model import Kept

    def kept(values):
        made = run(("a", "", "", (), values))
        found = statistics(operand(values))
        made.tensors = [replace(made.tensors[0], kept=Kept.STATISTICS, statistics=found)]
        return made

    x = RNG.standard_normal((4, 6)).astype(np.float32)
    found = compare(kept(x.T.copy()), kept(x))
    assert found.rows[0].reason.startswith("shape")
    assert found.exit_code() == 1


def test_quantized_statistics_are_scaled_before_they_are_compared():
    from syncpoint.metrics import statistics
    from syncpoint.run.model import Kept, Quantization

    x = RNG.standard_normal(500).astype(np.float32)
    stored = np.clip(np.round(x / 0.05) + 3, -128, 127).astype(np.int8)
    made = run(("a", "", "", (), stored))
    made.tensors = [
        replace(
            made.tensors[0],
            kept=Kept.STATISTICS,
            statistics=statistics(operand(stored)),
            quantization=Quantization((0.05,), (3,)),
        )
    ]
    found = compare(made, run(("a", "", "", (), x)))
    assert (found.rows[0].verdict, found.rows[0].basis) == (Verdict.CLOSE, "statistics")


def test_inputs_rounded_to_two_types_are_the_same_input():
    import ml_dtypes

    x = np.concatenate([RNG.standard_normal(100), [1e5, -1e6, 1e-9, 0.0]]).astype(np.float32)
    sides = [
        run(("a", "", "", (), x), inputs=[("x", x.astype(kind))])
        for kind in (ml_dtypes.bfloat16, np.float16)
    ]
    assert compare(*sides).inputs_differ == []
    moved = run(("a", "", "", (), x), inputs=[("x", (x * 1.02).astype(ml_dtypes.bfloat16))])
    assert len(compare(moved, sides[1]).inputs_differ) == 1


def test_one_wild_element_among_a_million_is_not_close():
    r = RNG.standard_normal(1_000_000).astype(np.float32)
    t = r + 1e-3 * RNG.standard_normal(r.size).astype(np.float32)
    assert judge(numbers(t, r), PRESETS["bf16"])[0] is Verdict.CLOSE
    t[123] = 2 * np.abs(r).max()
    verdict, reason = judge(numbers(t, r), PRESETS["bf16"])
    assert verdict is Verdict.LARGE and reason.detail.startswith("max_abs")


@pytest.mark.parametrize("view", ["transpose(0,1,2)", "flip(5)", "slice(1)", "reshape(5)"])
def test_a_view_that_does_not_fit_is_no_comparison(view):
    from syncpoint.matching.matchers.map_file import MapFile

    x = RNG.standard_normal((2, 3)).astype(np.float32)
    made = [run(("a", "", "", (), x)) for _ in range(2)]
    said = {"pairs": [{"target": "a", "reference": "a", "view": view}]}
    found = compare(*made, Options(map_file=MapFile.of(said)))
    assert found.rows[0].reason.startswith("shape: the view")
    assert found.exit_code() == 1


def test_quantized_inputs_are_the_same_within_a_step_of_their_channel():
    from syncpoint.run.model import Quantization

    x = np.array([[0.0, 0.1, 0.2], [10.0, -20.0, 300.0]], np.float32)
    scale = np.array([[0.01], [1.0]])
    stored = np.clip(np.round(x / scale), -128, 127).astype(np.int8)

    def made(values, **more):
        built = run(("a", "", "", (), x), inputs=[("x", values)])
        built.tensors = [
            replace(t, **more) if t.key.role is Role.MODEL_INPUT else t for t in built.tensors
        ]
        return built

    how = Quantization((0.01, 1.0), (0,), axis=0)
    reference = made(x)
    # 300 is more than int8 can hold: saturation is part of the type.
    assert compare(made(stored, quantization=how), reference).inputs_differ == []
    wrong = stored.copy()
    wrong[0] = 0
    assert len(compare(made(wrong, quantization=how), reference).inputs_differ) == 1


def test_inputs_of_one_type_must_be_equal():
    x = RNG.standard_normal(8).astype(np.float32)
    made = [run(("a", "", "", (), x), inputs=[("x", v)]) for v in (np.nextafter(x, 9), x)]
    assert len(compare(*made).inputs_differ) == 1
    z = x.astype(np.complex64)
    made = [run(("a", "", "", (), x), inputs=[("x", v)]) for v in (z + 1j, z.astype(np.complex128))]
    assert len(compare(*made).inputs_differ) == 1


def test_quantization_that_does_not_fit_is_unreadable():
    from syncpoint.run.model import Quantization

    x = np.ones((3, 4), np.int8)
    for wrong in (Quantization((1.0,) * 5, (0,), 0), Quantization((1.0,) * 3, (0,), 9)):
        made = [run(("a", "", "", (), x)) for _ in range(2)]
        made[0].tensors = [replace(made[0].tensors[0], quantization=wrong)]
        assert compare(*made).rows[0].reason.startswith("unreadable")


def test_a_dump_pairs_with_a_run_by_names():
    x = RNG.standard_normal(4).astype(np.float32)
    typed = run(*((n, "aten.linear.default", f"m.{n}", (), x) for n in ("linear", "linear_1")))
    dump = run(*((n, "", "", (), x) for n in ("linear", "linear_1")))
    assert compare(dump, typed).coverage.target == 1.0


@pytest.mark.parametrize("choice", ["auto", PRESETS["f32"], PRESETS["bf16"]])
def test_a_value_that_is_nearer_to_float64_is_close_under_any_limits(choice):
    t, r = noisy(20, 100)
    (row,) = compare(run(("a", "relu", "", (), t)), run(("a", "relu", "", (), r))).rows
    assert judge_row(row, choice).verdict is Verdict.LARGE
    nearer = judge_row(replace(row, nearer_to_float64=True), choice)
    assert nearer.verdict is Verdict.CLOSE and is_excused(nearer, choice)
    # What breaks a run is not excused, and what is close needs no excuse.
    broken = judge_row(replace(nearer, first_non_finite=True), choice)
    assert broken.verdict is Verdict.LARGE and not is_excused(broken, choice)
    same = {**row.numbers, **numbers(r, r)}
    close = judge_row(replace(nearer, numbers=same), choice)
    assert close.verdict is Verdict.CLOSE and not is_excused(close, choice)
