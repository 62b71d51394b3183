"""Every metric against exact arithmetic, over all pairs of types, layouts and quantizations."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers import metric_oracle as oracle
from helpers import tensor_generators as tensors
from syncpoint.metrics import Operand, Pair, measure, operand, statistics

SEEDS = st.integers(0, 2**32 - 1)
NAMES = st.sampled_from(tensors.ALL)


@pytest.fixture(autouse=True)
def quiet():
    """Overflow and signalling NaN are what these tensors are made of."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.mark.parametrize("target", tensors.ALL)
@pytest.mark.parametrize("reference", tensors.ALL)
def test_every_pair_of_types(target, reference):
    rng = np.random.default_rng([tensors.ALL.index(target), tensors.ALL.index(reference)])
    pairs = []
    for i, recipe in enumerate(tensors.RECIPES):
        relation = tensors.RELATIONS[(i + rng.integers(5)) % 5]
        t, r = tensors.make_pair(rng, (target, reference), recipe, relation, 1 + 5 * i)
        if i % 2:
            tensors.sprinkle(rng, t, target, 0.2)
            tensors.sprinkle(rng, r, reference, 0.2)
        pairs.append(Pair(Operand(t, target), Operand(r, reference)))
    for pair, measurement in zip(pairs, measure(pairs, 1), strict=True):
        oracle.check(measurement, pair)


@st.composite
def laid_out_pairs(draw: st.DrawFn) -> Pair:
    """Two tensors of any types, values and layouts, with one shape."""
    shape = draw(tensors.shapes())
    names = draw(NAMES), draw(NAMES)
    rng = np.random.default_rng(draw(SEEDS))
    recipe = draw(st.sampled_from(tensors.RECIPES))
    relation = draw(st.sampled_from(tensors.RELATIONS))
    share = draw(st.sampled_from((0.0, 0.1, 0.5)))
    with np.errstate(all="ignore"):
        flat = tensors.make_pair(rng, names, recipe, relation, math.prod(shape))
        sides = []
        for array, name in zip(flat, names, strict=True):
            tensors.sprinkle(rng, array, name, share)
            layout = draw(st.sampled_from(tensors.LAYOUTS))
            sides.append(Operand(tensors.lay_out(array.reshape(shape), layout, rng), name))
    masks = st.none() | st.sampled_from((-math.inf, -1.0, 0.0))
    sides = [Operand(s.data, s.dtype, mask_below=draw(masks)) for s in sides]
    tolerance = st.none() | st.sampled_from((0.0, 1e-3, 0.5))
    return Pair(*sides, rtol=draw(tolerance), atol=draw(tolerance))


@given(laid_out_pairs())
def test_every_layout(pair):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        oracle.check(measure([pair])[0], pair)


@st.composite
def quantized_pairs(draw: st.DrawFn) -> Pair:
    """At least one side quantized: integers or fp8, perhaps packed, against anything real."""
    shape = draw(tensors.shapes())
    rng = np.random.default_rng(draw(SEEDS))
    stored = st.sampled_from((*tensors.INTS, "f8_e4m3fn", "f8_e5m2"))
    sides = []
    for quantized in draw(st.sampled_from(((True, False), (False, True), (True, True)))):
        name = draw(stored if quantized else NAMES)
        recipe = draw(st.sampled_from(("small integers", "bits", "normal")))
        count = math.prod(shape)
        array = tensors.make_pair(rng, (name, name), recipe, "equal", count)[0]
        tensors.sprinkle(rng, array, name, draw(st.sampled_from((0.0, 0.3))))
        quantization = draw(tensors.quantizations(shape, draw(SEEDS))) if quantized else None
        if name in ("i4", "u4") and draw(st.booleans()):
            sides.append(Operand(tensors.pack(array), name, quantization, shape=shape))
        else:
            data = tensors.lay_out(array.reshape(shape), draw(st.sampled_from(LAYOUTS)), rng)
            sides.append(Operand(data, name, quantization))
    return Pair(*sides)


LAYOUTS = ("dense", "permuted", "sliced", "negative")


@given(quantized_pairs())
def test_every_quantization(pair):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        oracle.check(measure([pair])[0], pair)


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=8))
@example([(1.7e308, -1.7e308), (1.0, 1.0)])
@example([(5e-324, 0.0), (0.0, 5e-324)])
@example([(1e300, 1e-300), (1e-300, 1e300)])
@example([(1e200, 1e200 * (1 + 2**-52)), (1.0, 2.0)])
@example([(1.0, 1.0 + 2**-52), (1e-180, 0.0)])
@example([(0.0, -0.0), (math.nan, math.nan), (math.inf, -math.inf)])
def test_all_of_float64(numbers):
    t, r = np.array(numbers, np.float64).reshape(-1, 2).T
    pair = Pair(operand(t), operand(r))
    oracle.check(measure([pair])[0], pair)


@given(st.lists(st.tuples(st.complex_numbers(), st.complex_numbers()), max_size=6))
def test_all_of_complex128(numbers):
    t, r = np.array(numbers, np.complex128).reshape(-1, 2).T
    pair = Pair(operand(t), operand(r))
    oracle.check(measure([pair])[0], pair)


WIDE = st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 4, 2**53 + 4)


@given(st.lists(st.tuples(WIDE, WIDE | st.integers(0, 2**64 - 1)), max_size=8))
def test_integers_beyond_2_to_the_53(numbers):
    t = np.array([t for t, _ in numbers], np.int64)
    for name, r in (
        ("i64", np.array([r - 2**63 if r >= 2**63 else r for _, r in numbers], np.int64)),
        ("u64", np.array([abs(r) for _, r in numbers], np.uint64)),
    ):
        pair = Pair(Operand(t, "i64"), Operand(r, name))
        oracle.check(measure([pair])[0], pair)


def fsum_of(numbers: np.ndarray) -> float:
    return math.fsum(numbers.ravel().tolist())


@pytest.mark.parametrize("count", [16383, 16384, 16385, 40000, 150001])
@pytest.mark.parametrize("recipe", ["normal", "exponents", "offset", "ramp"])
def test_sums_over_many_chunks(count, recipe):
    rng = np.random.default_rng(count)
    r = tensors.values(rng, recipe, count)
    t = (r + 1e-3 * rng.standard_normal(count)).astype(np.float32)
    r = r.astype(np.float32)
    got = measure([Pair(operand(t), operand(r))], robust=True)[0]
    t, r = t.astype(np.float64), r.astype(np.float64)
    d = t - r
    near = {"rel": 1e-12, "abs": 0}
    assert got.mae == pytest.approx(fsum_of(abs(d)) / count, **near)
    assert got.mse == pytest.approx(fsum_of(d * d) / count, **near)
    assert got.target_l2 == pytest.approx(math.sqrt(fsum_of(t * t)), **near)
    assert abs(got.target_mean - fsum_of(t) / count) <= 1e-12 * fsum_of(abs(t)) / count
    mean = fsum_of(r) / count
    deviations = r - mean
    rest = fsum_of(deviations) / count
    variance = fsum_of(deviations * deviations) / count - rest * rest
    assert got.reference_std == pytest.approx(math.sqrt(variance), **near)
    cosine = fsum_of(t * r) / math.sqrt(fsum_of(t * t)) / math.sqrt(fsum_of(r * r))
    assert got.cosine == pytest.approx(cosine, **near)
    assert got.max_abs == abs(d).max()
    assert got.max_abs_index == abs(d).argmax()
    assert got.acc_rel == pytest.approx(fsum_of(abs(d[r != 0]) / abs(r[r != 0])), **near)
    floor = 1e-3 * math.sqrt(fsum_of(r * r) / count)
    robust = fsum_of(abs(d) / np.maximum(abs(r), floor)) / count
    assert got.mean_rel_robust == pytest.approx(robust, **near)
    assert got.within_1e3 == np.mean(abs(d[r != 0]) / abs(r[r != 0]) < 1e-3)
    assert sum(n for _, n in got.error_histogram) == np.count_nonzero(d)


def test_standard_deviation_survives_an_offset_of_1e7_in_float64():
    # A mean rounded to a double there is off by 1e-9, which is not small against its spread.
    rng = np.random.default_rng(0)
    x = 1e7 + rng.standard_normal(100_000)
    got = measure([Pair(operand(x), operand(x))])[0]
    shifted = [v - 1e7 for v in x.tolist()]
    mean = math.fsum(shifted) / len(x)
    variance = math.fsum((v - mean) ** 2 for v in shifted) / len(x)
    assert got.target_std == pytest.approx(math.sqrt(variance), rel=1e-13, abs=0)


def test_holes_at_the_borders_of_chunks():
    r = np.arange(50_000, dtype=np.float32)
    t = r.copy()
    t[[16383, 16384, 32768]] = np.nan
    t[49_999] += 7
    got = measure([Pair(operand(t), operand(r))])[0]
    assert (got.compared, got.mismatched, got.target_nan) == (49_997, 3, 3)
    assert (got.max_abs, got.max_abs_index, got.mae) == (7.0, 49_999, 7 / 49_997)
    assert got.reference_zero == got.target_zero == 1


@given(laid_out_pairs())
def test_statistics_agree_with_the_pair_of_a_tensor_and_itself(pair):
    side = pair.target
    got = statistics(side)
    alone = Operand(side.data, side.dtype, mask_below=-math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want = oracle.expected(Pair(alone, alone))
    for name in ("mean", "std", "min", "max", "l2"):
        value = getattr(got, name)
        if f"target_{name}" in want.near:
            assert oracle.is_near(value, *want.near[f"target_{name}"])
        else:
            exact = want.exact[f"target_{name}"]
            assert math.isnan(value) if exact is None else value == exact
    counts = {f"target_{name}": getattr(got, name) for name in ("nan", "inf", "zero")}
    assert counts == {name: want.exact[name] for name in counts}
