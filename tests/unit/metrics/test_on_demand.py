"""On-demand metrics against exact arithmetic and 50 digits, over types, layouts and hard values."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import metric_oracle as oracle
from helpers import tensor_generators as tensors
from syncpoint.metrics import (
    Operand,
    Pair,
    Slice,
    kl,
    kl_minmax,
    kl_rows,
    measure,
    operand,
    topk_agreement,
    value_histograms,
    worst_slice,
    worst_slices,
)
from syncpoint.run.model import Quantization

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=settings.default.max_examples * 3 // 5)


def pair_of(target, reference):
    return Pair(operand(np.asarray(target)), operand(np.asarray(reference)))


@st.composite
def pairs(draw, types=tensors.ALL, recipes=tensors.RECIPES, shape=None):
    """Pairs of any types, layouts and quantization, with hard values in some places."""
    shape = draw(tensors.shapes()) if shape is None else draw(shape)
    rng = np.random.default_rng(draw(SEEDS))
    names = draw(st.sampled_from(types)), draw(st.sampled_from(types))
    recipe, relation = draw(st.sampled_from(recipes)), draw(st.sampled_from(tensors.RELATIONS))
    share = draw(st.sampled_from([0, 0, 0.05, 0.4]))
    sides = []
    with np.errstate(all="ignore"):
        arrays = tensors.make_pair(rng, names, recipe, relation, math.prod(shape))
    for array, name in zip(arrays, names, strict=True):
        quantization = None
        if name in tensors.INTS and draw(st.booleans()):
            quantization = draw(tensors.quantizations(shape, draw(SEEDS)))
        tensors.sprinkle(rng, array, name, share)
        if name in ("i4", "u4") and draw(st.booleans()):
            sides.append(Operand(tensors.pack(array), name, quantization, shape=shape))
            continue
        data = tensors.lay_out(array.reshape(shape), draw(st.sampled_from(tensors.LAYOUTS)), rng)
        sides.append(Operand(data, name, quantization))
    return Pair(*sides)


class Elements:
    """Both sides of a pair as exact numbers, and what the rules make of each."""

    def __init__(self, pair):
        self.t, self.places = oracle.elements(pair.target)
        self.r, _ = oracle.elements(pair.reference)
        self.shape = pair.target.logical_shape
        rtol = Fraction(oracle.TORCH_TOLERANCES.get(oracle.coarser(pair), (0.0, 0.0))[0])
        self.masked, self.compared, self.low = [], [], ([], [])
        for t, r in zip(self.t, self.r, strict=True):
            low = oracle.is_mask(pair.target, t), oracle.is_mask(pair.reference, r)
            lowest = oracle.is_lowest(pair.target, t), oracle.is_lowest(pair.reference, r)
            masked = all(low) or (low[0] and lowest[1]) or (low[1] and lowest[0])
            if not masked and any(low) and t.finite and r.finite:
                apart = oracle.modulus(t.re - r.re, t.im - r.im)
                masked = apart <= rtol * oracle.modulus(r.re, r.im)
            self.masked.append(masked)
            self.compared.append(t.finite and r.finite and not any(low))
            for side in (0, 1):
                self.low[side].append(low[side])

    def rows(self, axis):
        """The element numbers of every row along an axis, in the order the rows are counted."""
        numbers = np.arange(len(self.t)).reshape(self.shape or (1,))
        return np.moveaxis(numbers, axis, -1).reshape(-1, numbers.shape[axis]).tolist()

    def scores(self, side, row):
        """Scores of a row as float64 has them; None where masked."""
        xs = (self.t, self.r)[side]
        hidden = self.low[side]
        return [None if self.masked[i] or hidden[i] else as_float(xs[i].re) for i in row]


def as_float(x):
    return oracle.rounded(x) if isinstance(x, Fraction | int) else x


def near(got, want, relative, absolute=0.0):
    return got == want or abs(got - want) <= relative * abs(want) + absolute


# --- worst slice -------------------------------------------------------------------------------


def ratios(pair, axis):
    """The relative error of every slice that has a compared element, in exact arithmetic."""
    known = Elements(pair)
    slices = {}
    for i, place in enumerate(known.places):
        if known.compared[i]:
            t, r = known.t[i], known.r[i]
            d, q = slices.get(place[axis] if place else 0, (0, 0))
            d += (t.re - r.re) ** 2 + (t.im - r.im) ** 2
            slices[place[axis] if place else 0] = (d, q + r.re**2 + r.im**2)
    total = sum(q for _, q in slices.values())
    if not total:
        return {}
    floor = oracle.root(Fraction(total) / len(slices)) / 10
    return {
        k: oracle.root(Fraction(d)) / max(oracle.root(Fraction(q)), floor)
        for k, (d, q) in slices.items()
    }


@given(pairs(), st.data())
def test_the_worst_slice_is_the_worst_in_exact_arithmetic(pair, data):
    rank = max(len(pair.target.logical_shape), 1)
    axis = data.draw(st.integers(-rank, rank - 1))
    want = ratios(pair, axis)
    got = worst_slice(pair, axis)
    if not want:
        assert got is None
        return
    greatest = max(want.values())
    assert got.axis == axis % rank
    assert oracle.is_near(got.rel_l2, greatest, greatest * Fraction(1, 10**12))
    assert want[got.index] >= greatest * (1 - Fraction(1, 10**12))


def test_a_slice_of_almost_nothing_is_measured_against_a_tenth_of_the_others():
    r = np.array([[3.0, 4.0], [0.0, 1e-9], [0.0, 5.0]])
    t = r + np.array([[0.0, 0.5], [0.0, 0.2], [0.0, 0.0]])
    # Norms 5, 1e-9, 5: rms 4.0825, floor 0.40825; errors 0.5 / 5 and 0.2 / 0.40825.
    got = worst_slice(pair_of(t, r), 0)
    assert (got.axis, got.index) == (0, 1)
    assert math.isclose(got.rel_l2, 0.2 / (0.1 * math.sqrt(50 / 3)), rel_tol=1e-12)


@pytest.mark.parametrize("inner", [1, 3, 8, 10_000])
@pytest.mark.parametrize("at", [(0, 1), (1, 2), (3, 4)])
def test_the_lowest_of_equal_slices_wins(inner, at):
    rng = np.random.default_rng(0)
    r = np.broadcast_to(rng.standard_normal((3, 1, inner)), (3, 5, inner)).copy()
    t = r.copy()
    t[:, list(at)] += rng.standard_normal((3, 1, inner))
    assert worst_slice(pair_of(t, r), 1).index == at[0]


@pytest.mark.parametrize("shape", [(2, 3, 3001), (7, 5, 1000), (3000, 5), (900, 4, 3)])
def test_slices_that_are_cut_where_a_piece_ends(shape):
    rng = np.random.default_rng(2)
    r, d = rng.standard_normal((2, *shape))
    for axis in range(len(shape)):
        others = tuple(k for k in range(len(shape)) if k != axis)
        norms = [np.sqrt(np.sum(x * x, others)) for x in ((r + d) - r, r)]
        want = norms[0] / np.maximum(norms[1], 0.1 * np.sqrt(np.mean(norms[1] ** 2)))
        got = worst_slice(pair_of(r + d, r), axis)
        assert got.index == want.argmax()
        assert math.isclose(got.rel_l2, want.max(), rel_tol=1e-13)


def test_one_ruined_channel_is_found_among_many():
    rng = np.random.default_rng(1)
    r = rng.standard_normal((2, 64, 7, 9)).astype(np.float32)
    t = r.copy()
    t[:, 17] = rng.standard_normal((2, 7, 9))
    found = worst_slices(pair_of(t, r))
    assert (found[0].axis, found[0].index) == (1, 17)
    assert found[0].rel_l2 > 1 > 0.3 > found[1].rel_l2
    # The other way round: channels last.
    back = worst_slices(pair_of(np.moveaxis(t, 1, -1), np.moveaxis(r, 1, -1)))
    assert back[-1] == Slice(3, 17, pytest.approx(found[0].rel_l2, rel=1e-14))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((), []), ((5,), []), ((3, 4), [1]), ((2, 3, 4), [1, 2]), ((2, 3, 4, 5), [1, 3])],
)
def test_channel_and_token_axes_are_axis_1_and_the_last(shape, axes):
    r = np.ones(shape, np.float32)
    assert [s.axis for s in worst_slices(pair_of(r * 2, r))] == axes


def test_an_axis_of_one_and_an_empty_tensor_have_no_worst_slice():
    assert [s.axis for s in worst_slices(pair_of(np.ones((3, 1, 4)), np.ones((3, 1, 4))))] == [2]
    assert worst_slices(pair_of(np.ones((3, 0)), np.ones((3, 0)))) == []
    assert worst_slice(pair_of(np.ones((3, 0)), np.ones((3, 0))), 1) is None


def test_an_all_zero_reference_has_no_worst_slice():
    assert worst_slice(pair_of(np.ones((2, 3)), np.zeros((2, 3))), 0) is None


# --- histograms --------------------------------------------------------------------------------


@given(pairs(), st.sampled_from([1, 2, 7, 64]))
def test_histograms_count_as_numpy_does(pair, bins):
    known = Elements(pair)
    got = value_histograms(pair, bins)
    finite = []
    for side, xs in enumerate((known.t, known.r)):
        hidden = [m or low for m, low in zip(known.masked, known.low[side], strict=True)]
        kept = [x for x, h in zip(xs, hidden, strict=True) if not h and x.finite]
        complex_side = (pair.target, pair.reference)[side].dtype in ("c64", "c128")
        if complex_side:
            kept = [math.hypot(as_float(x.re), as_float(x.im)) for x in kept]
        else:
            kept = [as_float(x.re) for x in kept]
        kept = [x for x in kept if math.isfinite(x)]
        counts = (got.target_counts, got.reference_counts)[side]
        assert sum(hidden) == (got.target_masked, got.reference_masked)[side]
        others = len(xs) - sum(hidden) - len(kept)
        assert others == (got.target_non_finite, got.reference_non_finite)[side]
        assert sum(counts) == len(kept)
        if kept and not complex_side:
            assert counts == tuple(np.histogram(kept, np.array(got.edges))[0])
        finite += kept
    if not finite:
        assert got.edges == got.target_counts == got.reference_counts == ()
    elif min(finite) < max(finite):
        assert len(got.edges) == bins + 1
        assert near(got.edges[0], min(finite), 1e-15)
        assert near(got.edges[-1], max(finite), 1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_edges_are_those_of_numpy(dtype):
    rng = np.random.default_rng(3)
    t, r = (rng.integers(-500, 500, (2, 20_000)) / 4).astype(dtype)
    got = value_histograms(pair_of(t, r))
    both = np.concatenate([t, r]).astype(np.float64)
    want, edges = np.histogram(both, 64)
    assert got.edges == tuple(edges)
    assert np.array_equal(np.add(got.target_counts, got.reference_counts), want)


@pytest.mark.parametrize("bins", [3, 10, 49, 64, 100])
def test_values_on_an_edge_belong_to_the_bin_above(bins):
    values = np.linspace(0.1, 0.7, bins + 1)
    got = value_histograms(pair_of(values, values), bins)
    assert got.target_counts == (*[1] * (bins - 1), 2)


def test_masks_that_only_one_type_can_tell_are_masks_on_both_sides():
    """-40000 is below half the lowest f16 and an ordinary f32; both sides mean the same."""
    r = np.array([[1, 2, -40000]], np.float16)
    t = np.array([[1, 2, -40001]], np.float32)
    got = value_histograms(pair_of(t, r))
    assert (got.target_masked, got.reference_masked) == (1, 1)
    t[0, 2] = -3
    got = value_histograms(pair_of(t, r))
    assert (got.target_masked, got.reference_masked) == (0, 1)


@pytest.mark.parametrize("value", [0.0, 7.0, -1e300, 1.7e308, 5e-324])
def test_a_constant_tensor_is_in_one_bin(value):
    got = value_histograms(pair_of(np.full(9, value), np.full(9, value)), 10)
    assert sorted(got.target_counts) == [0] * 9 + [9] and got.edges[0] < got.edges[-1]


def test_histograms_need_a_bin():
    with pytest.raises(ValueError, match="bins"):
        value_histograms(pair_of([1.0], [1.0]), 0)


# --- KL ----------------------------------------------------------------------------------------


def softmax_kl(t, r):
    """KL(softmax r || softmax t) to 50 digits; None where there is none."""
    if any(x is not None and not x < math.inf for x in (*t, *r)):
        return None
    if all(x is None for x in t) or all(x is None for x in r):
        return None
    peak = max(x for x in r if x is not None)
    # Weights that float64 cannot hold count as none.
    r = [None if x is None or x - peak < -745 else x for x in r]
    if any(a is None and b is not None for a, b in zip(t, r, strict=True)):
        return math.inf
    t, r = (shifted(side) for side in (t, r))
    et, er = ([mpmath.exp(x) if x is not None else mpmath.mpf(0) for x in side] for side in (t, r))
    p, q = mpmath.fsum(er), mpmath.fsum(et)
    both = [(w / p, b - a) for w, a, b in zip(er, t, r, strict=True) if w]
    return mpmath.fsum(w * d for w, d in both) + mpmath.log(q / p)


def shifted(side):
    """The greatest becomes 0, exactly."""
    greatest = max(x for x in side if x is not None)
    return [None if x is None else mpmath.mpf(x) - greatest for x in side]


LOGITS = (*tensors.FLOATS, "i32", "i8", "u4", "i4")
LIKELY = ("normal", "exponents", "offset", "small integers", "masks", "tiny")
SOME = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


def check_kl(pair, axis, rest=1e-24):
    """`rest`: what equal distributions may leave behind."""
    known = Elements(pair)
    with mpmath.workdps(110):
        rows = [softmax_kl(known.scores(0, row), known.scores(1, row)) for row in known.rows(axis)]
        defined = [x for x in rows if x is not None]
        got = kl_rows(pair, axis)
        assert (got.rows, got.undefined) == (len(defined), len(rows) - len(defined))
        if not defined:
            assert got.mean is got.max is got.max_row is None
            return
        assert near(got.mean, mpmath.fsum(defined) / len(defined), 1e-10, rest), (rows, got)
        assert near(got.max, max(defined), 1e-10, rest)
        assert near(got.max, rows[got.max_row], 1e-10, rest)
        assert kl(pair, axis) == got.mean


@QUICK
@given(pairs(LOGITS, LIKELY, SOME), st.data())
def test_kl_of_logits_agrees_with_fifty_digits(pair, data):
    rank = len(pair.target.logical_shape)
    check_kl(pair, data.draw(st.integers(-rank, rank - 1)))


@QUICK
@given(SEEDS, st.integers(2, 300), st.floats(-12, 1), st.sampled_from([0.0, 30.0, -1e4]))
def test_kl_keeps_its_digits_however_small(seed, count, exponent, offset):
    rng = np.random.default_rng(seed)
    r = rng.standard_normal(count) * 4
    t = r + offset + 10**exponent * rng.standard_normal(count)
    check_kl(pair_of(t, r), -1, rest=1e-36)


def test_kl_of_long_rows():
    rng = np.random.default_rng(5)
    r = rng.standard_normal((2, 5000)).astype(np.float32)
    t = (r + 1e-6 * rng.standard_normal(r.shape)).astype(np.float32)
    t[1, 4500] += 2
    check_kl(pair_of(t, r), -1)


def test_kl_by_hand():
    # Probabilities 1/2, 1/2 against 3/4, 1/4.
    r, t = np.log([[1.0, 1.0]]), np.log([[3.0, 1.0]])
    want = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert math.isclose(kl(pair_of(t, r)), want, rel_tol=1e-15)
    assert math.isclose(kl(pair_of(t.T, r.T), 0), want, rel_tol=1e-15)
    assert kl(pair_of(t, t)) == 0.0


def test_an_offset_that_swallows_the_reference_leaves_equal_distributions_equal():
    assert kl(pair_of([-1e37], [-0.13])) < 1e-24


@pytest.mark.parametrize("mask", [-np.inf, np.finfo(np.float32).min])
def test_masked_places_have_no_probability(mask):
    r = np.array([[0.5, 1.5, -0.5, mask], [1, mask, 2, 3]], np.float32)
    t = np.array([[0.6, 1.4, -0.5, mask], [1, 2, 2, 3]], np.float32)
    got = kl_rows(pair_of(t, r))
    assert kl(pair_of(t[:1, :3], r[:1, :3])) == kl(pair_of(t[:1], r[:1]))
    assert got.rows == 2 and got.max_row == 1
    # What has a probability in the reference and none in the target is infinitely far.
    assert kl_rows(pair_of(r, t)).max == math.inf


def test_rows_with_nan_are_counted_and_left_out():
    r = np.zeros((4, 3))
    t = r.copy()
    t[1, 2] = np.nan
    r[3] = -np.inf
    got = kl_rows(pair_of(t, r))
    assert (got.rows, got.undefined, got.mean) == (2, 2, 0.0)


@pytest.mark.parametrize("big", [800.0, 1e6, 1e300])
def test_distributions_that_have_nothing_in_common(big):
    r, t = np.array([big, 0.0]), np.array([0.0, big])
    assert math.isclose(kl(pair_of(t, r)), big, rel_tol=1e-12)


@QUICK
@given(pairs(recipes=("huge", "bits"), shape=SOME))
def test_kl_is_never_nan_or_negative(pair):
    for value in (kl(pair), kl_minmax(pair)):
        assert value is None or value >= 0


def minmax_kl(t, r):
    def scaled(xs):
        xs = [mpmath.mpf(x) for x in xs]
        least, greatest = min(xs), max(xs)
        if least == greatest:
            return [mpmath.mpf(1)] * len(xs)
        floor = mpmath.mpf(float(np.finfo(np.float32).eps))
        return [max((x - least) / (greatest - least), floor) for x in xs]

    b, a = scaled(t), scaled(r)
    p, q = mpmath.fsum(b), mpmath.fsum(a)
    return mpmath.fsum(x / p * mpmath.log((x / p) / (y / q)) for x, y in zip(b, a, strict=True))


def check_minmax(pair, rest=1e-24):
    known = Elements(pair)
    both = [
        (as_float(t.re), as_float(r.re))
        for t, r, used in zip(known.t, known.r, known.compared, strict=True)
        if used
    ]
    got = kl_minmax(pair)
    if not both:
        assert got is None
        return
    with mpmath.workdps(110):
        assert near(got, minmax_kl(*zip(*both, strict=True)), 1e-10, rest)


@QUICK
@given(pairs((*tensors.FLOATS, *tensors.INTS)))
def test_minmax_kl_agrees_with_fifty_digits(pair):
    check_minmax(pair)


@QUICK
@given(SEEDS, st.integers(2, 300), st.floats(-12, 0), st.sampled_from([1.0, 3.0, 1e5]))
def test_minmax_kl_keeps_its_digits_however_small(seed, count, exponent, factor):
    rng = np.random.default_rng(seed)
    r = rng.standard_normal(count)
    t = factor * (r + 10**exponent * rng.standard_normal(count)) + factor
    check_minmax(pair_of(t, r), rest=1e-36)


def test_minmax_kl_where_nearly_all_is_proportional():
    """The sum and the logarithm are then a million times the result and cancel."""
    r = np.full(2000, 0.5)
    r[0], r[1] = 0, 1
    t = r.copy()
    t[2:] += 1e-3
    check_minmax(pair_of(t, r))


def test_minmax_kl_by_hand():
    # Scaled to 0, 1/2, 1 and 0, 1/4, 1, the zeros floored.
    eps = 2.0**-23
    p, q = np.array([eps, 0.5, 1]), np.array([eps, 0.25, 1])
    p, q = p / p.sum(), q / q.sum()
    got = kl_minmax(pair_of([1.0, 2.0, 3.0], [-8.0, 0.0, 24.0]))
    assert math.isclose(got, float(np.sum(p * np.log(p / q))), rel_tol=1e-12)


def test_constant_sides_are_even_distributions():
    assert kl_minmax(pair_of(np.full(5, 2.0), np.full(5, -3.0))) == 0.0
    check_minmax(pair_of(np.full(3, 2.0), [0.0, 1.0, 2.0]))


# --- top-k -------------------------------------------------------------------------------------


def agreement(t, r, k):
    """First place and overlap of one row; None with a NaN or nothing to choose from."""
    if any(x is not None and math.isnan(x) for x in (*t, *r)):
        return None
    chosen = sorted((i for i, x in enumerate(t) if x is not None), key=lambda i: (-t[i], i))[:k]
    best = sorted((x for x in r if x is not None), reverse=True)[:k]
    if not chosen or not best:
        return None
    picked = [r[i] for i in chosen if r[i] is not None]
    # Take every chosen score out of the best ones, each once.
    left, hits = list(best), 0
    for x in picked:
        if x in left:
            left.remove(x)
            hits += 1
    return r[chosen[0]] == best[0], Fraction(hits, len(best))


@given(pairs((*tensors.FLOATS, *tensors.INTS), shape=SOME), st.integers(1, 7), st.data())
def test_top_places_agree_as_a_plain_sort_says(pair, k, data):
    rank = len(pair.target.logical_shape)
    axis = data.draw(st.integers(-rank, rank - 1))
    known = Elements(pair)
    rows = [agreement(known.scores(0, row), known.scores(1, row), k) for row in known.rows(axis)]
    defined = [x for x in rows if x is not None]
    got = topk_agreement(pair, k, axis)
    assert (got.rows, got.undefined) == (len(defined), len(rows) - len(defined))
    if not defined:
        assert got.top1 is got.topk is None
        return
    assert got.top1 == sum(first for first, _ in defined) / len(defined)
    assert near(got.topk, float(sum(share for _, share in defined) / len(defined)), 1e-14)


def test_a_tie_in_the_reference_is_agreement():
    r = np.array([[5.0, 5.0, 1.0, 0.0]])
    t = np.array([[4.9, 5.1, 1.0, 0.0]])
    got = topk_agreement(pair_of(t, r), k=1)
    assert (got.top1, got.topk) == (1.0, 1.0)
    # A tie in the target is not: it chooses the first, which the reference would not.
    assert topk_agreement(pair_of(r, t), k=1).top1 == 0.0


def test_ties_for_the_last_place_count_only_as_often_as_there_is_room():
    r = np.array([[5.0, 3.0, 3.0, 3.0]])
    t = np.array([[0.0, 4.0, 3.0, 1.0]])
    assert topk_agreement(pair_of(t, r), k=2).topk == 0.5
    assert topk_agreement(pair_of(t, r), k=4).topk == 1.0


def test_of_equal_scores_the_target_chooses_the_lower_index():
    r = np.array([[0.0, 5.0, 4.0, 9.0]])
    t = np.array([[1.0, 3.0, 3.0, 3.0]])
    # The places 1 and 2, of which only the first is among the best two, 3 and 1.
    got = topk_agreement(pair_of(t, r), k=2)
    assert (got.top1, got.topk) == (0.0, 0.5)
    backwards = topk_agreement(pair_of(t[:, ::-1], r[:, ::-1]), k=2)
    # The other way round it chooses what was 3 and 2.
    assert (backwards.top1, backwards.topk) == (1.0, 0.5)
    long = np.zeros((1, 5000))
    best = np.arange(5000.0)[None, ::-1]
    assert topk_agreement(pair_of(long, best), k=7).topk == 1.0


def test_places_in_rows_longer_than_a_piece():
    rng = np.random.default_rng(7)
    r = rng.standard_normal((3, 10_000))
    t = r + 0.01 * rng.standard_normal(r.shape)
    first = [np.argsort(-side)[:, :5] for side in (t, r)]
    want = [len({*a} & {*b}) / 5 for a, b in zip(*first, strict=True)]
    got = topk_agreement(pair_of(t, r))
    assert math.isclose(got.topk, np.mean(want), rel_tol=1e-14)
    assert got.top1 == np.mean(t.argmax(1) == r.argmax(1))


# --- all of them -------------------------------------------------------------------------------


def everything(pair, axis):
    return (
        worst_slice(pair, axis),
        value_histograms(pair),
        kl_rows(pair, axis),
        kl_minmax(pair),
        topk_agreement(pair, 3, axis),
    )


@pytest.mark.parametrize("layout", [x for x in tensors.LAYOUTS if x != "broadcast"])
@pytest.mark.parametrize("name", ["f32", "bf16", "f64", "i16"])
def test_strides_do_not_change_a_bit(layout, name):
    rng = np.random.default_rng(5)
    t, r = (
        x.reshape(10, 31, 40)
        for x in tensors.make_pair(rng, (name, name), "normal", "near", 12_400)
    )
    moved = Operand(tensors.lay_out(t, layout, rng), name)
    for axis in (0, 1, 2):
        dense = everything(Pair(operand(t), operand(r)), axis)
        assert everything(Pair(moved, operand(r)), axis) == dense


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_packed_and_quantized_tensors_are_read_as_what_they_stand_for(axis):
    rng = np.random.default_rng(6)
    stored = rng.integers(-8, 8, (3, 5, 7))
    scale = rng.uniform(0.1, 2, 5)
    real = stored * scale[:, None]
    quantization = Quantization(tuple(scale), (0,), 1)
    r = operand(real + 0.1 * rng.standard_normal(real.shape))
    packed = Operand(tensors.pack(stored), "i4", quantization, shape=real.shape)
    for side in (packed, Operand(stored.astype(np.int8), "i8", quantization)):
        assert everything(Pair(side, r), axis) == everything(Pair(operand(real), r), axis)


@given(pairs())
def test_masks_are_those_of_the_measurement(pair):
    measured = measure([pair])[0]
    known = Elements(pair)
    assert (sum(known.masked), sum(known.compared)) == (measured.masked, measured.compared)


@pytest.mark.parametrize("array", [np.float32(2), np.zeros((0, 3)), np.zeros((3, 0)), 1j])
def test_scalars_empty_and_complex_tensors_have_an_answer(array):
    pair = pair_of(array, array)
    rows = kl_rows(pair)
    real = np.isrealobj(array)
    assert rows.mean == (0.0 if np.size(array) and real else None)
    assert topk_agreement(pair).top1 == (1.0 if np.size(array) and real else None)
    assert kl_minmax(pair) == (0.0 if np.size(array) and real else None)
    assert sum(value_histograms(pair).target_counts) == np.size(array)


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_is_not_there_is_refused(axis):
    pair = pair_of(np.ones((2, 3)), np.ones((2, 3)))
    for metric in (kl, worst_slice, lambda p, a: topk_agreement(p, 5, a)):
        with pytest.raises(ValueError, match="axis"):
            metric(pair, axis)


def test_shapes_that_differ_are_refused():
    pair = pair_of(np.ones((2, 3)), np.ones((3, 2)))
    for metric in (kl, kl_minmax, worst_slices, value_histograms, topk_agreement):
        with pytest.raises(ValueError, match="shapes differ"):
            metric(pair)
