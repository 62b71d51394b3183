"""What statistics and digests say of two tensors, and the ways in which they could be wrong.

The oracle is the comparison of the values: what statistics prove, values must show too.
"""

import hashlib
import re
import zlib
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from helpers.small_runs import run
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.measuring.digest_and_statistics_pairs import is_unproven
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.views import View
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.verdict_line import headline
from syncpoint.run.array_bytes import to_bytes
from syncpoint.run.model import Kept, Quantization
from syncpoint.run.statistics import compute_statistics

RNG = np.random.default_rng(0)
HASHES = {
    "crc32": lambda raw: f"{zlib.crc32(raw):08x}",
    "adler32": lambda raw: f"{zlib.adler32(raw):08x}",
    "md5": lambda raw: hashlib.md5(raw).hexdigest(),
    "sha1": lambda raw: hashlib.sha1(raw).hexdigest(),
    "sha256": lambda raw: hashlib.sha256(raw).hexdigest(),
    "sha512": lambda raw: hashlib.sha512(raw).hexdigest(),
    "blake2b": lambda raw: hashlib.blake2b(raw).hexdigest(),
}


def kept(values, how="values", kind="", digest=None, **more):
    """A run of one op that gave these values, of which so much was kept."""
    made = run(("a", "", "", (), values))
    if how == "statistics":
        more["statistics"] = compute_statistics(values)
    if kind:
        dtype = made.tensors[0].dtype
        raw = bytes(to_bytes(np.ascontiguousarray(values), _dtype(dtype)))
        more |= {"digest": digest or HASHES[kind](raw), "digest_kind": kind}
    made.tensors = [replace(made.tensors[0], kept=Kept(how), **more)]
    return made


def _dtype(name):
    from syncpoint.run.dtypes import DTYPES

    return DTYPES[name]


def row(target, reference, view=""):
    said = {"pairs": [{"target": "a", "reference": "a", "view": view}]} if view else None
    found = compare(target, reference, Options(map_file=MapFile.of(said) if said else None))
    return found.rows[0]


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("kind", HASHES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, ml_dtypes.int4])
def test_a_digest_of_any_usual_kind_is_checked_against_values(kind, dtype):
    x = (normal(3, 5) * 3).astype(dtype)
    y = x.copy()
    y.flat[7] = dtype(not x.flat[7]) if dtype is np.bool_ else x.flat[7] + dtype(1)
    for sides in ((kept(x), kept(x, "digest", kind)), (kept(x, "digest", kind), kept(x))):
        assert (row(*sides).verdict, row(*sides).reason) == (Verdict.CLOSE, "same bytes")
        assert row(*sides).basis == "digest"
    assert row(kept(y), kept(x, "digest", kind)).verdict is Verdict.LARGE
    upper = kept(x, "digest", kind, digest=HASHES[kind](x.tobytes()).upper())
    if dtype is not ml_dtypes.int4:
        assert row(kept(x), upper).verdict is Verdict.CLOSE


def test_a_checksum_of_bf16_may_be_of_either_form_and_no_other():
    x = normal(50).astype(ml_dtypes.bfloat16)
    for raw in (x.tobytes(), x.astype(np.float32).tobytes()):
        other = kept(x, "digest", "crc32", digest=HASHES["crc32"](raw))
        assert row(kept(x), other).reason == "same bytes"
        assert row(kept(-x), other).verdict is Verdict.LARGE


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda x: kept(x, "digest", "md5"), "digests of different kinds, sha256 and md5"),
        (lambda x: kept(x, "digest"), "the reference has no digest"),
        (
            lambda x: kept(x.astype(np.float16), "digest", "sha256"),
            "digests of different dtypes, f32 and f16",
        ),
        (lambda x: kept(x.astype(np.float16)), "digests of different dtypes, f32 and f16"),
        (
            lambda x: kept(x, "digest", "sha256", quantization=Quantization((0.5,))),
            "digests of integers with different quantization",
        ),
    ],
)
def test_digests_that_say_nothing_are_no_verdict_and_no_pass(other, why):
    x = normal(8)
    found = compare(kept(x, "digest", "sha256"), other(x))
    assert (found.verdict, found.exit_code()) == (Verdict.NONE, 3)
    assert found.rows[0].reason == f"incomparable: {why}"


def test_a_kind_that_nobody_can_compute_is_compared_with_itself_only():
    x = normal(8)

    def odd(digest):
        return kept(x, "digest", "xor", digest)

    assert row(odd("7"), odd("7")).reason == "same bytes"
    assert row(odd("7"), odd("8")).verdict is Verdict.LARGE
    assert row(kept(x), odd("7")).reason.startswith("incomparable: digests of different kinds")


def test_what_was_given_alike_is_no_verdict_on_what_was_computed():
    x = normal(8)
    sides = []
    for dtype in (np.float16, np.float32):
        made = run(("a", "", "", ("x",), x.astype(dtype)), inputs=[("x", x)])
        made.tensors = [
            t if t.key.op.op == "x" else replace(t, kept=Kept.DIGEST, digest="1", digest_kind="md5")
            for t in made.tensors
        ]
        sides.append(made)
    found = compare(*sides)
    assert {r.verdict for r in found.rows} == {Verdict.CLOSE, Verdict.NONE}
    assert (found.verdict, found.exit_code()) == (Verdict.NONE, 3)
    assert headline(found).startswith("– none: compared 0 of 1")


def test_digests_through_views():
    x = normal(4, 6)
    turned = np.ascontiguousarray(x.T)

    def both(how, t, r, view):
        kind = "md5" if how == "digest" else ""
        return row(kept(t, how, kind), kept(r, "digest", "md5"), view)

    # One side has values: the view is applied, or undone, before the digest is taken.
    assert both("values", turned, x, "transpose(1,0)").reason == "same bytes"
    assert both("values", x, turned, "transpose(1,0)").reason == "same bytes"
    assert row(kept(turned, "digest", "md5"), kept(x), "transpose(1,0)").reason == "same bytes"
    wrong = x.copy()
    wrong[1, 2] += 1
    assert both("values", turned, wrong, "transpose(1,0)").verdict is Verdict.LARGE
    # The same bytes although one should be transposed are a fault, not equality.
    square = normal(5, 5)
    fault = both("values", square, square, "transpose(1,0)")
    assert fault.verdict is Verdict.LARGE
    blind = both("digest", square, square, "transpose(1,0)")
    assert (
        blind.reason == "incomparable: digests cannot be compared through the view transpose(1,0)"
    )
    # The order stays: the digests are comparable as they are.
    assert both("digest", x.reshape(2, 12), x, "reshape(4,6)").reason == "same bytes"
    assert both("digest", x.reshape(1, 4, 6, 1), x, "").reason == "same bytes"
    assert both("digest", x[:, None], x[None], "transpose(1,0,2)").reason == "same bytes"
    assert both("digest", x, x[:2], "slice(0,0,2)").reason.startswith("incomparable: ")
    assert both("values", x, x[:2].copy(), "slice(0,0,2)").reason == "same bytes"
    assert row(kept(x, "digest", "md5"), kept(x[:2]), "slice(0,0,2)").reason.startswith("incompa")
    assert both("digest", x, x.T.copy(), "").reason.startswith("shape: 4x6 against 6x4")
    assert both("digest", x, x, "transpose(0,1,2)").reason.startswith("shape: the view")


def test_what_a_view_does_to_order_and_number():
    shape = (2, 1, 3)
    for text, seen in {
        "": ((2, 1, 3), True, True),
        "transpose(1,0,2)": ((1, 2, 3), True, True),
        "transpose(0,2,1)": ((2, 3, 1), True, True),
        "transpose(2,1,0)": ((3, 1, 2), True, False),
        "transpose()": ((3, 1, 2), True, False),
        "squeeze()transpose(-1,0)": ((3, 2), True, False),
        "flip(1)": ((2, 1, 3), True, True),
        "flip(0)": ((2, 1, 3), True, False),
        "slice(2,0,3)": ((2, 1, 3), True, True),
        "slice(2,0,2)": ((2, 1, 2), False, True),
    }.items():
        found = View(text).effect_on(shape)
        assert (found.shape, found.keeps_all, found.keeps_order) == seen
        values = np.arange(6).reshape(shape)
        assert found.keeps_order is (sorted(View(text).apply(values).ravel()) == list(
            View(text).apply(values).ravel()
        ))  # fmt: skip


def test_statistics_through_views():
    x = normal(4, 6)
    whole = kept(x, "statistics")
    assert row(kept(x.T.copy(), "statistics"), whole, "transpose(1,0)").verdict is Verdict.CLOSE
    part = kept(x[:2].copy(), "statistics")
    assert row(whole, part, "slice(0,0,2)").reason == (
        "incomparable: statistics describe the whole tensor, but only slice(0,0,2) is compared"
    )
    assert row(kept(x), part, "slice(0,0,2)").verdict is Verdict.CLOSE
    off = x.copy()
    off[2:] *= 9  # outside of what is compared
    assert row(kept(off), part, "slice(0,0,2)").verdict is Verdict.CLOSE
    assert row(kept(2 * x), part, "slice(0,0,2)").verdict is Verdict.LARGE


@pytest.mark.parametrize("preset", ["f32", "f16", "bf16", "int8"])
def test_statistics_never_prove_what_values_do_not_show(preset):
    """Whatever the pair: the verdict by statistics is never worse than that by values."""
    rng = np.random.default_rng(7)
    seen = set()
    for _ in range(300):
        r = (rng.standard_normal(rng.integers(1, 400)) * 10.0 ** rng.integers(-3, 4)).astype("f4")
        r += np.float32(rng.choice([0, 0, 5]))
        t = r + r.std() * np.float32(10.0 ** rng.uniform(-7, 0)) * rng.standard_normal(r.size)
        t = t.astype(np.float32)
        if rng.random() < 0.3:
            t = r.copy()
            t[rng.integers(r.size)] *= np.float32(1 + 10.0 ** rng.uniform(-6, 1))
        if rng.random() < 0.2:
            t[0] = r[0] = np.nan
        options = Options(choice=PRESETS[preset])
        by = [
            compare(kept(t, how), kept(r, how), options).rows[0] for how in ("values", "statistics")
        ]
        assert by[1].verdict.severity <= by[0].verdict.severity, (by[0].reason, by[1].reason)
        seen.add((by[0].verdict, by[1].verdict))
    assert (Verdict.LARGE, Verdict.LARGE) in seen and (Verdict.CLOSE, Verdict.CLOSE) in seen


def test_one_wild_element_among_a_million_shows_in_the_extrema():
    r = normal(1_000_000)
    t = r.copy()
    t[123] = 2 * np.abs(r).max()
    options = Options(choice=PRESETS["f16"])
    found = compare(kept(t, "statistics"), kept(r, "statistics"), options).rows[0]
    assert found.verdict is Verdict.LARGE
    assert found.reason.startswith("max_abs is at least ")


def test_integers_are_unequal_where_an_end_is_off_by_one():
    ids = RNG.integers(0, 10**9, 1000)
    ids[0] = 10**9
    off = ids.copy()
    off[0] += 1
    same, other = kept(ids, "statistics"), kept(off, "statistics")
    assert row(other, same).verdict is Verdict.LARGE
    assert is_unproven(row(same, same)), "no digest says that they are equal"


def test_integers_and_bools_with_the_same_statistics_and_other_bytes_are_unequal():
    for values in (RNG.integers(0, 100, 50), RNG.integers(0, 2, 50) > 0):
        turned = np.roll(values, 1)
        assert row(kept(turned), kept(values, "statistics", "md5")).reason == "unequal bytes"
        assert row(
            kept(turned, "statistics", "md5"), kept(values, "statistics", "md5")
        ).verdict is (Verdict.LARGE)
        assert row(kept(values), kept(values, "statistics", "md5")).reason == "same bytes"


def test_elements_that_changed_places_are_said_to_have():
    x = normal(400_000)
    moved = RNG.permutation(x)
    found = row(kept(moved, "statistics", "md5"), kept(x, "statistics", "md5"))
    assert found.verdict is Verdict.CLOSE and is_unproven(found)
    assert found.reason.startswith("equal statistics of different bytes: elements may be")
    near = row(kept(x * np.float32(1 + 1e-6), "statistics", "md5"), kept(x, "statistics", "md5"))
    assert near.reason == "statistics agree but bytes differ, which does not prove equality"


def test_nan_and_infinities_are_counted_and_their_places_are_not_known():
    x = normal(64)
    x[:2], x[2] = np.nan, np.inf
    moved = np.roll(x, 1)
    found = row(kept(moved, "statistics"), kept(x, "statistics"))
    assert is_unproven(found)
    assert found.reason.endswith(
        "; 2 NaN on both sides, whose positions are not kept"
        "; 1 infinite on both sides, whose positions and signs are not kept"
    )
    fewer = np.where(np.isnan(x), 0, x).astype(np.float32)
    assert row(kept(fewer, "statistics"), kept(x, "statistics")).verdict is Verdict.LARGE
    turned = x.copy()
    turned[2] = -np.inf
    found = row(kept(turned, "statistics", "md5"), kept(x, "statistics", "md5"))
    assert is_unproven(found) and "signs are not kept" in found.reason


@pytest.mark.parametrize("how", ["values", "statistics", "digest"])
@pytest.mark.parametrize("other", ["values", "statistics", "digest"])
def test_empty_tensors_are_empty_on_any_basis(how, other):
    def made(how):
        return kept(np.empty((0, 3), np.float32), how, "" if how == "statistics" else "md5")

    found = row(made(how), made(other))
    if "digest" in (how, other) and "statistics" in (how, other):
        assert re.match("incomparable: the (target|reference) has no digest", found.reason)
    else:
        assert (found.verdict, found.reason) == (Verdict.NONE, "empty")


def test_masked_scores_do_not_hide_the_others():
    """The mask is all that the figures of attention scores show."""
    low = np.finfo(np.float32).min
    scores = normal(8, 8)
    mask = np.triu(np.ones((8, 8), bool), 1)
    r = np.where(mask, low, scores)
    ruined = np.where(mask, low, 50 * scores)
    assert row(kept(ruined), kept(r)).verdict is Verdict.LARGE
    for t in (r, ruined, np.where(mask, -np.inf, scores).astype(np.float32)):
        found = row(kept(t, "statistics"), kept(r, "statistics"))
        assert found.reason == "masked: the statistics include masked positions"
    assert row(kept(r, "statistics", "md5"), kept(r, "statistics", "md5")).reason == "same bytes"
    # A mask on one side only is a fault, and so is NaN.
    assert row(kept(r, "statistics"), kept(scores, "statistics")).verdict is Verdict.LARGE
    broken = ruined.copy()
    broken[0, 0] = np.nan
    assert row(kept(broken, "statistics"), kept(r, "statistics")).verdict is Verdict.LARGE


def test_quantized_integers_are_compared_as_the_numbers_they_stand_for():
    x = normal(500)
    stored = np.clip(np.round(x / 0.05) + 3, -128, 127).astype(np.int8)
    how = Quantization((0.05,), (3,))

    def quantized(quantization, how="statistics", kind=""):
        return kept(stored, how, kind, quantization=quantization)

    assert row(quantized(how), kept(x, "statistics")).verdict is Verdict.CLOSE
    assert row(quantized(how), quantized(how, "values")).verdict is Verdict.CLOSE
    assert row(quantized(Quantization((0.08,), (3,))), kept(x, "statistics")).verdict is (
        Verdict.LARGE
    )
    # The same integers of another scale are the same bytes and other numbers.
    both = (quantized(Quantization((0.08,), (3,)), kind="md5"), quantized(how, kind="md5"))
    assert row(*both).verdict is Verdict.LARGE
    several = Quantization(tuple(np.linspace(0.01, 0.1, 500)), (3,), 0)
    found = row(quantized(several), quantized(how))
    assert found.reason.startswith("incomparable: statistics of integers with several scales")
    same = row(quantized(several, kind="md5"), quantized(several, kind="md5"))
    assert same.reason == "same bytes"


def test_values_that_are_not_those_recorded_are_no_divergence_of_the_model():
    x = normal(64)
    damaged = kept(x * 3, kind="crc32", digest=HASHES["crc32"](x.tobytes()))
    for how in ("statistics", "digest"):
        other = kept(x * 2, how, "md5" if how == "digest" else "")
        assert row(damaged, other).reason.startswith(
            "damaged: checksum mismatch: the bytes of the target's a in memory have changed"
        )


def test_judging_again_keeps_to_the_basis():
    x = normal(200)
    first = compare(kept(x * np.float32(1.0005), "statistics"), kept(x, "statistics"))
    assert first.verdict is Verdict.LARGE
    again = first.rejudged(PRESETS["f16"])
    assert again.verdict is Verdict.CLOSE
    assert headline(again).startswith("● close as far as statistics tell")
    assert again.rejudged(PRESETS["exact"]).verdict is Verdict.LARGE


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 9}, {"nan": 65}, {"nan": 40, "inf": 40}])
def test_statistics_that_cannot_be_of_this_tensor_are_unreadable(wrong):
    """A number of elements that is made up must not make a tensor empty, nor end in an error."""
    x = normal(64)
    made = kept(x, "statistics")
    figures = replace(made.tensors[0].statistics, **wrong)
    made.tensors = [replace(made.tensors[0], statistics=figures)]
    for other in (kept(x, "statistics"), kept(x)):
        found = compare(made, other)
        assert found.rows[0].reason.startswith("unreadable: ")
        assert found.exit_code() == 1


@pytest.mark.parametrize("name", ["min", "max", "mean", "std", "l2"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e308, np.nan])
def test_figures_beyond_all_bounds_are_not_close_and_no_error(name, value):
    x = normal(64)
    odd, plain = kept(x, "statistics"), kept(x, "statistics")
    figures = replace(odd.tensors[0].statistics, **{name: value})
    odd.tensors = [replace(odd.tensors[0], statistics=figures)]
    unknown = np.isnan(value)
    assert row(odd, plain).verdict is (Verdict.CLOSE if unknown else Verdict.LARGE)
    assert unknown or row(plain, odd).verdict is not Verdict.CLOSE
